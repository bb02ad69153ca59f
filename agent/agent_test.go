package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"deepswe/env"
	"deepswe/tools"
)

func TestRunToSubmission(t *testing.T) {
	t.Parallel()
	a := newAgent(scripted(bash("ls"), says(submission)))
	a.Limits.Steps = 5
	out := run(t, a)
	if out.StopReason != Submitted || out.Answer != "fixed" || out.Steps != 2 || out.FormatErrors != 0 {
		t.Errorf("outcome %s %q after %d steps with %d format errors", out.StopReason, out.Answer, out.Steps,
			out.FormatErrors)
	}
	want := []Message{
		{Role: RoleSystem, Content: "You fix issues in /testbed and answer in xml."},
		{Role: RoleUser, Content: "It is broken.\nSteps Remaining: 5"},
		{Role: RoleAssistant, Content: bashCall("ls")},
		{Role: RoleUser, Content: "Exit code: 0\nExecution output of [execute_bash]:\nls\nSteps Remaining: 4"},
		{Role: RoleAssistant, Content: submission},
		{Role: RoleUser, Content: "Execution output of [finish]:\nSubmitted."},
	}
	if diff := cmp.Diff(want, conversation(t, out)); diff != "" {
		t.Errorf("conversation (-want +got):\n%s", diff)
	}
}

func TestRunNativeCallsInOrder(t *testing.T) {
	t.Parallel()
	var many []ToolCall
	for i := range MaxCalls + 1 {
		many = append(many, nativeBash(fmt.Sprint("call_", i), fmt.Sprint("echo ", i)))
	}
	a := newAgent(scripted(
		calls(many...),
		calls(nativeBash("a", "x"), ToolCall{ID: "b", Name: "nonesuch", Arguments: "{}"},
			ToolCall{ID: "", Name: "search", Arguments: `{"path": `}),
		calls(nativeBash("same", "1"), nativeBash("same", "2")),
		calls(nativeSubmit, nativeBash("z", "rm -rf .")),
	))
	a.Format = Native{}
	out := run(t, a)
	if out.StopReason != Submitted {
		t.Errorf("ended as %s", out.StopReason)
	}
	var ran []string
	for _, c := range a.Tools.(*fakeTools).ran {
		ran = append(ran, c.Args["cmd"])
	}
	want := []string{"echo 0", "echo 1", "echo 2", "echo 3", "echo 4", "echo 5", "echo 6", "echo 7", "x", "1", "2", ""}
	if diff := cmp.Diff(want, ran); diff != "" {
		t.Errorf("ran (-want +got):\n%s", diff)
	}
	answers := map[string]string{}
	for _, m := range conversation(t, out) {
		if m.Role == RoleTool {
			answers[m.ToolCallID] = m.Content
		}
	}
	contains(t, answers["call_8"], "not run")
	contains(t, answers["b"], "file_editor, search, execute_bash, finish")
	contains(t, answers[""], "unexpected end of JSON")
	contains(t, answers["z"], "not run")
}

func TestNativeFormatReadsCallsFromTheText(t *testing.T) {
	t.Parallel()
	a := newAgent(scripted(bash("ls"), says(submission)))
	a.Format = Native{}
	if out := run(t, a); out.StopReason != Submitted || conversation(t, out)[3].Role != RoleUser {
		t.Errorf("ended as %s, the first call was answered by %+v", out.StopReason, conversation(t, out)[3])
	}
}

func TestGoodCallForgivesFormatErrors(t *testing.T) {
	t.Parallel()
	wrong := says("Hm.")
	out := run(t, newAgent(scripted(wrong, wrong, bash("ls"), wrong, wrong, bash("ls -l"), says(submission))))
	if out.StopReason != Submitted || out.FormatErrors != 4 {
		t.Errorf("%s with %d format errors", out.StopReason, out.FormatErrors)
	}
}

