package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"deepswe/tools"
)

// counting is a model whose server counts one token for every three bytes, as our estimate does, and refuses prompts
// that exceed its context.
func counting(context int, reply func(n int) string) *script {
	return scripted(func(_ ctx, r Request) (Reply, error) {
		b := budget{}
		b.add(r.Messages...)
		b.addTools(r.Tools)
		n := 0
		for _, m := range r.Messages {
			if m.Role == RoleAssistant {
				n++
			}
		}
		content := reply(n)
		if b.prompt()+r.MaxTokens > context {
			return Reply{}, fmt.Errorf("prompt of %d and reply of %d: %w", b.prompt(), r.MaxTokens, ErrContextOverflow)
		}
		return Reply{Message: Message{Content: content}, Usage: Usage{Prompt: b.prompt(),
			Completion: len(content) / bytesPerToken}}, nil
	})
}

type ctx = context.Context

func TestContextBudget(t *testing.T) {
	t.Parallel()
	output := strings.Repeat("0123456789abcdef\n", 60) // about 340 tokens
	m := counting(8000, func(n int) string { return bashCall(fmt.Sprint("echo ", n)) })
	a := newAgent(m)
	a.Limits.Context = 8000
	a.Tools = &fakeTools{run: func(context.Context, tools.Call) (tools.Result,
		error) {
		return tools.Result{Output: output}, nil
	}}
	out := run(t, a)
	if out.StopReason != MaxContext {
		t.Fatalf("ended as %s: %v", out.StopReason, out.Err)
	}
	for i, r := range m.requests {
		if r.MaxTokens < 900 || r.MaxTokens > 8000 {
			t.Errorf("request %d allows %d tokens: the reserve is 1000", i, r.MaxTokens)
		}
		// The allowance shrinks as the conversation grows.
		if i > 0 && r.MaxTokens >= m.requests[i-1].MaxTokens {
			t.Errorf("request %d allows %d tokens, the one before it %d", i, r.MaxTokens, m.requests[i-1].MaxTokens)
		}
	}
	warnings := 0
	for _, msg := range conversation(t, out) {
		if strings.Contains(msg.Content, "context is nearly full") {
			warnings++
		}
	}
	if warnings == 0 {
		t.Error("the model was never told that the context is nearly full")
	}
}

func TestHugeObservationIsShortenedToFit(t *testing.T) {
	t.Parallel()
	m := counting(16_000, func(n int) string {
		if n > 0 {
			return submission
		}
		return bashCall("cat huge")
	})
	a := newAgent(m)
	a.Limits.Context = 16_000
	a.Tools = &fakeTools{run: func(_ context.Context, c tools.Call) (tools.Result, error) {
		if c.Name == "finish" {
			return echo(c), nil
		}
		return tools.Result{Output: "begin " + strings.Repeat("é", 100_000) + " end"}, nil
	}}
	out := run(t, a)
	if out.StopReason != Submitted {
		t.Errorf("ended as %s", out.StopReason)
	}
	told := conversation(t, out)[3].Content
	for _, part := range []string{"begin ", " end", "bytes omitted", "Complete your change", "Steps Remaining"} {
		if !strings.Contains(told, part) {
			t.Errorf("the observation of %d bytes lacks %q", len(told), part)
		}
	}
}

func TestContextFullBeforeTheFirstReply(t *testing.T) {
	t.Parallel()
	m := scripted(says(submission))
	a := newAgent(m)
	a.Limits.Context = 30
	if out := run(t, a); out.StopReason != MaxContext || len(m.requests) > 0 {
		t.Errorf("%s after %d requests", out.StopReason, len(m.requests))
	}
}

func TestOwnBoundOnRepliesIsGivenUp(t *testing.T) {
	t.Parallel()
	refuse := func(err error, limit int) *script {
		return scripted(func(_ context.Context, r Request) (Reply, error) {
			if r.MaxTokens > limit {
				return Reply{}, err
			}
			return Reply{Message: Message{Content: submission}}, nil
		})
	}
	hosted := errors.New("400: max_tokens is too large: 65000. This model supports at most 16384 completion tokens")
	overflow := fmt.Errorf("400: %w", ErrContextOverflow)
	for _, err := range []error{hosted, overflow} {
		m := refuse(err, 0)
		a := newAgent(m)
		a.Limits.Context = 65536
		if out := run(t, a); out.StopReason != Submitted || len(m.requests) != 2 {
			t.Errorf("%v: %s after %d requests", err, out.StopReason, len(m.requests))
		}
		m = refuse(err, 100)
		a = newAgent(m)
		a.Limits.ReplyTokens = 4096 // a limit that the user asked for is not given up
		if out := run(t, a); out.StopReason == Submitted || len(m.requests) != 1 {
			t.Errorf("%v: %s after %d requests", err, out.StopReason, len(m.requests))
		}
	}
}

func TestServersThatForgetCachedTokensAreNotBelieved(t *testing.T) {
	t.Parallel()
	b := budget{context: 1000}
	b.replied(Reply{Usage: Usage{Prompt: 800, Completion: 10}})
	b.replied(Reply{Usage: Usage{Prompt: 15, Completion: 20}})
	if got := b.prompt(); got < 820 {
		t.Errorf("the conversation shrank to %d tokens", got)
	}
}

func TestShorten(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "x", strings.Repeat("é", 1000), strings.Repeat("ab\n", 1000)} {
		for most := smallestBody; most < 2000; most += 37 {
			got := shorten(s, most)
			if len(got) > most || len(s) <= most && got != s {
				t.Fatalf("%d bytes shortened to %d, allowed %d", len(s), len(got), most)
			}
		}
	}
}
