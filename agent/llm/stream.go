package llm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// receive reads the answer to a streamed request and passes its text on as it comes. When the stream breaks after some
// text was passed on, it says so, because the next attempt starts over.
func receive(ctx context.Context, x *exchange, onText func(string)) (completion, error) {
	if x.events == nil { // a server that cannot stream, or will not with tools, answers whole
		got, err := decode(x.raw)
		if err == nil && len(got.Choices) > 0 {
			emit(onText, got.Choices[0].Message)
		}
		return got, err
	}
	defer x.events.Close()
	var j joined
	for {
		raw, err := x.events.nextEvent()
		if err == nil {
			var chunk completion
			if err = json.Unmarshal(raw, &chunk); err == nil {
				j.add(chunk, onText)
				if j.size <= maxAnswer {
					continue
				}
				return completion{}, tooLarge(maxAnswer)
			}
			err = fmt.Errorf("%w in %q", err, readable(string(raw)))
		}
		if x.events.done || j.finish != "" && isBroken(err) {
			return j.completion(), nil
		}
		if j.started && ctx.Err() == nil {
			onText("\n[the stream broke off]\n")
		}
		return j.completion(), err
	}
}

// isBroken reports whether a stream merely ended early: after its finish_reason, nothing that matters is missing.
func isBroken(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || isConnection(err)
}

func emit(onText func(string), m message) {
	for _, piece := range []string{m.thoughts(), string(m.Content)} {
		if piece != "" {
			onText(piece)
		}
	}
}

// joined puts the chunks of a stream together.
type joined struct {
	content, thoughts, refusal strings.Builder
	calls                      []*joinedCall
	finish, model              string
	usage                      *usage
	size                       int  // of all text and calls
	started                    bool // some text was passed on
	chosen                     bool // a chunk with a choice came
}

type joinedCall struct {
	index     int
	id, name  string
	arguments strings.Builder
}

func (j *joined) add(c completion, onText func(string)) {
	j.model = cmp.Or(c.Model, j.model)
	j.usage = cmp.Or(c.Usage, j.usage) // its own chunk has no choice
	if len(c.Choices) == 0 {
		return
	}
	j.chosen = true
	first := c.Choices[0]
	j.finish = cmp.Or(first.FinishReason, j.finish)
	d := first.Delta
	j.content.WriteString(string(d.Content))
	j.refusal.WriteString(string(d.Refusal))
	j.thoughts.WriteString(d.thoughts())
	j.size += len(d.Content) + len(d.Refusal) + len(d.thoughts())
	for _, piece := range d.ToolCalls {
		j.size += len(piece.Function.Arguments) + len(piece.Function.Name) + len(piece.ID) + 64
		call := j.call(piece)
		call.name, call.id = cmp.Or(call.name, piece.Function.Name), cmp.Or(call.id, piece.ID)
		call.arguments.WriteString(string(piece.Function.Arguments))
	}
	if d.thoughts() != "" || d.Content != "" {
		j.started = true
		emit(onText, d)
	}
}

// call finds the tool call that a piece belongs to: by its index or, for servers that give every call the same index or
// none, by its id.
func (j *joined) call(piece toolCall) *joinedCall {
	last := len(j.calls) - 1
	if piece.Index == nil {
		if last >= 0 && (piece.ID == "" || piece.ID == j.calls[last].id) {
			return j.calls[last]
		}
		return j.newCall(last + 1)
	}
	for i := last; i >= 0; i-- {
		if call := j.calls[i]; call.index == *piece.Index {
			if piece.ID != "" && call.id != "" && piece.ID != call.id && piece.Function.Name != "" {
				break
			}
			return call
		}
	}
	return j.newCall(*piece.Index)
}

func (j *joined) newCall(index int) *joinedCall {
	call := &joinedCall{index: index}
	j.calls = append(j.calls, call)
	return call
}

func (j *joined) completion() completion {
	out := completion{Model: j.model, Usage: j.usage}
	if !j.chosen {
		return out
	}
	first := choice{FinishReason: j.finish, Message: message{
		Content: text(j.content.String()), Refusal: text(j.refusal.String()), Reasoning: text(j.thoughts.String()),
	}}
	for _, call := range j.calls {
		var whole toolCall
		whole.ID, whole.Function.Name, whole.Function.Arguments = call.id, call.name, text(call.arguments.String())
		first.Message.ToolCalls = append(first.Message.ToolCalls, whole)
	}
	out.Choices = []choice{first}
	return out
}
