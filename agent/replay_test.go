package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// recorded plays a rollout with a bit of everything: token ids, reasoning, a format error, native calls.
func recorded(t *testing.T, f Format) (Outcome, []answering) {
	t.Helper()
	answers := []answering{
		func(context.Context, Request) (Reply, error) {
			return Reply{
				Message: Message{Content: bashCall("cat /testbed/a.py"), Reasoning: "First I look."},
				Usage:   Usage{Prompt: 10, Completion: 3},
				Tokens:  &Sample{PromptIDs: []int32{1, 2, 3}, CompletionIDs: []int32{4, 5}, Logprobs: []float64{-0.5, -0.25}},
				Model:   "m@7",
			}, nil
		},
		says("Hm."),
		bash("pwd"),
		says(submission),
	}
	if f.Name() == "tools" {
		answers = []answering{
			calls(nativeBash("a", "cat /testbed/a.py"), ToolCall{ID: "b", Name: "execute_bash", Arguments: "{"},
				nativeBash("c", "pwd")),
			calls(nativeBash("a", "ls"), nativeBash("a", "ls -l")),
			says("Hm."),
			calls(nativeSubmit),
		}
	}
	a := newAgent(scripted(answers...))
	a.Format = f
	a.Limits.Steps = 9
	return run(t, a), answers
}

func formats() []Format { return []Format{XML{}, Native{}} }

func TestResumeFromEveryEvent(t *testing.T) {
	t.Parallel()
	for _, f := range formats() {
		whole, answers := recorded(t, f)
		for n := 1; n <= len(whole.Events); n++ {
			t.Run(fmt.Sprintf("%s after %d events", f.Name(), n), func(t *testing.T) {
				a := newAgent(scripted(answers...))
				a.Format = f
				a.Limits.Steps = 9
				a.Past = whole.Events[:n]
				out := run(t, a)
				if out.StopReason != Submitted || out.Steps != whole.Steps || out.FormatErrors != whole.FormatErrors {
					t.Errorf("%s after %d steps, %d of them wrong", out.StopReason, out.Steps, out.FormatErrors)
				}
				if diff := cmp.Diff(conversation(t, whole), conversation(t, out)); diff != "" {
					t.Errorf("conversation (-whole +resumed):\n%s", diff)
				}
				if diff := cmp.Diff(samples(t, whole), samples(t, out)); diff != "" {
					t.Errorf("tokens (-whole +resumed):\n%s", diff)
				}
				// The sandbox is new, so every call must have run in it.
				if ran := len(a.Tools.(*fakeTools).ran); ran < 3 {
					t.Errorf("%d calls ran", ran)
				}
			})
		}
	}
}

func TestResumeKeepsWhatTheModelWasTold(t *testing.T) {
	t.Parallel()
	whole, answers := recorded(t, XML{})
	a := newAgent(scripted(answers...))
	a.Past = whole.Events[:5] // up to the first observation
	a.Limits.Steps = 9
	a.Tools = &fakeTools{run: func(_ context.Context, c tools.Call) (tools.Result, error) {
		r := echo(c)
		r.Output = strings.Replace(r.Output, "cat", "dog", 1)
		return r, nil
	}}
	var differences []Event
	a.OnEvent = func(e Event) {
		if e.Kind == EventDifference {
			differences = append(differences, e)
		}
	}
	out := run(t, a)
	if diff := cmp.Diff(conversation(t, whole)[:4], conversation(t, out)[:4]); diff != "" {
		t.Errorf("conversation (-whole +resumed):\n%s", diff)
	}
	if len(differences) != 1 || differences[0].Text != "cat /testbed/a.py" ||
		differences[0].Result.Output != "dog /testbed/a.py" {
		t.Errorf("differences: %+v", differences)
	}
}

func TestResumeFromALog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	log, err := trajectory.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_, answers := recorded(t, XML{})
	a := newAgent(scripted(append(slices.Clone(answers[:2]), fails(ErrModelUnavailable))...))
	a.Record = log
	if out := run(t, a); out.StopReason != ModelError {
		t.Fatalf("ended as %s", out.StopReason)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	log, past, err := trajectory.Resume(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	a = newAgent(scripted(answers...))
	a.Record, a.Past = log, past
	if out := run(t, a); out.StopReason != Submitted {
		t.Errorf("ended as %s: %v", out.StopReason, out.Err)
	}
	rec, err := trajectory.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Turns) != len(answers) || rec.Stop.Reason != Submitted {
		t.Errorf("the log holds %d turns and ends with %s", len(rec.Turns), rec.Stop.Reason)
	}
}

func TestBrokenPastIsAnError(t *testing.T) {
	t.Parallel()
	whole, _ := recorded(t, XML{})
	strange := slices.Clone(whole.Events)
	strange[0] = trajectory.HeaderEvent(trajectory.Header{Agent: "x", Format: "smoke signals"})
	for name, past := range map[string][]trajectory.Event{
		"no header": whole.Events[1:], "unknown format": strange,
	} {
		a := newAgent(scripted(says(submission)))
		a.Past = past
		out, err := a.Run(t.Context(), nowhere{}, issue)
		if out.StopReason != SandboxError || err == nil {
			t.Errorf("%s: %s, %v", name, out.StopReason, err)
		}
	}
}

