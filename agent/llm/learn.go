package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"deepswe/agent"
	"deepswe/agent/chatml"
)

// serverCodec encodes conversations with the server's own chat template and tokenizer, through its /tokenize.
type serverCodec struct {
	c     *Client
	model string
	// learned says how the template ends replies and writes calls. The server parses neither if the prompt is given in
	// tokens.
	learned *chatml.Codec
}

// serverCodec learns once how the model's template ends replies and writes calls: in up to 200 short requests.
func (c *Client) serverCodec(ctx context.Context, p patience, model string) (*serverCodec, error) {
	if known := c.knownCodec(model); known != nil {
		return known, nil
	}
	if err := c.beginLearning(ctx, p); err != nil {
		return nil, err
	}
	defer func() { <-c.learning }()
	if known := c.knownCodec(model); known != nil {
		return known, nil
	}
	s := &served{ctx: ctx, c: c, p: p, model: model, texts: map[string]string{}, ids: map[string][]int32{}}
	learned, err := chatml.Learn(s, s)
	switch {
	case s.err != nil:
		return nil, s.err
	case err != nil:
		return nil, c.noExtension(err.Error())
	}
	known := &serverCodec{c: c, model: model, learned: learned}
	c.codec.Store(known)
	return known, nil
}

// knownCodec returns what was learned for a model; nil if nothing was.
func (c *Client) knownCodec(model string) *serverCodec {
	if known := c.codec.Load(); known != nil && known.model == model {
		return known
	}
	return nil
}

