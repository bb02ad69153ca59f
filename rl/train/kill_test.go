package train

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/rl"
	"deepswe/rl/metrics"
	"deepswe/rl/train/backend"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// childDir makes the test binary a process that trains in that directory.
const childDir = "DEEPSWE_TEST_TRAIN_DIR"

// flowing is a variant of tiny in which rollouts and updates overlap. childFlows makes the child use it.
const (
	flowing    = "rollouts.max_staleness=2"
	childFlows = "DEEPSWE_TEST_TRAIN_FLOWS"
)

// childRows makes the child imitate the rows of a file.
const childRows = "DEEPSWE_TEST_TRAIN_ROWS"

// flapping is the embedded policy behind an endpoint that fails now and then.
type flapping struct {
	backend.Embedded `yaml:",inline"`
}

func (f *flapping) Open(ctx context.Context, o part.TrainerOptions) (part.Trainer, error) {
	t, err := f.Embedded.Open(ctx, o)
	t.Trainer = flappingTrainer{t.Trainer}
	return t, err
}

type flappingTrainer struct{ rl.Trainer }

func (f flappingTrainer) Publish(ctx context.Context) (rl.Policy, error) {
	p, err := f.Trainer.Publish(ctx)
	p.Model = flappingModel{p.Model}
	return p, err
}

type flappingModel struct{ agent.Model }

func (f flappingModel) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	if rand.IntN(300) == 0 {
		return agent.Reply{}, agent.ErrModelUnavailable
	}
	return f.Model.Complete(ctx, r)
}

// childConfig returns the configuration that the child trains.
func childConfig(flows bool) (config.Config, error) {
	if rows := os.Getenv(childRows); rows != "" {
		return config.Load([]byte(fmt.Sprintf(echoing, rows, config.OverTokens)), builtin.Parts())
	}
	if !flows {
		return config.Load([]byte(tiny), builtin.Parts())
	}
	parts := builtin.Parts()
	parts.Trainers["embedded"] = func() config.TrainerSettings { return &flapping{*backend.NewEmbedded()} }
	return config.Load([]byte(tiny), parts, flowing, "rollouts.refill=0", "steps=30", "rollouts.workers=8")
}

// trainChild trains tiny, or resumes the run in the directory. For each event it writes a line and reads a byte.
func trainChild(dir string) int {
	c, err := childConfig(os.Getenv(childFlows) != "")
	if err == nil {
		o := Options{Dir: dir, Resume: run.Exists(dir), Observer: observing(func(n int) {
			fmt.Println(n)
			_, _ = os.Stdin.Read(make([]byte, 1))
		})}
		_, err = Start(context.Background(), c, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A run whose process is killed after every 40th line, wherever it is then, ends as if it had not been disturbed.
func TestKillMinusNine(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, tiny)
	want, _ := undisturbed(t, c)
	dir := filepath.Join(t.TempDir(), "run")
	kills := 0
	for {
		if kills > 200 {
			t.Fatal("the run does not come to an end")
		}
		if !runAndKill(t, dir, 40) {
			break
		}
		kills++
	}
	if kills < 2 {
		t.Errorf("killed %d times only", kills)
	}
	sameOutcome(t, want, outcomeOf(t, dir, c))
}

// However often a run with overlapping steps is killed, every rollout is recorded once and learned from once.
func TestKillMinusNineInFlow(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	kills := 0
	for runAndKill(t, dir, 10+(37*kills)%23, childFlows+"=1") {
		if kills++; kills > 300 {
			t.Fatal("the run does not come to an end")
		}
	}
	if kills < 10 { // the number depends on how far each process gets before it is gone
		t.Errorf("killed %d times only", kills)
	}
	t.Logf("killed %d times", kills)
	c, err := childConfig(true)
	if err != nil {
		t.Fatal(err)
	}
	onceEach(t, dir, c)
}

// onceEach checks that a finished run has one line for each rollout, and learned from all groups.
func onceEach(t *testing.T, dir string, c config.Config) {
	t.Helper()
	src, err := record.OpenRollouts(dir)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]int{}
	for r, err := range src.Rollouts(t.Context(), func(*rl.Rollout) error { return nil }) {
		if err != nil {
			t.Fatal(err)
		}
		lines[fmt.Sprint(r.Group, " ", r.Attempt)]++
	}
	for step := 1; step <= c.Steps; step++ {
		for slot := range c.Rollouts.Tasks {
			for i := range c.Rollouts.Group {
				key := fmt.Sprint(record.GroupName(step, slot), " ", i)
				if lines[key] != 1 {
					t.Errorf("rollout %s has %d lines", key, lines[key])
				}
				delete(lines, key)
			}
		}
	}
	if len(lines) > 0 {
		t.Errorf("further rollouts %v", lines)
	}
	var s state
	if err := disk.ReadJSON(filepath.Join(dir, record.StateFile), &s); err != nil {
		t.Fatal(err)
	}
	if s.Step != c.Steps || s.Cursor != c.Steps*c.Rollouts.Tasks || len(s.Ahead) > 0 {
		t.Errorf("the run ended at %+v", s)
	}
	points, err := metrics.ReadJSONL(filepath.Join(dir, record.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range points[1:] {
		if n := p.Values["rollouts/total"]; n != float64(c.Rollouts.Tasks*c.Rollouts.Group) {
			t.Errorf("step %d learned from %v rollouts", p.Step, n)
		}
		if p.Values["staleness/max"] > float64(c.Rollouts.MaxStaleness) {
			t.Errorf("step %d learned from rollouts %v updates old", p.Step, p.Values["staleness/max"])
		}
	}
}

// ahead is how many lines a child may be ahead of its parent. It is small, so that even on a busy machine the child is
// killed in time, but not always at the same moment.
const ahead = 3

// runAndKill runs a child and kills it after that many lines. It returns false if the child ended by itself.
func runAndKill(t *testing.T, dir string, lines int, variables ...string) bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), childDir+"="+dir), variables...)
	cmd.Stderr = os.Stderr
	out, errOut := cmd.StdoutPipe()
	in, errIn := cmd.StdinPipe()
	if err := errors.Join(errOut, errIn, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	_, _ = in.Write(make([]byte, ahead)) // a child that has ended reads nothing
	said := bufio.NewScanner(out)
	for n := 1; said.Scan(); n++ {
		if n < lines {
			_, _ = in.Write(make([]byte, 1))
			continue
		}
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	}
	err := cmd.Wait()
	if err == nil {
		return false
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Exited() {
		t.Fatalf("child: %v", err)
	}
	return true
}
