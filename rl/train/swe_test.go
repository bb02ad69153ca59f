package train

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/local"
	"deepswe/env/testkit"
	"deepswe/rl/metrics"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
	"deepswe/rl/train/record"
	"deepswe/verify/swe"
)

// scripted returns a world with sandboxes on the host, and a model that the test scripts.
func scripted(m agent.Model) cli.World {
	host := func(context.Context, *slog.Logger, cli.SandboxChoice) (env.Provider, error) {
		return local.NewHost(local.Options{})
	}
	return cli.World{
		Getenv:    func(string) string { return "" },
		Sandboxes: []cli.SandboxKind{{Name: cli.EnvBwrap, Open: host}, {Name: cli.EnvHost, Open: host}},
		OpenModel: func(context.Context, cli.ModelChoice) (cli.LiveModel, error) {
			return cli.LiveModel{Model: m, Name: "scripted"}, nil
		},
	}
}

// solver writes the number 7 and submits. Every second rollout submits at once.
type solver struct {
	tokens bool
	played atomic.Int64
}

func (s *solver) Complete(_ context.Context, r agent.Request) (agent.Reply, error) {
	text := "<function=finish>\n<parameter=command>submit</parameter>\n</function>"
	if len(r.Messages) == 2 && s.played.Add(1)%2 == 1 { // the first reply of a rollout
		text = "<function=execute_bash>\n<parameter=cmd>echo 7 > number</parameter>\n</function>"
	}
	reply := agent.Reply{Message: agent.Message{Role: agent.RoleAssistant, Content: text}, FinishReason: "stop"}
	if s.tokens {
		prompt := make([]int32, 10*len(r.Messages))
		reply.Tokens = &agent.Sample{PromptIDs: prompt, CompletionIDs: []int32{0, 0}, Logprobs: []float64{-1, -1}}
	}
	return reply, nil
}

const sweTask = `{"id":%q,"statement":"The file number must hold 7.","prepare":["echo 0 > number"],` +
	`"tests":{"prepare":["echo 0 > number"],"fail_to_pass":["test.sh::number"],"parser":"parse_log_pytest",` +
	`"eval_type":"pass_and_fail","gold_patch":"--- a/number\n+++ b/number\n@@ -1 +1 @@\n-0\n+7\n",` +
	`"script":"echo '>>>>> Start Test Output'\nif [ \"$(cat number)\" = 7 ]; then echo PASSED test.sh::number; ` +
	`else echo FAILED test.sh::number; fi\necho '>>>>> End Test Output'\n"}}`