func TestStopReasons(t *testing.T) {
	t.Parallel()
	counter := func() answering {
		n := 0
		return func(context.Context, Request) (Reply, error) {
			n++
			return Reply{Message: Message{Content: bashCall(fmt.Sprint("echo ", n))}}, nil
		}
	}
	broken := func(context.Context, tools.Call) (tools.Result, error) {
		return tools.Result{}, fmt.Errorf("read: %w", env.ErrInfrastructure)
	}
	tests := []struct {
		name   string
		model  *script
		change func(a *Agent)
		want   StopReason
		steps  int
	}{
		{"steps", scripted(counter()), func(a *Agent) { a.Limits.Steps = 7 }, MaxSteps, 7},
		{"the same over and over", scripted(bash("ls")), nil, Stuck, 5},
		{"to and fro", scripted(func(_ context.Context, r Request) (Reply, error) {
			return Reply{Message: Message{Content: bashCall(fmt.Sprint(len(r.Messages) / 2 % 2))}}, nil
		}), nil, Stuck, 10},
		{"repetition allowed", scripted(bash("ls")), func(a *Agent) { a.Limits.Repeats = -1 }, MaxSteps, 100},
		{"full at the server", scripted(counter(), fails(fmt.Errorf("400: %w", ErrContextOverflow))), nil, MaxContext, 1},
		{"endpoint", scripted(bash("ls"), fails(ErrModelUnavailable)), nil, ModelError, 1},
		{"recording", scripted(fails(ErrReplayExhausted)), nil, ModelError, 0},
		{"sandbox", scripted(bash("ls")), func(a *Agent) { a.Tools = &fakeTools{run: broken} }, SandboxError, 1},
		{"exhausted", scripted(bash("ls")), func(a *Agent) {
			a.Tools = &fakeTools{run: func(context.Context, tools.Call) (tools.Result, error) {
				return tools.Result{}, fmt.Errorf("%w: %w", env.ErrInfrastructure, env.ErrExhausted)
			}}
		}, Exhausted, 1},
		{"prompt", scripted(bash("ls")), func(a *Agent) {
			a.Prompt = func(Opening) ([]Message, error) { return nil, errDisk }
		}, SandboxError, 0},
		{"empty prompt", scripted(bash("ls")), func(a *Agent) {
			a.Prompt = func(Opening) ([]Message, error) { return nil, nil }
		}, SandboxError, 0},
		{"a tool that panics", scripted(bash("ls")), func(a *Agent) {
			a.Tools = &fakeTools{run: func(context.Context, tools.Call) (tools.Result, error) { panic("a defect") }}
		}, SandboxError, 1},
		{"a model that panics", scripted(func(context.Context, Request) (Reply, error) { panic("a defect") }), nil,
			SandboxError, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newAgent(tt.model)
			if tt.change != nil {
				tt.change(a)
			}
			out := run(t, a)
			if out.StopReason != tt.want || out.Steps != tt.steps {
				t.Errorf("%s after %d steps (%v), want %s after %d", out.StopReason, out.Steps, out.Err, tt.want, tt.steps)
			}
			if failed := tt.want == ModelError || tt.want == SandboxError; failed != (out.Err != nil) {
				t.Errorf("%s with the error %v", out.StopReason, out.Err)
			}
		})
	}
}

func TestRecorderFailureEndsTheRollout(t *testing.T) {
	t.Parallel()
	for n := range 6 {
		a := newAgent(scripted(bash("ls"), bash("pwd"), says(submission)))
		a.Record = &failingRecorder{n: n}
		out, err := a.Run(t.Context(), nowhere{}, issue)
		if out.StopReason != SandboxError || !errors.Is(err, errDisk) {
			t.Errorf("at event %d: %s, %v", n, out.StopReason, err)
		}
		// Nothing of a reply runs before the reply is recorded.
		if ran := len(a.Tools.(*fakeTools).ran); n < 4 && ran > 0 {
			t.Errorf("at event %d: %d calls ran", n, ran)
		}
	}
}

