package foreign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"deepswe/agent"
)

// gateway answers the calls of one rollout's agent.
type gateway struct {
	*agent.Agent
	recipe Recipe
	issue  agent.Issue
	dir    string
	// life is the rollout's context, and end cancels it. Sampling goes on after the connection of the request has ended,
	// because a repeated request gets the answer.
	life context.Context
	end  context.CancelCauseFunc
	// waiting pauses the rollout's clock.
	waiting func() (over func())
	now     func() time.Time
	work    sync.WaitGroup // calls of the model

	mu   sync.Mutex
	tree *tree
	past map[string][]agent.Reply // recorded earlier and not asked for yet, by their prompts
	out  agent.Outcome
	// offered is the key of the tools that the record's header has.
	offered key
	// calls counts the calls that were or are being answered, again the requests that repeat another, strange those
	// without the key, and dropped what was asked for and cannot be honoured.
	calls, again, strange, dropped int
	refusals, repeats              int // in a row
	// over is why the agent was last refused an answer; empty if it was answered since.
	over agent.StopReason
}

// The reasons to end an agent before it ends by itself.
var (
	errModel   = errors.New("the model failed")
	errRecord  = errors.New("the record failed")
	errRefused = errors.New("the agent goes on after its limit")
)

// A refused agent may make mostRefusals further requests and, at the limit on calls, has grace left to end by itself.
// It may repeat a request mostRefusals times before it is refused.
const (
	mostRefusals = 50
	grace        = time.Minute
)

// refusal is the reason why a request gets no answer. Each dialect has its own words for it.
type refusal struct {
	reason agent.StopReason // MaxSteps, MaxContext, Stuck or ModelError; empty for an invalid request
	text   string
	// tokens is the length of the prompt, if that is known; context is the maximum.
	tokens, context int
	streamed        bool // a stream was asked for
}

func (r *refusal) Error() string { return r.text }

// beginCall starts to answer a request, and returns the call that will have the answer.
func (g *gateway) beginCall(r request) *call {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dropped += r.dropped
	c := g.tree.place(r)
	if before := g.tree.again(c); before != nil {
		g.again++
		if g.repeats++; g.repeats <= mostRefusals {
			return before
		}
	}
	if refused := g.limit(c); refused != nil {
		c.err = refused
		close(c.done)
		return c
	}
	g.tree.beginCall(c)
	g.calls++
	g.repeats = 0
	g.work.Go(func() { g.answer(c) })
	return c
}

// limit returns why a call is refused, or nil.
func (g *gateway) limit(c *call) *refusal {
	steps, tokens := cmp.Or(g.Limits.Steps, 100), c.tokens()
	switch {
	case g.life.Err() != nil:
		return &refusal{reason: agent.ModelError, text: "the rollout is over"}
	case g.repeats > mostRefusals:
		return g.refuse(&refusal{reason: agent.Stuck, text: "the same request was repeated too often"})
	case steps > 0 && g.calls >= steps:
		return g.refuse(&refusal{reason: agent.MaxSteps, text: fmt.Sprintf("the limit of %d calls is reached", steps)})
	case g.Limits.Context > 0 && tokens >= g.Limits.Context:
		return g.refuse(full(tokens, g.Limits.Context))
	}
	return nil
}

func full(tokens, context int) *refusal {
	return &refusal{reason: agent.MaxContext, text: "the conversation is too long", tokens: tokens, context: context}
}

// refuse notes a refusal. An agent that goes on all the same is ended. The caller holds g.mu.
func (g *gateway) refuse(r *refusal) *refusal {
	g.over = r.reason
	if g.refusals++; g.refusals > mostRefusals {
		g.end(errRefused)
	}
	if r.reason == agent.MaxSteps && g.refusals == 1 {
		timer := time.AfterFunc(grace, func() { g.end(errRefused) })
		context.AfterFunc(g.life, func() { timer.Stop() })
	}
	return r
}

