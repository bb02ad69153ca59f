package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// chatty is a model that runs the given number of commands and then submits. It writes a summary when asked, reports
// the length of the prompt at four bytes per token, and refuses prompts that exceed the context.
type chatty struct {
	format   Format
	context  int // tokens
	steps    int
	silent   bool // gives no summary
	requests []Request
	asked    int // for summaries
}

func (m *chatty) Complete(_ context.Context, r Request) (Reply, error) {
	m.requests = append(m.requests, r)
	size := sizeOf(r.Messages) / 4
	if m.context > 0 && size > m.context {
		return Reply{}, fmt.Errorf("%d tokens: %w", size, ErrContextOverflow)
	}
	usage := Usage{Prompt: size, Completion: 20}
	last := r.Messages[len(r.Messages)-1]
	if last.Content == adviceSummarize {
		m.asked++
		if m.silent {
			return Reply{Usage: usage}, nil
		}
		return Reply{Message: Message{Content: fmt.Sprintf("<think>hm</think>Summary %d.", m.asked)}, Usage: usage}, nil
	}
	n := m.done(r)
	said := Message{Content: bashCall(fmt.Sprint("step ", n))}
	if m.format.Name() == "tools" {
		said = Message{ToolCalls: []ToolCall{nativeBash(fmt.Sprint("id", n), fmt.Sprint("step ", n))}}
	}
	if n > m.steps {
		said = Message{Content: submission}
	}
	return Reply{Message: said, Usage: usage}, nil
}

// done returns the number of the next step, according to the last result.
func (m *chatty) done(r Request) int {
	n := 0
	for _, message := range r.Messages {
		_, after, ok := strings.Cut(message.Content, "result of step ")
		if ok {
			fmt.Sscan(after, &n)
		}
	}
	return n + 1
}

// longTools return long results.
func longTools() *fakeTools {
	return &fakeTools{run: func(_ context.Context, c tools.Call) (tools.Result, error) {
		r := echo(c)
		if !r.Finished {
			r.Output = "result of " + c.Args["cmd"] + "\n" + strings.Repeat("some output\n", 200)
		}
		return r, nil
	}}
}

func longAgent(m *chatty, c Compaction, limit int) *Agent {
	a := newAgent(m)
	a.Format, a.Tools = m.format, longTools()
	a.Limits = Limits{Context: limit}
	a.Compact = func(Format) Compaction { return c }
	return a
}

// A task many times longer than the context is completed with a strategy, but not without one. No request exceeds the
// context, the task stays at its beginning, and every native call keeps its answer.
func TestLongTasksFit(t *testing.T) {
	t.Parallel()
	for _, f := range formats() {
		for _, c := range []struct {
			strategy Compaction
			steps    int
			want     StopReason
		}{
			{NoCompaction, 40, MaxContext}, {Elide, 40, Submitted}, {Summarize, 80, Submitted},
		} {
			t.Run(fmt.Sprint(f.Name(), " ", c.strategy), func(t *testing.T) {
				m := &chatty{format: f, context: 8000, steps: c.steps}
				out := run(t, longAgent(m, c.strategy, 8000))
				if out.StopReason != c.want || c.want == Submitted && out.Steps != c.steps+1 {
					t.Fatalf("%s after %d steps", out.StopReason, out.Steps)
				}
				compactions := recording(t, out).Compactions
				if (len(compactions) > 0) != (c.strategy != NoCompaction) || (m.asked > 0) != (c.strategy == Summarize) {
					t.Errorf("%d compactions, %d summaries", len(compactions), m.asked)
				}
				first := m.requests[0].Messages
				for i, r := range m.requests {
					if diff := cmp.Diff(first, r.Messages[:len(first)]); diff != "" {
						t.Fatalf("request %d begins otherwise:\n%s", i, diff)
					}
					checkAnswers(t, r.Messages)
				}
				// Most prompts begin like the one before: only a compaction changes what was sent earlier.
				changes := 0
				for i := 1; i < len(m.requests); i++ {
					before, now := m.requests[i-1].Messages, m.requests[i].Messages
					if len(now) < len(before) || !cmp.Equal(before, now[:len(before)]) {
						changes++
					}
				}
				if most := len(compactions) + m.asked; changes > most {
					t.Errorf("%d prompts do not begin as the one before, with %d compactions", changes, most)
				}
				// The record keeps everything.
				for i, turn := range recording(t, out).Turns[:min(c.steps, out.Steps-1)] {
					if got := turn.Observations[0].Message.Content; !strings.Contains(got, fmt.Sprintf("result of step %d\n", i+1)) {
						t.Fatalf("turn %d has lost its result", i+1)
					}
				}
				reread(t, out.Events)
			})
		}
	}
}

// If the context length is unknown or was overestimated, the server's refusal starts a compaction.
func TestCompactionAfterARefusal(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 60_000} {
		m := &chatty{format: Native{}, context: 8000, steps: 30}
		if out := run(t, longAgent(m, Elide, limit)); out.StopReason != Submitted {
			t.Errorf("limit %d: %s after %d steps", limit, out.StopReason, out.Steps)
		}
	}
	// A model that writes no summary does not hang the rollout.
	m := &chatty{format: Native{}, context: 3000, steps: 60, silent: true}
	if out := run(t, longAgent(m, Summarize, 3000)); out.StopReason != MaxContext && out.StopReason != Submitted {
		t.Errorf("%s after %d steps", out.StopReason, out.Steps)
	}
}

// A rollout that is killed at any event and resumed sends exactly what it would have sent.
func TestResumeOfACompactedRollout(t *testing.T) {
	t.Parallel()
	for _, f := range formats() {
		m := &chatty{format: f, context: 6000, steps: 40}
		whole := run(t, longAgent(m, Summarize, 6000))
		if n := len(recording(t, whole).Compactions); n < 3 || m.asked == 0 {
			t.Fatalf("%d compactions, %d summaries: the test is too dull", n, m.asked)
		}
		asked := m.requests
		for n := 5; n < len(whole.Events); n += 3 {
			if whole.Events[n-1].Compaction != nil && whole.Events[n].Compaction != nil {
				continue // killed between eliding and the summary, which may then not be needed
			}
			again := &chatty{format: f, context: 6000, steps: 40}
			a := longAgent(again, Summarize, 6000)
			a.Past = slices.Clone(whole.Events[:n])
			// The model itself has to know how many summaries it has written.
			for _, e := range a.Past {
				if e.Kind == trajectory.KindCompaction && e.Compaction.Summary != "" {
					again.asked++
				}
			}
			out := run(t, a)
			if out.StopReason != Submitted || out.Steps != whole.Steps || out.Usage != whole.Usage {
				t.Fatalf("%s after %d events: %s, %d steps, %+v", f.Name(), n, out.StopReason, out.Steps, out.Usage)
			}
			later := asked[len(asked)-len(again.requests):]
			for i, r := range again.requests {
				if diff := cmp.Diff(later[i].Messages, r.Messages); diff != "" {
					t.Fatalf("%s after %d events: request %d (-whole +resumed):\n%s", f.Name(), n, i, diff)
				}
			}
		}
	}
}