// reread writes the trajectory as an ATIF document and reads it again.
func reread(t *testing.T, events []trajectory.Event) *trajectory.Recording {
	t.Helper()
	d := document(t, events)
	var file bytes.Buffer
	if err := d.Encode(&file); err != nil {
		t.Fatal(err)
	}
	rec, err := trajectory.Parse(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestReplayModelRepeatsTheConversation(t *testing.T) {
	t.Parallel()
	for _, f := range formats() {
		whole, _ := recorded(t, f)
		a := newAgent(NewReplayModel(reread(t, whole.Events)))
		a.Format = f
		a.Limits.Steps = 9
		out := run(t, a)
		if out.StopReason != Submitted {
			t.Errorf("%s: ended as %s: %v", f.Name(), out.StopReason, out.Err)
		}
		if diff := cmp.Diff(conversation(t, whole), conversation(t, out)); diff != "" {
			t.Errorf("%s: conversation (-recorded +replayed):\n%s", f.Name(), diff)
		}
		if diff := cmp.Diff(samples(t, whole), samples(t, out)); diff != "" {
			t.Errorf("%s: tokens (-recorded +replayed):\n%s", f.Name(), diff)
		}
	}
}

func TestReplayModelInAnotherPlace(t *testing.T) {
	t.Parallel()
	for _, f := range formats() {
		whole, _ := recorded(t, f)
		a := newAgent(NewReplayModel(reread(t, whole.Events)))
		a.Format = f
		if _, err := a.Run(t.Context(), nowhere{dir: "/tmp/copy"}, issue); err != nil {
			t.Fatal(err)
		}
		if cmd := a.Tools.(*fakeTools).ran[0].Args["cmd"]; cmd != "cat /tmp/copy/a.py" {
			t.Errorf("%s: ran %q", f.Name(), cmd)
		}
	}
}

func TestReplayModelIsAskedInOrder(t *testing.T) {
	t.Parallel()
	whole, _ := recorded(t, XML{})
	m := NewReplayModel(reread(t, whole.Events))
	if _, err := m.Complete(t.Context(), Request{Messages: conversation(t, whole)}); !errors.Is(err, ErrReplayExhausted) {
		t.Errorf("behind the end: %v", err)
	}
	other := slices.Clone(conversation(t, whole)[:4])
	other[2].Content = "something else"
	if _, err := m.Complete(t.Context(), Request{Messages: other}); !errors.Is(err, ErrReplayOrder) {
		t.Errorf("in another conversation: %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Complete(cancelled, Request{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestRelocate(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"/testbed":                       "/x/y",
		"cd /testbed && ls /testbed/a":   "cd /x/y && ls /x/y/a",
		"/testbed2 /testbed-b /testbeds": "/testbed2 /testbed-b /testbeds",
		"my/testbed":                     "my/testbed",
		`{"path":"/testbed/a.py"}`:       `{"path":"/x/y/a.py"}`,
		"It is in /testbed.":             "It is in /x/y.",
		"/testbed/testbed":               "/x/y/testbed",
		"nothing":                        "nothing",
	}
	for text, want := range tests {
		if got := relocate(text, "/testbed", "/x/y"); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestRerun(t *testing.T) {
	t.Parallel()
	for _, f := range formats() {
		whole, _ := recorded(t, f)
		rec := reread(t, whole.Events)
		ft := &fakeTools{run: func(_ context.Context, c tools.Call) (tools.Result, error) {
			r := echo(c)
			if c.Args["cmd"] == "pwd" {
				r.Output = "elsewhere"
			}
			return r, nil
		}}
		var got []string
		for c, err := range Rerun(t.Context(), rec, ft, nowhere{dir: "/tmp/copy"}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%d %s%s %v", c.Step, c.Call.Name, c.Call.Args["cmd"], c.Same))
		}
		want := []string{"1 execute_bashcat /tmp/copy/a.py true", "3 execute_bashpwd false", "4 finish true"}
		if f.Name() == "tools" {
			want = []string{
				"1 execute_bashcat /tmp/copy/a.py true", "1 execute_bashpwd false",
				"2 execute_bashls true", "2 execute_bashls -l true", "4 finish true",
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", f.Name(), diff)
		}
	}
}

func TestRerunOfAnotherAgentsTrajectory(t *testing.T) {
	t.Parallel()
	rec := &trajectory.Recording{Turns: []trajectory.Turn{{
		Reply: trajectory.Reply{Calls: []trajectory.Call{
			{ID: "1", Name: "execute_bash", Args: map[string]string{"cmd": "true"}},
			{ID: "2", Name: "execute_bash", Args: map[string]string{"cmd": "ls"}},
		}},
		Observations: []trajectory.Observation{{Results: []trajectory.Result{{CallID: "1", Output: "true",
			ExitCode: new(1)}}}},
	}}}
	var same []bool
	for c, err := range Rerun(t.Context(), rec, &fakeTools{}, nowhere{}) {
		if err != nil {
			t.Fatal(err)
		}
		same = append(same, c.Same)
	}
	if !slices.Equal(same, []bool{false, false}) { // another exit code, and no recorded result at all
		t.Errorf("same: %v", same)
	}
}

func TestRerunStopsAtAFailure(t *testing.T) {
	t.Parallel()
	whole, _ := recorded(t, XML{})
	ft := &fakeTools{run: func(context.Context, tools.Call) (tools.Result, error) { return tools.Result{}, errDisk }}
	n := 0
	var last error
	for _, err := range Rerun(t.Context(), reread(t, whole.Events), ft, nowhere{}) {
		n++
		last = err
	}
	if n != 1 || !errors.Is(last, errDisk) {
		t.Errorf("%d comparisons, then %v", n, last)
	}
}
