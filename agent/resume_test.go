package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// appendingTools stands for a sandbox with one file, to which each command appends itself.
func appendingTools(file *[]string) *fakeTools {
	return &fakeTools{run: func(_ context.Context, c tools.Call) (tools.Result, error) {
		r := echo(c)
		if !r.Finished {
			*file = append(*file, c.Args["cmd"])
			r.Output = fmt.Sprint("line ", len(*file))
		}
		return r, nil
	}}
}

// A rollout is killed at random bytes of its log and resumed, again and again. In the end the conversation, the files
// and the outcome are those of a rollout that was never killed, no recorded reply was requested again, and in every new
// sandbox the recorded calls ran once each, in order.
func TestResumeAfterRandomKills(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	for round := range 80 {
		format := formats()[round%2]
		steps := 1 + rng.IntN(8)
		var answers []answering
		for i := range steps {
			answers = append(answers, randomAnswer(rng, format, i))
		}
		answers = append(answers, says(submission))
		if format.Name() == "tools" {
			answers[steps] = calls(nativeSubmit)
		}
		var wholeFile []string
		a := newAgent(scripted(answers...))
		a.Format, a.Tools = format, appendingTools(&wholeFile)
		whole := run(t, a)

		path := filepath.Join(t.TempDir(), "steps.jsonl")
		for kill := range 3 {
			out, file, m := resumeLog(t, path, format, answers)
			if diff := cmp.Diff(conversation(t, whole), conversation(t, out)); diff != "" {
				t.Fatalf("round %d, kill %d: conversation (-whole +resumed):\n%s", round, kill, diff)
			}
			if !slices.Equal(wholeFile, file) || out.StopReason != whole.StopReason || out.Steps != whole.Steps {
				t.Fatalf("round %d, kill %d: %s after %d steps, the file holds %q, want %q", round, kill, out.StopReason,
					out.Steps, file, wholeFile)
			}
			asked := map[int]bool{}
			for _, r := range m.requests {
				n := len(r.Messages)
				if asked[n] {
					t.Fatalf("round %d, kill %d: a request was sent twice", round, kill)
				}
				asked[n] = true
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, rng.Int64N(int64(len(data)))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// randomAnswer returns a reply with no call, one call or several.
func randomAnswer(rng *rand.Rand, f Format, i int) answering {
	cmd := fmt.Sprintf("step %d", i)
	switch n := rng.IntN(4); {
	case n == 0 && i%2 == 1:
		return says("Hm.")
	case f.Name() == "xml":
		return bash(cmd)
	default:
		var all []ToolCall
		for k := range n + 1 {
			all = append(all, nativeBash(fmt.Sprint("id", rng.IntN(3)), fmt.Sprint(cmd, k)))
		}
		return calls(all...)
	}
}

// resumeLog resumes what the log holds, and checks that no recorded reply is requested again.
func resumeLog(t *testing.T, path string, f Format, answers []answering) (Outcome, []string, *script) {
	t.Helper()
	log, past, err := trajectory.Resume(path)
	if os.IsNotExist(err) || err != nil && strings.Contains(err.Error(), "no such file") {
		log, err = trajectory.Create(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var file []string
	m := scripted(answers...)
	a := newAgent(m)
	a.Format, a.Tools, a.Record, a.Past, a.Reopen = f, appendingTools(&file), log, past, true
	out := run(t, a)
	recorded := 0
	for _, e := range past {
		if e.Kind == trajectory.KindReply {
			recorded++
		}
	}
	if want := out.Steps - recorded; len(m.requests) != want {
		t.Fatalf("%d requests for %d replies that were not recorded", len(m.requests), want)
	}
	return out, file, m
}

// A user can continue a rollout that has ended: its limits then begin anew.
func TestReopen(t *testing.T) {
	t.Parallel()
	talk := says("I would rather talk.")
	for name, c := range map[string]struct {
		first  []answering
		limits Limits
		reason StopReason
		later  []answering // what the model says after the recorded replies
	}{
		"steps":         {[]answering{bash("1"), bash("2")}, Limits{Steps: 2}, MaxSteps, []answering{bash("3"), says(submission)}},
		"format errors": {[]answering{talk, talk}, Limits{FormatErrors: 2}, FormatErrors, []answering{talk, says(submission)}},
		"repetition": {[]answering{bash("1"), bash("1"), bash("1")}, Limits{Repeats: 3}, Stuck,
			[]answering{bash("1"), says(submission)}},
		"the endpoint": {[]answering{bash("1"), fails(ErrModelUnavailable)}, Limits{}, ModelError, []answering{says(submission)}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(scripted(c.first...))
			a.Limits = c.limits
			first := run(t, a)
			if first.StopReason != c.reason {
				t.Fatalf("ended as %s", first.StopReason)
			}
			a = newAgent(scripted(append(slices.Clone(c.first[:first.Steps]), c.later...)...))
			a.Limits, a.Past, a.Reopen = c.limits, first.Events, true
			if out := run(t, a); out.StopReason != Submitted {
				t.Errorf("it ended as %s after %d steps", out.StopReason, out.Steps)
			}
		})
	}
}

// A submission is final, unless another instruction follows it.
func TestFurther(t *testing.T) {
	t.Parallel()
	for _, f := range formats() {
		whole, answers := recorded(t, f)
		a := newAgent(scripted(answers...))
		a.Past, a.Reopen = whole.Events, true
		if out := run(t, a); out.StopReason != Submitted || len(a.Model.(*script).requests) != 0 {
			t.Errorf("%s: a finished rollout was resumed: %s", f.Name(), out.StopReason)
		}
		last := answers[len(answers)-1]
		m := scripted(append(slices.Clone(answers), bash("more"), last)...)
		a = newAgent(m)
		a.Past, a.Reopen, a.Further = whole.Events, true, "also this"
		out := run(t, a)
		if out.StopReason != Submitted || out.Steps != whole.Steps+2 {
			t.Errorf("%s: %s after %d steps", f.Name(), out.StopReason, out.Steps)
		}
		told := m.requests[0].Messages
		contains(t, told[len(told)-1].Content, "also this")
		if got := told[len(told)-1].Role; got != RoleUser {
			t.Errorf("the instruction comes from %s", got)
		}
		// And once more, from everything that is recorded by then.
		m = scripted(append(slices.Clone(answers), bash("more"), last, last)...)
		a = newAgent(m)
		a.Past, a.Reopen, a.Further = out.Events, true, "and that"
		if again := run(t, a); again.Steps != out.Steps+1 || len(m.requests) != 1 {
			t.Errorf("%s: %d steps, %d requests", f.Name(), again.Steps, len(m.requests))
		}
		reread(t, out.Events)
	}
}

// A call that the user cancelled to give another instruction is not made again, neither in the next rollout nor later.
func TestACancelledCallIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	hangs := func(ctx context.Context, _ tools.Call) (tools.Result, error) {
		cancel()
		<-ctx.Done()
		return tools.Result{}, ctx.Err()
	}
	a := newAgent(scripted(bash("hang")))
	a.Tools = &fakeTools{run: hangs}
	first, err := a.Run(ctx, nowhere{}, issue)
	if err != nil || first.StopReason != Interrupted {
		t.Fatalf("ended as %s, %v", first.StopReason, err)
	}
	events := first.Events
	for _, further := range []string{"do not hang", "and more"} {
		var file []string
		m := scripted(bash("hang"), says(submission), says(submission))
		a = newAgent(m)
		a.Tools, a.Past, a.Reopen, a.Further = appendingTools(&file), events, true, further
		out := run(t, a)
		if out.StopReason != Submitted || len(file) != 0 {
			t.Errorf("%s: %s, and ran %q", further, out.StopReason, file)
		}
		told := m.requests[0].Messages
		contains(t, told[3].Content, adviceDeclined+adviceStopped)
		events = out.Events
	}
}

// If a repository has moved, the model still sees it at its old place.
func TestResumeInAnotherPlace(t *testing.T) {
	t.Parallel()
	whole, answers := recorded(t, XML{})
	m := scripted(answers...)
	a := newAgent(m)
	a.Past = whole.Events[:5]
	ft := &fakeTools{}
	a.Tools = ft
	out, err := a.Run(t.Context(), nowhere{dir: "/copy/2"}, issue)
	if err != nil {
		t.Fatal(err)
	}
	if got := ft.ran[0].Args["cmd"]; got != "cat /copy/2/a.py" {
		t.Errorf("ran %q", got)
	}
	if diff := cmp.Diff(conversation(t, whole)[:4], conversation(t, out)[:4]); diff != "" {
		t.Errorf("conversation (-whole +resumed):\n%s", diff)
	}
	if m.requests[0].Dir != "/testbed" {
		t.Errorf("the request says that the repository is at %s", m.requests[0].Dir)
	}
}

// limited are tools whose description states a limit.
type limited struct {
	*fakeTools
	limit string
}

func (l limited) Specs() []tools.Spec {
	specs := l.fakeTools.Specs()
	specs[2].Description = "A command is killed after " + l.limit + "."
	return specs
}

// The limits that the model was told last are the ones that apply, however often they change when a rollout is
// continued.
func TestChangedLimitsAreTold(t *testing.T) {
	t.Parallel()
	var past []trajectory.Event
	var answers []answering
	for i, c := range []struct{ limit, told string }{
		{"90 s", ""}, {"90 s", ""}, {"30 s", "30 s"}, {"30 s", ""}, {"90 s", "90 s"},
	} {
		answers = append(answers, bash(fmt.Sprint("command ", i)))
		a := newAgent(scripted(answers[i:]...))
		a.Tools, a.Format, a.Limits.Steps = limited{&fakeTools{}, c.limit}, XML{}, 1
		a.Past, a.Reopen = past, true
		out := run(t, a)
		var told []string
		for _, e := range out.Events[len(past):] {
			if i > 0 && e.Kind == trajectory.KindMessage {
				told = append(told, e.Message.Content)
			}
		}
		want := []string(nil)
		if c.told != "" {
			want = []string{"From now on, the tool execute_bash works like this:\n\nA command is killed after " + c.told +
				".\nSteps Remaining: 1\nThis is your last step: call finish now. The changes that you have made are kept."}
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("part %d (-want +told):\n%s", i, diff)
		}
		past = out.Events
	}
	// Native tools are described in each request, so the model need not be told.
	a := newAgent(scripted(calls(nativeBash("1", "ls"))))
	a.Tools, a.Format, a.Limits.Steps = limited{&fakeTools{}, "90 s"}, Native{}, 1
	past = run(t, a).Events
	a = newAgent(scripted(calls(nativeBash("2", "ls"))))
	a.Tools, a.Format, a.Limits.Steps = limited{&fakeTools{}, "30 s"}, Native{}, 1
	a.Past, a.Reopen = past, true
	for _, e := range run(t, a).Events[len(past):] {
		if e.Kind == trajectory.KindMessage {
			t.Errorf("told: %s", e.Message.Content)
		}
	}
}