// sweRun trains on ten such tasks.
func sweRun(t *testing.T, dir string, m agent.Model, set ...string) (Result, error) {
	t.Helper()
	p, err := local.NewHost(local.Options{})
	if err != nil {
		t.Skip(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for i := range 10 {
		lines = append(lines, fmt.Sprintf(sweTask, fmt.Sprint("task-", i)))
	}
	tasks := filepath.Join(t.TempDir(), "tasks.jsonl")
	testkit.WriteFile(t, tasks, strings.Join(lines, "\n")+"\n")
	text := fmt.Sprintf(`
steps: 2
environment: {name: swe, train: {path: %q}, validation_share: 0.2, census: "off", evidence: none, sandbox: {env: host}}
trainer: {name: rows}
rollouts: {tasks: 2, group: 2, workers: 1}
evaluate: {every: 2, before: false}
`, tasks)
	c, err := config.Load([]byte(text), builtin.Parts(), set...)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Start(t.Context(), c, Options{Dir: dir, Resume: run.Exists(dir), World: scripted(m)})
	return r, err
}

// areDefined checks that the catalogue has every metric of a run, which pages and sinks show with its meaning.
func areDefined(t *testing.T, points []metrics.Point) {
	t.Helper()
	for _, p := range points {
		for name := range p.Values {
			if metrics.Describe(name).Place == len(metrics.Catalogue()) {
				t.Errorf("%s of step %d is not in the catalogue", name, p.Step)
			}
		}
	}
}

func TestSWE(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	r, err := sweRun(t, dir, &solver{tokens: true})
	if err != nil {
		t.Fatal(err)
	}
	v := r.Points[len(r.Points)-1].Values
	for name, want := range map[string]float64{
		"reward/mean": 0.5, "groups/effective": 2, "rollout/steps": 1.5, "val/pass@1": 0.5, "splits/total": 0,
		"sandboxes/failed": 0, "sandboxes/starting": 0,
	} {
		if v[name] != want {
			t.Errorf("%s is %v, want %v", name, v[name], want)
		}
	}
	areDefined(t, r.Points)
	kept, err := filepath.Glob(filepath.Join(dir, "checkpoints", "rows", "*.jsonl"))
	if err != nil || len(kept) != 2 {
		t.Errorf("rows of updates in %q, %v", kept, err)
	}
	// The log of an attempt has the tokens of its prompts once; a document would repeat them for each turn.
	logs, err := filepath.Glob(filepath.Join(dir, "rollouts", "*", "*", "*.json*"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]int{}
	for _, log := range logs {
		names[filepath.Base(log)]++
	}
	if diff := cmp.Diff(map[string]int{attempt.StepsFile: 10, attempt.ReportFile: 10}, names); diff != "" {
		t.Errorf("files of attempts (-want +got)\n%s", diff)
	}
}

// A resumed run may use sandboxes elsewhere, as --set says. Settings that affect its results cannot change.
func TestResumeInAnotherCluster(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := sweRun(t, dir, &solver{tokens: true}, "steps=1"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, record.ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	resume := func(set ...string) (Result, error) {
		c, err := config.Load(text, builtin.Parts(), append(set, "steps=2")...)
		if err != nil {
			t.Fatal(err)
		}
		return Start(t.Context(), c, Options{Dir: dir, Resume: true, World: scripted(&solver{tokens: true})})
	}
	if _, err := resume("environment.sandbox.network=true"); !errors.Is(err, record.ErrOtherConfig) ||
		!strings.Contains(err.Error(), "environment.sandbox.network cannot") {
		t.Errorf("a network: %v", err)
	}
	r, err := resume("environment.sandbox.env=bwrap", "environment.sandbox.hosts=[]", "rollouts.workers=2")
	if err != nil || len(r.Points) != 2 {
		t.Errorf("%d steps: %v", len(r.Points), err)
	}
}

// The mutation score of the rewarded tasks' tests is a metric, if the soundness check has measured it.
func TestSWEMutationScore(t *testing.T) {
	t.Parallel()
	var census swe.Soundness
	for i := range 10 {
		census.Results = append(census.Results, swe.TaskSoundness{
			Task: fmt.Sprint("task-", i), Verdict: swe.Sound, Mutation: &swe.MutationScore{
				Mutants: 4, Killed: 3, Score: 0.75, Survivors: []string{"a.sh:1\n-x=1\n+x=2\n"},
			},
		})
	}
	path := filepath.Join(t.TempDir(), swe.SoundnessFile)
	if err := disk.WriteJSON(path, census); err != nil {
		t.Fatal(err)
	}
	r, err := sweRun(t, filepath.Join(t.TempDir(), "run"), &solver{tokens: true}, "environment.census="+path)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Points[len(r.Points)-1].Values["tests/mutation_score"]; got != 0.75 {
		t.Errorf("mutation score %v", got)
	}
}

// A reward without token ids is refused, whatever the rest of the run could do with it.
func TestSWERefusesRepliesWithoutTokens(t *testing.T) {
	t.Parallel()
	_, err := sweRun(t, filepath.Join(t.TempDir(), "run"), &solver{})
	if err == nil || !strings.Contains(err.Error(), "no token ids with logprobs") {
		t.Errorf("got %v", err)
	}
}

// heats counts the temperatures of the first replies of rollouts.
type heats struct {
	solver
	mu    sync.Mutex
	first map[float64]int
}

func (h *heats) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	if len(r.Messages) == 2 {
		h.mu.Lock()
		h.first[*r.Sampling.Temperature]++
		h.mu.Unlock()
	}
	return h.solver.Complete(ctx, r)
}

// All measurements, that is, validation and each suite, are sampled at evaluate.temperature. Training rollouts are not.
func TestSWETemperatures(t *testing.T) {
	t.Parallel()
	suite := filepath.Join(t.TempDir(), "suite.jsonl")
	testkit.WriteFile(t, suite, fmt.Sprintf(sweTask, "suite-0")+"\n")
	m := &heats{solver: solver{tokens: true}, first: map[float64]int{}}
	_, err := sweRun(t, filepath.Join(t.TempDir(), "run"), m, "steps=1", "evaluate.temperature=0.25",
		fmt.Sprintf("environment.suites=[{name: more, path: %q}]", suite))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[float64]int{1: 4, 0.25: 3}, m.first); diff != "" {
		t.Errorf("rollouts at each temperature (-want +got)\n%s", diff)
	}
}