func TestWarningBeforeStuck(t *testing.T) {
	t.Parallel()
	out := run(t, newAgent(scripted(bash("ls"), bash("ls"), bash("ls"), says(submission))))
	contains(t, conversation(t, out)[7].Content, "same result 3 times")
	if strings.Contains(conversation(t, out)[5].Content, "times in a row") {
		t.Errorf("warned too early: %q", conversation(t, out)[5].Content)
	}
}

func TestDurationsDoNotHideACircle(t *testing.T) {
	t.Parallel()
	n := 0
	a := newAgent(scripted(bash("pytest")))
	a.Tools = &fakeTools{run: func(context.Context, tools.Call) (tools.Result, error) {
		n++
		return tools.Result{Output: fmt.Sprintf("1 failed in 0.%02ds", n)}, nil
	}}
	if out := run(t, a); out.StopReason != Stuck {
		t.Errorf("ended as %s", out.StopReason)
	}
}

func TestLastStepIsAnnounced(t *testing.T) {
	t.Parallel()
	a := newAgent(scripted(bash("1"), bash("2"), bash("3")))
	a.Limits.Steps = 3
	out := run(t, a)
	contains(t, conversation(t, out)[5].Content, "\nSteps Remaining: 1\n")
	contains(t, conversation(t, out)[5].Content, "call finish now")
	if last := lastObservation(conversation(t, out)); strings.Contains(last, "Steps Remaining") {
		t.Errorf("a step that never comes is announced: %q", last)
	}
}

func TestObservationHeadings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		result tools.Result
		want   string
	}{
		{tools.Result{Output: "x", ExitCode: new(0)}, "Exit code: 0\nExecution output of [execute_bash]:\nx"},
		{tools.Result{Output: "x", ExitCode: new(2)},
			"Exit code: Error: Exit code 2\nExecution output of [execute_bash]:\nx"},
		{tools.Result{Output: "x", ExitCode: new(143), TimedOut: true},
			"Exit code: -1\nExecution output of [execute_bash]:\nx"},
		{tools.Result{Output: "Exit code: 2\n[STDOUT]\nx", ExitCode: new(2)},
			"Exit code: Error: Exit code 2\nExecution output of [execute_bash]:\n[STDOUT]\nx"},
		{tools.Result{Output: ""}, "Execution output of [execute_bash]:\n"},
	}
	for _, tt := range tests {
		d := callResult{action: Action{Call: tools.Call{Name: "execute_bash"}}, result: tt.result}
		if got := d.observation(XML{}); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestModelIsToldUTF8(t *testing.T) {
	t.Parallel()
	a := newAgent(scripted(bash("cat binary"), says("<function=\xff></function>"), says(submission)))
	a.Tools = &fakeTools{run: func(_ context.Context, c tools.Call) (tools.Result, error) {
		r := echo(c)
		r.Output += "a\xffb"
		return r, nil
	}}
	out := run(t, a)
	contains(t, conversation(t, out)[3].Content, "a\uFFFDb")
	for _, m := range conversation(t, out) {
		if m.Role == RoleUser && !utf8.ValidString(m.Content) {
			t.Errorf("not UTF-8: %q", m.Content)
		}
	}
}

func TestWallClock(t *testing.T) {
	t.Parallel()
	tests := map[string]*Agent{
		"model": newAgent(scripted(blocks)),
		"tool":  newAgent(scripted(bash("sleep 1h"))),
		"both":  newAgent(scripted(bash("sleep 1m"))),
	}
	n := 0
	tests["tool"].Tools = &fakeTools{run: func(ctx context.Context, _ tools.Call) (tools.Result, error) {
		<-ctx.Done()
		return tools.Result{}, ctx.Err()
	}}
	tests["both"].Tools = &fakeTools{run: func(context.Context, tools.Call) (tools.Result, error) {
		time.Sleep(time.Minute)
		n++
		return tools.Result{Output: fmt.Sprint(n)}, nil
	}}
	for name, a := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a.Limits.Wall = 10*time.Minute + time.Second
				out := run(t, a)
				if out.StopReason != Timeout || out.Err != nil {
					t.Errorf("%s, %v", out.StopReason, out.Err)
				}
				if out.Elapsed < a.Limits.Wall || out.Elapsed > a.Limits.Wall+time.Minute {
					t.Errorf("it took %v", out.Elapsed)
				}
			})
		})
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]*Agent{"model": newAgent(scripted(blocks)), "before": newAgent(scripted(blocks))} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				if name == "before" {
					cancel()
				}
				time.AfterFunc(time.Second, cancel)
				a.Limits.Wall = time.Hour
				out, err := a.Run(ctx, nowhere{}, issue)
				if out.StopReason != Interrupted || err != nil {
					t.Errorf("%s, %v", out.StopReason, err)
				}
				checkOutcome(t, a, out)
			})
		})
	}
}

