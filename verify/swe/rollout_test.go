package swe

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/llm"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/testkit/images"
	"deepswe/verify"
)

func TestMain(m *testing.M) { images.Main(m.Run) }

// guessing is a model that writes a number to a file and submits. It counts its requests and keeps their seeds.
type guessing struct {
	number string
	err    error

	mu    sync.Mutex
	asked int
	seeds []int64
}

func (m *guessing) Complete(_ context.Context, r agent.Request) (agent.Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if r.Sampling.Seed != nil {
		m.seeds = append(m.seeds, *r.Sampling.Seed)
	}
	if m.err != nil {
		return agent.Reply{}, m.err
	}
	text := "<function=execute_bash>\n<parameter=cmd>echo " + m.number + " > number</parameter>\n</function>"
	if len(r.Messages) > 1 {
		text = "<function=finish>\n<parameter=command>submit</parameter>\n</function>"
	}
	return agent.Reply{
		Message: agent.Message{Role: agent.RoleAssistant, Content: text}, FinishReason: "stop",
		Usage: agent.Usage{Prompt: 10, Completion: 2},
	}, nil
}

// numberTask is solved when the number is 7.
func numberTask(id string) env.Task {
	return env.Task{
		ID: id, Source: "deepswe", Statement: "The number must be 7.", Image: "number",
		Tests: env.Tests{
			FailToPass: []string{"test.sh::number"}, Parser: "parse_log_pytest", EvalType: verify.PassAndFail,
			GoldPatch: "--- a/number\n+++ b/number\n@@ -1 +1 @@\n-0\n+7\n",
			Script: "echo '>>>>> Start Test Output'\n" +
				"if [ \"$(cat number)\" = 7 ]; then echo PASSED test.sh::number; else echo FAILED test.sh::number; fi\n" +
				"echo '>>>>> End Test Output'\n",
		},
	}
}

// setUp returns a runner of the tasks whose sandboxes are on the host.
func setUp(t *testing.T, m agent.Model, tasks ...env.Task) (*Runner, *images.Provider) {
	t.Helper()
	p := images.New(t, map[string]string{"number": "0\n"})
	format, _ := agent.FormatNamed("xml")
	base := t.TempDir()
	r := &Runner{
		Tasks: map[string]env.Task{}, Evaluator: &verify.Evaluator{Provider: p},
		Dir: func(j run.Job) (string, error) {
			dir := filepath.Join(base, j.Group, string(rune('0'+j.Index)))
			return dir, os.MkdirAll(dir, 0o755)
		},
		Attempt: attempt.Attempt{
			Provider: p, Run: "test",
			Settings: agent.Settings{
				Model: m, ModelName: "guessing", Format: format, Limits: agent.Limits{Steps: 5},
				Prompt: func(o agent.Opening) ([]agent.Message, error) {
					return []agent.Message{{Role: agent.RoleUser, Content: o.Issue.Statement}}, nil
				},
			},
		},
	}
	for _, task := range tasks {
		r.Tasks[task.ID] = task
	}
	return r, p
}

func job(id string, index int) run.Job { return run.Job{Task: id, Group: id, Index: index} }

// A rollout is an attempt and its grade. Whatever is in its directory already is not done again.
func TestRunner(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, number string
		reward       float64
		status       verify.Status
	}{{"solved", "7", 1, verify.Resolved}, {"wrong", "8", 0, verify.Unresolved},
		{"nothing changed", "0", 0, verify.NoPatch}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := &guessing{number: tc.number}
			r, p := setUp(t, m, numberTask("n"))
			events := 0
			r.OnEvent = func(run.Job, agent.Event) { events++ }
			first, err := r.Run(t.Context(), job("n", 0))
			if err != nil {
				t.Fatal(err)
			}
			d := DetailOf(run.Outcome{Result: first})
			if first.Reward == nil || *first.Reward != tc.reward || first.StopReason != agent.Submitted ||
				d.Status != tc.status ||
				d.Steps != 2 || d.Tokens != (attempt.Tokens{Prompt: 20, Completion: 4}) ||
				(d.Patch == "") != (tc.status == verify.NoPatch) || events == 0 {
				t.Errorf("result %+v, detail %+v, %d events", first, d, events)
			}
			starts, asked := p.Starts(), m.asked
			again, err := r.Run(t.Context(), job("n", 0))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(first, again); tc.status != verify.NoPatch && diff != "" {
				t.Errorf("the second time (-first +second):\n%s", diff)
			}
			if p.Starts() != starts || m.asked != asked {
				t.Errorf("%d more sandboxes and %d more requests", p.Starts()-starts, m.asked-asked)
			}
		})
	}
}

// A task without a verdict gives no reward, and neither does a runner that grades nothing.
func TestNoReward(t *testing.T) {
	t.Parallel()
	broken := numberTask("broken")
	broken.Tests.Parser = "parse_log_nothing"
	r, _ := setUp(t, &guessing{number: "7"}, broken, numberTask("n"))
	res, err := r.Run(t.Context(), job("broken", 0))
	if d := DetailOf(run.Outcome{Result: res}); err != nil || res.Reward != nil || d.Status != verify.Ungradable {
		t.Errorf("a void task: %+v, %+v, %v", res, d, err)
	}
	r.Evaluator = nil
	res, err = r.Run(t.Context(), job("n", 0))
	if d := DetailOf(run.Outcome{Result: res}); err != nil || res.Reward != nil || d.Status != "" || d.Patch == "" {
		t.Errorf("without an evaluator: %+v, %+v, %v", res, d, err)
	}
}

// Every rollout has its own seed, which is the same in every run.
func TestSeeds(t *testing.T) {
	t.Parallel()
	m := &guessing{number: "7"}
	r, _ := setUp(t, m, numberTask("n"))
	seed := uint64(11)
	r.Seed, r.Evaluator = &seed, nil
	for i := range 2 {
		if _, err := r.Run(t.Context(), job("n", i)); err != nil {
			t.Fatal(err)
		}
	}
	first, second := job("n", 0).Seed(11, 0), job("n", 1).Seed(11, 0)
	if want := []int64{first, first, second, second}; !slices.Equal(m.seeds, want) {
		t.Errorf("seeds %v, want %v", m.seeds, want)
	}
}

// A refused API key ends the run at once, and the attempt does not count. A server that is away ends only one try.
func TestEndpointFailures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err   error
		tries int
		ends  bool
	}{
		"refused": {&llm.Error{Status: 401}, 0, true},
		"away":    {agent.ErrModelUnavailable, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := setUp(t, &guessing{err: tc.err}, numberTask("n"))
			e := run.Engine{Runner: r, Options: run.Options{
				Workers: 1, Retries: 1, Backoff: 1, Observe: func(e run.Event) { t.Log(e.Kind, e.Err) },
			}}
			outcomes, err := e.Run(t.Context(), run.Plan([]string{"n"}, 1))
			if (err != nil) != tc.ends || len(outcomes) != 1 || outcomes[0].Tries != tc.tries || outcomes[0].Reward != nil {
				t.Errorf("%+v, %v", outcomes, err)
			}
		})
	}
}
