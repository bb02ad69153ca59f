package llm_test

import (
	"cmp"
	"context"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// noSandbox is a sandbox for calls that [sameResult] does not run.
type noSandbox struct{ tools.Sandbox }

func (noSandbox) Dir() string { return "/testbed" }

// sameResult has the real tools with made-up results.
type sameResult struct{ *tools.Set }

func (sameResult) Run(_ context.Context, _ tools.Sandbox, c tools.Call) (tools.Result, error) {
	return tools.Result{
		Output: "a.py\nnaïve ﬁle 12345\n\n  <b>\t" + c.Args["cmd"], Finished: c.Name == "finish",
	}, nil
}

// liveRows adds up the results of TestLiveRows.
type liveRows struct {
	turns, rows, tokens, thoughts, ends, broken, unlike atomic.Int64
	// most is the largest difference of two scorings.
	most float64

	mu     sync.Mutex
	checks []func()
}

// TestLiveRows plays rollouts in tokens with a real vLLM, which DEEPSWE_TEST_ENDPOINT names. Each must become one row
// that differs from the chat template's rendering only in dropped thoughts, and whose logprobs the server confirms.
// DEEPSWE_TEST_ROLLOUTS is their number, and DEEPSWE_TEST_FORMAT is xml or tools.
func TestLiveRows(t *testing.T) {
	url := os.Getenv("DEEPSWE_TEST_ENDPOINT")
	if url == "" || os.Getenv("DEEPSWE_TEST_ROLLOUTS") == "" {
		t.Skip("set DEEPSWE_TEST_ENDPOINT to the base URL of a vLLM, and DEEPSWE_TEST_ROLLOUTS")
	}
	rollouts, err := strconv.Atoi(os.Getenv("DEEPSWE_TEST_ROLLOUTS"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := llm.New(llm.Options{BaseURL: url, Model: os.Getenv("DEEPSWE_MODEL"), Continue: llm.Extend})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	if err := c.Vet(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	format, ok := agent.FormatNamed(cmp.Or(os.Getenv("DEEPSWE_TEST_FORMAT"), trajectory.FormatXML))
	if !ok {
		t.Fatal("DEEPSWE_TEST_FORMAT: want xml or tools")
	}
	var found liveRows
	var all errgroup.Group
	all.SetLimit(8)
	for range rollouts {
		all.Go(func() error {
			found.play(t, c, format)
			return nil
		})
	}
	_ = all.Wait()
	// One at a time: vLLM 0.32 with LoRA on a CPU crashes if a prompt is scored beside others.
	for _, check := range found.checks {
		check()
	}
	t.Logf("%s: %d rollouts, %d turns, %d rows, %d tokens sampled; %d thoughts kept that the template drops, "+
		"%d rollouts with replies whose texts do not tell how they end, %d with calls that no template can write, "+
		"%d not as the template has them otherwise; largest difference of two scorings %.2g",
		format.Name(), rollouts, found.turns.Load(), found.rows.Load(),
		found.tokens.Load(), found.thoughts.Load(), found.ends.Load(), found.broken.Load(), found.unlike.Load(), found.most)
	if found.rows.Load() != int64(rollouts) || found.unlike.Load() > 0 || found.most > 1e-3 {
		t.Error("rows are not what was sampled")
	}
}

// play plays one rollout and checks its row.
func (l *liveRows) play(t *testing.T, c *llm.Client, format agent.Format) {
	sampling := agent.OnPolicy(new(1.0))
	set := tools.New(tools.Options{})
	a := agent.Agent{
		Settings: agent.Settings{
			Model: c, ModelName: "m", Format: format, Sampling: sampling, Tokens: true,
			Limits: agent.Limits{Steps: 10, Context: 12000, ReplyTokens: 300, FormatErrors: -1, Repeats: -1},
			Prompt: func(agent.Opening) ([]agent.Message, error) {
				return []agent.Message{
					{Role: agent.RoleSystem, Content: "You fix issues."}, {Role: agent.RoleUser, Content: "Fix it.\n\n<b>né</b>"},
				}, nil
			},
		},
		Tools: sameResult{set},
	}
	out, err := a.Run(t.Context(), noSandbox{}, agent.Issue{ID: "x"})
	if err != nil || out.Err != nil {
		t.Error(err, out.Err)
		return
	}
	rec, err := trajectory.Record(out.Events)
	if err != nil {
		t.Error(err)
		return
	}
	samples, ok := rec.Samples()
	if !ok {
		t.Error("a reply has no tokens")
		return
	}
	l.turns.Add(int64(len(samples)))
	l.rows.Add(1)
	for i := 1; i < len(samples); i++ {
		if !extends(&samples[i-1], &samples[i]) {
			l.rows.Add(1)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checks = append(l.checks, func() {
		l.confirm(t, c, samples)
		l.compare(t, c, format.Offer(set.Specs()), rec.Messages, samples[len(samples)-1])
	})
}

// confirm has the server score the row again.
func (l *liveRows) confirm(t *testing.T, c *llm.Client, samples []agent.Sample) {
	last := samples[len(samples)-1]
	again, err := c.Score(t.Context(), slices.Concat(last.PromptIDs, last.CompletionIDs))
	if err != nil {
		t.Error(err)
		return
	}
	for _, s := range samples {
		for k, logprob := range s.Logprobs {
			l.most = max(l.most, math.Abs(again[len(s.PromptIDs)+k-1]-logprob))
		}
		l.tokens.Add(int64(len(s.Logprobs)))
	}
}

// thought matches what Qwen3's template removes from a message: everything up to the last </think>, and the line breaks
// after it.
var thought = regexp.MustCompile(`(?s)^(<\|im_start\|>assistant\n)(.*</think>)?\n*`)

// compare compares a row with the template's rendering of the same messages.
func (l *liveRows) compare(
	t *testing.T, c *llm.Client, specs []tools.Spec, messages []agent.Message, last agent.Sample,
) {
	for messages[len(messages)-1].Role != agent.RoleAssistant {
		messages = messages[:len(messages)-1]
	}
	ids, err := c.Rendered(t.Context(), messages, specs)
	if err != nil {
		t.Error(err)
		return
	}
	var texts [2]string
	for i, list := range [][]int32{ids, slices.Concat(last.PromptIDs, last.CompletionIDs)} {
		if texts[i], err = c.Text(t.Context(), list); err != nil {
			t.Error(err)
			return
		}
	}
	template, inTemplate := withoutThoughts(texts[0])
	calls := strings.Count(texts[1], "\n</tool_call>")
	if strings.Contains(template, `"invalid_arguments"`) || calls != len(callEnd.FindAllString(texts[1], -1)) {
		l.broken.Add(1)
		return
	}
	row, inRow := withoutThoughts(texts[1] + "\n")
	l.thoughts.Add(int64(max(inRow-inTemplate, 0)))
	if template != row {
		template, row = ending.ReplaceAllString(template, ""), ending.ReplaceAllString(row, "")
		l.ends.Add(1)
	}
	if template != row {
		if l.unlike.Add(1) == 1 {
			at := 0
			for at < min(len(template), len(row)) && template[at] == row[at] {
				at++
			}
			near := func(s string) string { return s[max(at-100, 0):min(at+100, len(s))] }
			t.Errorf("at %d the template has\n%q\nand the row\n%q", at, near(template), near(row))
		}
	}
}

// ending matches the ends of replies that cannot be recovered from their text: a random model may stop within a
// character, with either end token or, at the end of a row, with none.
var ending = regexp.MustCompile(`\x{fffd}*(<\|endoftext\|>)?(<\|im_end\|>\n|\n\z)`)

// callEnd matches the end of a tool call where a template can write it: before another call, or at the end of a
// message.
var callEnd = regexp.MustCompile(`\n</tool_call>(\n<tool_call>|<\|im_end\|>|$)`)

// withoutThoughts removes and counts the thoughts in a rendered conversation. It goes message by message, because a
// random model leaves some thoughts open.
func withoutThoughts(rendered string) (string, int) {
	thoughts := 0
	messages := strings.SplitAfter(rendered, "<|im_end|>\n")
	for i, m := range messages {
		messages[i] = thought.ReplaceAllString(m, "$1")
		if strings.Contains(m, "</think>") {
			thoughts++
		}
	}
	return strings.Join(messages, ""), thoughts
}