// tokens returns the approximate length of the prompt: what is not known from an earlier call is estimated.
func (c *call) tokens() int {
	known, bytes := 0, 0
	if c.after != nil && c.after.tokens > 0 {
		known = c.after.tokens
	} else {
		for _, t := range c.tools {
			bytes += len(t.Name) + len(t.Description) + len(t.Parameters)
		}
		for _, m := range c.messages[:len(c.messages)-len(c.fresh)] {
			bytes += size(m)
		}
	}
	for _, m := range c.fresh {
		bytes += size(m)
	}
	const bytesPerToken = 4
	return known + bytes/bytesPerToken
}

func size(m agent.Message) int {
	n := len(m.Content) + len(m.Reasoning)
	for _, c := range m.ToolCalls {
		n += len(c.Name) + len(c.Arguments)
	}
	return n
}

// answer gets the answer to a call and records it.
func (g *gateway) answer(c *call) {
	g.mu.Lock()
	answer, known := g.recall(c)
	g.mu.Unlock()
	var err error
	if !known {
		answer, err = g.ask(c)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	defer close(c.done)
	if err == nil {
		answer.Message.Role = agent.RoleAssistant
		c.name(&answer.Message)
		if err = g.record(c, &answer); err != nil {
			g.out.Err = err
			g.end(errRecord)
		}
	}
	if err != nil {
		g.calls--
		g.tree.fail(c)
		c.err = g.failed(c, err)
		return
	}
	g.over, g.refusals = "", 0
	c.answer = answer
}

// recall returns the answer to a call that was recorded when the rollout was played before.
func (g *gateway) recall(c *call) (agent.Reply, bool) {
	prompt := c.prompt()
	known := g.past[prompt]
	if len(known) == 0 {
		return agent.Reply{}, false
	}
	g.past[prompt] = known[1:]
	return known[0], true
}

// ask asks the model.
func (g *gateway) ask(c *call) (agent.Reply, error) {
	r := agent.Request{
		Messages: c.path, Tools: c.tools, Sampling: g.Sampling, Tokens: g.Tokens, Waiting: g.waiting, Dir: g.dir,
		MaxTokens: g.replyTokens(c),
	}
	if c.after != nil && c.after.sample != nil {
		r.Sampled, r.Fresh = c.after.sample, len(c.path)-len(c.fresh)
	}
	if !g.Tokens {
		r.OnText = func(string) {} // streamed, because proxies before the endpoint cut silent connections
	}
	start := g.now()
	reply, err := g.Model.Complete(g.life, r)
	if errors.Is(err, agent.ErrContextOverflow) && g.life.Err() == nil && r.MaxTokens != g.Limits.ReplyTokens {
		r.MaxTokens = g.Limits.ReplyTokens // perhaps only prompt and limit together are too long
		reply, err = g.Model.Complete(g.life, r)
	}
	reply.Elapsed = cmp.Or(reply.Elapsed, g.now().Sub(start))
	return reply, err
}

// replyTokens is the limit on a reply: the agent's, the run's and what is left of the context, whichever is least.
func (g *gateway) replyTokens(c *call) int {
	limit := 0
	left := 0
	if g.Limits.Context > 0 {
		left = max(g.Limits.Context-c.tokens(), 1)
	}
	for _, n := range []int{c.maxTokens, g.Limits.ReplyTokens, left} {
		if n > 0 && (limit == 0 || n < limit) {
			limit = n
		}
	}
	return limit
}

// failed returns what an agent is told about a failure. The caller holds g.mu.
func (g *gateway) failed(c *call, err error) error {
	switch {
	case errors.Is(err, agent.ErrContextOverflow):
		context := cmp.Or(g.Limits.Context, c.tokens())
		return g.refuse(full(max(c.tokens(), context+1), context))
	case g.life.Err() == nil:
		g.out.Err = fmt.Errorf("call %d: %w", g.calls+1, err)
		g.end(errModel)
	}
	return &refusal{reason: agent.ModelError, text: "the model does not answer"}
}

// know keeps an answer that was recorded earlier, for recall.
func (g *gateway) know(r agent.Reply) {
	if r.Prompt != "" {
		g.past[r.Prompt] = append(g.past[r.Prompt], r)
	}
}