// beginLearning waits until no other request learns the codec.
func (c *Client) beginLearning(ctx context.Context, p patience) error {
	select {
	case c.learning <- struct{}{}:
		return nil
	default:
	}
	if p.waiting != nil { // the server may be gone
		defer p.waiting()()
	}
	select {
	case c.learning <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CheckExtends returns an error that wraps [ErrNoExtension] if the server's chat template does not show where a reply
// ends: then nothing tells what follows a sampled one. Other errors are the server's.
func (c *Client) CheckExtends(ctx context.Context) error {
	model, err := c.modelName(ctx)
	if err == nil {
		_, err = c.serverCodec(ctx, c.patience(agent.Request{}), model)
	}
	return err
}

// Stop implements [Codec].
func (s *serverCodec) Stop() []int32 { return s.learned.Stop() }

// Prompt implements [Codec].
func (s *serverCodec) Prompt(ctx context.Context, r agent.Request) ([]int32, error) {
	if err := s.learned.Native(); err != nil && len(r.Tools) > 0 {
		return nil, s.c.noExtension(err.Error())
	}
	if r.Sampled == nil {
		return s.c.tokenize(ctx, s.c.patience(r), newTokenizeBody(s.model, r.Messages, r.Tools, true))
	}
	if r.Fresh < 1 || r.Fresh > len(r.Messages) {
		return nil, errors.New("a request whose fresh messages are not among its messages")
	}
	after, err := s.after(ctx, r)
	if err != nil {
		return nil, err
	}
	ids, err := s.learned.Extend(r, after)
	if errors.Is(err, chatml.ErrNoExtension) {
		err = s.c.noExtension(err.Error())
	}
	return ids, err
}

// after returns the ids that follow the last reply: the end of its message, the fresh messages, and the beginning of
// the next reply.
// The template never gets the reply, because it might write it in another way than the model did. Instead, the
// conversation is rendered twice, with two different short replies: the ids that both end with are those after the
// reply, whatever the template does with thoughts and earlier messages.
func (s *serverCodec) after(ctx context.Context, r agent.Request) ([]int32, error) {
	var both [2][]int32
	for i, word := range []string{"a", "b"} {
		// Templates may check that calls and results belong together.
		reply := chatml.CutOff(r.Messages[r.Fresh-1], word)
		messages := append([]agent.Message{{Role: agent.RoleUser, Content: "u"}, reply}, r.Messages[r.Fresh:]...)
		ids, err := s.c.tokenize(ctx, s.c.patience(r), newTokenizeBody(s.model, messages, r.Tools, true))
		if err != nil {
			return nil, err
		}
		both[i] = ids
	}
	next := commonEnd(both[0], both[1])
	if len(next) == len(both[0]) {
		return nil, s.c.noExtension("the chat template leaves out what a reply says, so that nothing shows where it ends")
	}
	return next, nil
}

// commonEnd returns the longest common suffix of two lists.
func commonEnd(a, b []int32) []int32 {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return a[len(a)-n:]
}

// read reads a reply from its text and ids.
func (s *serverCodec) read(ctx context.Context, text string, ids []int32, r agent.Request) (agent.Message, error) {
	return s.learned.ReplyText(text, ids, r, func(ids []int32) (string, error) {
		return s.c.detokenize(ctx, s.c.patience(r), s.model, ids)
	})
}

// served is the template and the tokenizer of a server while they are learned. It remembers what was asked. After a
// failure that is not the template's (err), answers are empty.
type served struct {
	ctx   context.Context
	c     *Client
	p     patience
	model string
	texts map[string]string  // by what was rendered or decoded
	ids   map[string][]int32 // by text
	err   error
}

// Render implements [chatml.Renderer].
func (s *served) Render(messages []agent.Message, o chatml.Options) (string, error) {
	if s.err != nil {
		return "", s.err
	}
	body := newTokenizeBody(s.model, messages, o.Tools, o.Reply)
	raw, err := json.Marshal(body)
	if text, ok := s.texts[string(raw)]; ok || err != nil {
		return text, err
	}
	ids, err := s.c.tokenize(s.ctx, s.p, body)
	if failed, ok := errors.AsType[*Error](err); ok && failed.Status == http.StatusBadRequest {
		return "", err // the template refuses this conversation
	}
	s.err = err
	text := s.Decode(ids)
	s.texts[string(raw)], s.ids[text] = text, ids
	return text, s.err
}

// Encode implements [chatml.Tokens].
func (s *served) Encode(text string) []int32 {
	ids, ok := s.ids[text]
	if !ok && s.err == nil && text != "" {
		ids, s.err = s.c.encode(s.ctx, s.p, s.model, text)
		s.ids[text] = ids
	}
	return ids
}

// Decode implements [chatml.Tokens].
func (s *served) Decode(ids []int32) string {
	key := fmt.Sprint(ids)
	text, ok := s.texts[key]
	if !ok && s.err == nil && len(ids) > 0 {
		text, s.err = s.c.detokenize(s.ctx, s.p, s.model, ids)
		s.texts[key] = text
	}
	return text
}

// ID implements [chatml.Tokens].
func (s *served) ID(token string) (int32, bool) {
	if ids := s.Encode(token); len(ids) == 1 {
		return ids[0], true
	}
	return 0, false
}

// markLike matches the texts of marks.
var markLike = regexp.MustCompile(`^[<\[\]]\S*\pL\S*[>\[\]]$`)

// Added implements [chatml.Tokens]: those of the known marks that are tokens, and the tokens that look like marks in
// short conversations. The server does not say which of its tokens are marks.
func (s *served) Added() (added []string) {
	specs := chatml.ProbeTools()
	call := agent.ToolCall{ID: "c00000000", Name: specs[0].Name, Arguments: "{}"}
	spoken := []agent.Message{
		{Role: agent.RoleUser, Content: "u"}, {Role: agent.RoleAssistant, Content: "a"},
		{Role: agent.RoleUser, Content: "u"}, {Role: agent.RoleAssistant, ToolCalls: []agent.ToolCall{call}},
		{Role: agent.RoleTool, Content: "r", ToolCallID: call.ID, Name: call.Name},
	}
	marks := chatml.Marks()
	seen := map[int32]bool{}
	for n, o := range map[int]chatml.Options{2: {}, 3: {Reply: true}, 4: {Tools: specs}, 5: {Tools: specs, Reply: true}} {
		text, _ := s.Render(spoken[:n], o) // a template without tools refuses them
		for _, id := range s.ids[text] {
			if !seen[id] {
				marks = append(marks, s.Decode([]int32{id}))
			}
			seen[id] = true
		}
	}
	slices.Sort(marks)
	for _, mark := range slices.Compact(marks) {
		id, single := s.ID(mark)
		if markLike.MatchString(strings.TrimSpace(mark)) && single && slices.Contains(s.Encode("a"+mark+"b"), id) {
			added = append(added, mark)
		}
	}
	return added
}