func TestTimesAreSplit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(scripted(func(context.Context, Request) (Reply, error) {
			time.Sleep(3 * time.Second)
			return Reply{Message: Message{Content: submission}}, nil
		}))
		a.Tools = &fakeTools{run: func(_ context.Context, c tools.Call) (tools.Result, error) {
			time.Sleep(time.Second)
			return echo(c), nil
		}}
		out := run(t, a)
		if out.ModelTime != 3*time.Second || out.ToolTime != time.Second || out.Elapsed != 4*time.Second {
			t.Errorf("model %v, tools %v, all %v", out.ModelTime, out.ToolTime, out.Elapsed)
		}
	})
}

func TestEventsTellTheStory(t *testing.T) {
	t.Parallel()
	a := newAgent(scripted(func(_ context.Context, r Request) (Reply, error) {
		r.OnText("I ")
		r.OnText("look.")
		return Reply{Message: Message{Content: bashCall("ls")}}, nil
	}, says("Hm."), says(submission)))
	a.Stream = true
	var story []string
	a.OnEvent = func(e Event) { story = append(story, fmt.Sprintf("%d %s", e.Step, e.Kind)) }
	run(t, a)
	want := []string{
		"0 start", "1 step", "1 text", "1 text", "1 reply", "1 call", "1 result",
		"2 step", "2 reply", "2 problem", "3 step", "3 reply", "3 call", "3 result", "3 stop",
	}
	if diff := cmp.Diff(want, story); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestEveryRolloutEnds(t *testing.T) {
	t.Parallel()
	reply := rapid.OneOf(
		rapid.Just(bashCall("ls")), rapid.Just(submission+" "), rapid.Just(""), rapid.Just("<think>"), rapid.String(),
		rapid.Map(rapid.IntRange(0, 3), func(n int) string { return bashCall(fmt.Sprint(n)) }),
	)
	native := rapid.Custom(func(t *rapid.T) []ToolCall {
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ToolCall {
			return ToolCall{
				ID:        rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "id"),
				Name:      rapid.SampledFrom([]string{"execute_bash", "search", "finish", "x"}).Draw(t, "name"),
				Arguments: rapid.SampledFrom([]string{`{"cmd":"ls"}`, `{}`, `{`, ``, `null`, `{"cmd":null}`}).Draw(t, "arguments"),
			}
		}), 0, 3).Draw(t, "calls")
	})
	rapid.Check(t, func(rt *rapid.T) {
		m := scripted(func(context.Context, Request) (Reply, error) {
			r := Reply{Message: Message{Content: reply.Draw(rt, "content"), ToolCalls: native.Draw(rt, "calls")}}
			r.FinishReason = rapid.SampledFrom([]string{"stop", "length", ""}).Draw(rt, "finish")
			r.Usage = Usage{Prompt: rapid.IntRange(0, 3000).Draw(rt, "prompt")}
			return r, nil
		})
		a := newAgent(m)
		a.Format = rapid.SampledFrom([]Format{XML{}, Native{}}).Draw(rt, "format")
		a.Limits = Limits{Steps: 12, Context: rapid.SampledFrom([]int{0, 2000, 4000}).Draw(rt, "context")}
		out, err := a.Run(context.Background(), nowhere{}, issue)
		if err != nil {
			rt.Fatal(err)
		}
		checkOutcome(t, a, out)
		document(t, out.Events)
	})
}
