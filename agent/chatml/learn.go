package chatml

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// ending is how a template ends replies.
type ending struct {
	// last is the token that ends the last reply of a conversation, next the one that ends every other reply.
	// Without last, a reply ends with the first token of the next message.
	last, next string
	// closed says that next belongs to the reply.
	closed bool
}

// stop is the token with which a model ends a reply.
func (e ending) stop() string { return cmp.Or(e.last, e.next) }

// closes reports whether the token is one with which the template ends the last reply of a conversation.
func (c *Codec) closes(id int32) bool {
	token, ok := c.added[id]
	return ok && (token == c.answer.last || token == c.call.last)
}

func question() trajectory.Message {
	return trajectory.Message{Role: trajectory.RoleUser, Content: "u"}
}

// learnAnswer finds out how the template begins and ends replies.
func (c *Codec) learnAnswer() error {
	none := func(string) bool { return false }
	asked := []trajectory.Message{question(), {Role: trajectory.RoleAssistant, Content: standIn}}
	var err error
	if c.answer, err = c.ending(asked, question(), none, nil); err != nil {
		return err
	}
	c.hand = &hand{thought: [2]string{c.mark("<think>"), c.mark("</think>")}, channels: harmony().mapped(c.mark)}
	if _, ok := c.tokens.ID("[THINK]"); ok {
		c.hand.thought = [2]string{c.mark("[THINK]"), c.mark("[/THINK]")}
	}
	c.hand.spelled = !strings.Contains(c.hand.thought[1], tokenMark)
	before, err := c.render(asked[:1], Options{Reply: true})
	c.hand.open = strings.HasSuffix(strings.TrimRight(c.mark(before), "\n"), c.hand.thought[0])
	return err
}

// ending finds out how the template ends the last message, whose last text is the stand-in, and which then may
// follow. It skips tokens that are part of the reply.
func (c *Codec) ending(messages []trajectory.Message, then trajectory.Message, part func(string) bool,
	specs []tools.Spec) (e ending, err error) {
	direct := false // nothing is between the reply and the token
	after := func(messages []trajectory.Message, reply bool) string {
		var text string
		if text, err = c.render(messages, Options{Tools: specs, Reply: reply}); err != nil {
			return ""
		}
		at := strings.LastIndex(text, standIn)
		if at < 0 {
			return ""
		}
		ids, from := c.tokens.Encode(text[at+len(standIn):]), 0
		for i, id := range ids {
			token, ok := c.added[id]
			if ok && part(token) {
				from = i + 1
			} else if ok {
				direct = strings.TrimSpace(c.tokens.Decode(ids[from:i])) == ""
				return token
			}
		}
		return ""
	}
	e.last = after(messages, false)
	if err == nil {
		e.next = after(append(messages[:len(messages):len(messages)], then), true)
	}
	switch e.closed = e.last == e.next; {
	case err != nil:
		return e, err
	case e.next == "", e.last == "" && !direct:
		return e, fmt.Errorf("%w: replies do not end with a token of their own", ErrNoExtension)
	case e.last != "" && !e.closed:
		// A token that precedes messages of another kind, too, is not the beginning of a message.
		if e.closed = after(messages, true) == e.next; err != nil || !e.closed {
			return e, fmt.Errorf("%w: %q ends a reply, and not where %q follows it", ErrNoExtension, e.last, e.next)
		}
	}
	return e, nil
}

const (
	probe          = "probe"
	probeArguments = `{"text": "a \"b\" é\n<c>", "number": 5, "list": [1, {"k": null}], "flag": true}`
	probeSchema    = `{"type": "object", "required": ["text"], "properties": {"text": {"type": "string", ` +
		`"description": "t"}, "number": {"type": "integer", "description": "n"}, "list": {"type": "array", "items": ` +
		`{"type": "string"}, "description": "l"}, "flag": {"type": "boolean", "description": "f"}}}`
)

// ProbeTools are the tools with which a template is tried.
func ProbeTools() []tools.Spec {
	return []tools.Spec{{Name: probe, Description: "d", Parameters: json.RawMessage(probeSchema)}}
}

// learnCalls finds the notation in which the template writes calls: it renders a call, and tries to read it in each
// known notation. It fails unless exactly one of them gives the same call back.
func (c *Codec) learnCalls() error {
	specs := ProbeTools()
	var names []string
	var failed error
	for _, id := range []string{callID(0, 0), "functions." + probe + ":0"} {
		var found []*notation
		for _, n := range notations() {
			names = append(names, n.name)
			e, ok, err := c.writesAs(&n, id, specs)
			if err != nil {
				failed = err
			}
			if ok {
				m := n.mapped(c.mark)
				found, c.call = append(found, &m), e
			}
		}
		if len(found) == 1 {
			c.hand.calls = found[0]
			return nil
		}
	}
	c.call = c.answer
	known := strings.Join(names[:len(names)/2], ", ")
	return errors.Join(fmt.Errorf("the chat template writes tool calls in a notation that is not known here (%s are); to "+
		"fix: use --format xml (environment.format in a training configuration)", known), failed)
}

// writesAs reports whether the template writes a call in a notation, and how that reply ends.
func (c *Codec) writesAs(n *notation, id string, specs []tools.Spec) (ending, bool, error) {
	call := trajectory.ToolCall{ID: id, Name: probe, Arguments: probeArguments}
	reply := trajectory.Message{Role: trajectory.RoleAssistant, ToolCalls: []trajectory.ToolCall{call}}
	asked := []trajectory.Message{question(), reply}
	before, err := c.render(asked[:1], Options{Tools: specs, Reply: true})
	if err != nil {
		return ending{}, false, err
	}
	text, err := c.render(asked, Options{Tools: specs})
	if err != nil {
		return ending{}, false, err
	}
	prompt, ids := c.tokens.Encode(before), c.tokens.Encode(text)
	for len(prompt) > 0 && len(ids) > 0 && prompt[0] == ids[0] {
		prompt, ids = prompt[1:], ids[1:]
	}
	asked[1] = CutOff(reply, standIn)
	asked[1].Content = ""
	e, err := c.ending(asked, trajectory.Message{Role: trajectory.RoleTool, Content: "r", ToolCallID: id, Name: probe},
		n.ends, specs)
	if err != nil {
		return e, false, err
	}
	written := c.written(ids)
	if e.last != "" {
		written, _, _ = strings.Cut(written, tokenMark+e.last)
	}
	marked := n.mapped(c.mark)
	as := *c.hand
	as.calls, as.open = &marked, false
	read := as.read(written, true, 0, specs).ToolCalls
	return e, len(read) == 1 && read[0].Name == probe && sameJSON(read[0].Arguments, probeArguments), nil
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}
