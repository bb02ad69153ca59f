package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent/run"
	"deepswe/rl/metrics"
	"deepswe/rl/train/backend"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
	"deepswe/rl/trainer/embedded"
)

// tiny is a run that takes a fraction of a second and uses everything: minibatches, refills, validation, and
// checkpoints that do not fall on every step.
const tiny = `
name: tiny
steps: 6
environment: {name: frozenlake, max_size: 4, radius: 2, max_tokens: 2, train_tasks: 12, validation_tasks: 5}
trainer: {name: embedded, hidden: 8}
rollouts: {tasks: 4, group: 4, refill: 1, workers: 4, drain: 0s}
optimizer: {minibatches: 2, learning_rate: 0.02}
evaluate: {every: 2, attempts: 2}
checkpoint: {every: 3, keep: 2}
`

func mustLoad(t testing.TB, text string, set ...string) config.Config {
	t.Helper()
	c, err := config.Load([]byte(text), builtin.Parts(), set...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// outcome is what must be equal in two runs: every bit of the last checkpoint, and every metric that is not a time.
type outcome struct {
	Policy  []byte
	Metrics map[int]map[string]float64
}

func outcomeOf(t testing.TB, dir string, c config.Config) outcome {
	t.Helper()
	policy, err := os.ReadFile(filepath.Join(dir, record.CheckpointsDir, checkpointName(c.Steps)+".policy"))
	if err != nil {
		t.Fatal(err)
	}
	points, err := metrics.ReadJSONL(filepath.Join(dir, record.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	out := outcome{Policy: policy, Metrics: map[int]map[string]float64{}}
	for _, p := range points {
		maps.DeleteFunc(p.Values, func(name string, _ float64) bool {
			family, _, _ := strings.Cut(name, "/")
			return slices.Contains([]string{"time", "workers", "trainer", "perf"}, family)
		})
		if out.Metrics[p.Step] == nil {
			out.Metrics[p.Step] = map[string]float64{}
		}
		for name, v := range p.Values {
			if _, twice := out.Metrics[p.Step][name]; twice {
				t.Errorf("%s of step %d is there twice", name, p.Step)
			}
			out.Metrics[p.Step][name] = v
		}
	}
	return out
}

func sameOutcome(t *testing.T, want, got outcome) {
	t.Helper()
	if !bytes.Equal(want.Policy, got.Policy) {
		t.Error("the last checkpoints differ")
	}
	if d := cmp.Diff(want.Metrics, got.Metrics); d != "" {
		t.Errorf("metrics differ (-undisturbed +resumed):\n%s", d)
	}
}

// everyEvent calls do with the number of each event of a run.
type everyEvent struct {
	n  int
	do func(n int)
}

func (e *everyEvent) happen() { e.n++; e.do(e.n) }

func (e *everyEvent) Playing(int, part.Split, int, int) { e.happen() }

func (e *everyEvent) Point(metrics.Point) { e.happen() }

func (e *everyEvent) Warning(string) { e.happen() }

func observing(do func(n int)) func(string, int) Observer {
	return func(string, int) Observer { return &everyEvent{do: do} }
}

// copyRun copies a run's directory. The report is written at the same time, so its temporary file may vanish meanwhile.
func copyRun(t *testing.T, to, dir string) {
	t.Helper()
	for {
		state, _ := os.ReadFile(filepath.Join(dir, record.StateFile))
		err := os.CopyFS(to, os.DirFS(dir))
		if err == nil {
			// If the state was saved during the copying, it may name a checkpoint that the copy lacks.
			if copied, _ := os.ReadFile(filepath.Join(to, record.StateFile)); bytes.Equal(copied, state) {
				return
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
			return
		}
		if err := os.RemoveAll(to); err != nil {
			t.Error(err)
			return
		}
	}
}

// undisturbed runs c in a new directory, and returns its outcome and the number of its events.
func undisturbed(t *testing.T, c config.Config) (outcome, int) {
	t.Helper()
	dir, events := filepath.Join(t.TempDir(), "run"), 0
	if _, err := Start(t.Context(), c, Options{Dir: dir, Observer: observing(func(n int) { events = n })}); err != nil {
		t.Fatal(err)
	}
	return outcomeOf(t, dir, c), events
}

// A killed process leaves its directory as it is at that moment. So a copy made at any event must, when resumed, end
// like the run that was copied.
func TestResumeFromEveryMoment(t *testing.T) {
	t.Parallel()
	t.Run("plain", func(t *testing.T) { t.Parallel(); resumedAnywhere(t, mustLoad(t, tiny)) })
	t.Run("stages", func(t *testing.T) { t.Parallel(); resumedAnywhere(t, mustLoad(t, tiny, "stages="+second)) })
}

func resumedAnywhere(t *testing.T, c config.Config) {
	root := t.TempDir()
	dir := filepath.Join(root, "run")
	want, events := undisturbed(t, c)
	snapshot := func(n int) string { return filepath.Join(root, fmt.Sprint(n)) }
	const step = 5 // 1 finds nothing else, and takes five times as long
	o := Options{Dir: dir, Observer: observing(func(n int) {
		if n%step == 0 {
			copyRun(t, snapshot(n), dir)
		}
	})}
	if _, err := Start(t.Context(), c, o); err != nil {
		t.Fatal(err)
	}
	sameOutcome(t, want, outcomeOf(t, dir, c))
	for n := step; n <= events; n += step {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			if _, err := Start(t.Context(), c, Options{Dir: snapshot(n), Resume: true}); err != nil {
				t.Fatal(err)
			}
			sameOutcome(t, want, outcomeOf(t, snapshot(n), c))
		})
	}
}

// hooked is the embedded policy, with a hook after each save and before each removal.
type hooked struct {
	*embedded.Trainer
	do func()
}

func (h hooked) Save(ctx context.Context, name string) error {
	err := h.Trainer.Save(ctx, name)
	h.do()
	return err
}

func (h hooked) Remove(ctx context.Context, name string) error {
	h.do()
	return h.Trainer.Remove(ctx, name)
}

type hookedSettings struct {
	backend.Embedded `yaml:",inline"`
	do               func()
}

func (h *hookedSettings) Open(ctx context.Context, o part.TrainerOptions) (part.Trainer, error) {
	t, err := h.Embedded.Open(ctx, o)
	if err == nil {
		t.Trainer = hooked{t.Trainer.(*embedded.Trainer), h.do}
	}
	return t, err
}

// A kill during a checkpoint leaves a trainer's checkpoint that no state names, or one too many. Both can be resumed.
func TestKilledWhileSaving(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, tiny, "checkpoint.every=1")
	want, _ := undisturbed(t, c)
	root := t.TempDir()
	dir, n := filepath.Join(root, "run"), 0
	parts := builtin.Parts()
	parts.Trainers["embedded"] = func() config.TrainerSettings {
		return &hookedSettings{Embedded: *backend.NewEmbedded(), do: func() {
			n++
			copyRun(t, filepath.Join(root, fmt.Sprint(n)), dir)
		}}
	}
	hookedConfig, err := config.Load([]byte(tiny), parts, "checkpoint.every=1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), hookedConfig, Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if n != 6+4 {
		t.Errorf("%d moments, want 6 saves and 4 removals", n)
	}
	for i := range n {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			t.Parallel()
			snapshot := filepath.Join(root, fmt.Sprint(i+1))
			if _, err := Start(t.Context(), c, Options{Dir: snapshot, Resume: true}); err != nil {
				t.Fatal(err)
			}
			sameOutcome(t, want, outcomeOf(t, snapshot, c))
		})
	}
}

func TestInterruptAndResume(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, tiny)
	want, events := undisturbed(t, c)
	for n := 1; n < events; n += 11 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "run")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := Start(ctx, c, Options{Dir: dir, Observer: observing(func(k int) {
				if k == n {
					cancel()
				}
			})})
			// Near the end there may be nothing left to interrupt.
			if err != nil && !errors.Is(err, run.ErrInterrupted) {
				t.Fatal(err)
			}
			if _, err := Start(t.Context(), c, Options{Dir: dir, Resume: true}); err != nil {
				t.Fatal(err)
			}
			sameOutcome(t, want, outcomeOf(t, dir, c))
		})
	}
}

func TestWorkersDoNotMatter(t *testing.T) {
	t.Parallel()
	want, _ := undisturbed(t, mustLoad(t, tiny))
	got, _ := undisturbed(t, mustLoad(t, tiny, "rollouts.workers=1"))
	sameOutcome(t, want, got)
}

func TestLongerRunGoesOn(t *testing.T) {
	t.Parallel()
	long := mustLoad(t, tiny)
	want, _ := undisturbed(t, long)
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := Start(t.Context(), mustLoad(t, tiny, "steps=4"), Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), long, Options{Dir: dir, Resume: true}); err != nil {
		t.Fatal(err)
	}
	sameOutcome(t, want, outcomeOf(t, dir, long))
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, tiny, "steps=1", "evaluate.every=0")
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := Start(t.Context(), c, Options{Dir: dir, Resume: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("resuming nothing: %v", err)
	}
	if _, err := Start(t.Context(), c, Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), c, Options{Dir: dir}); !errors.Is(err, run.ErrExists) {
		t.Errorf("beginning twice: %v", err)
	}
	other := mustLoad(t, tiny, "steps=1", "evaluate.every=0", "optimizer.learning_rate=0.5", "filter.max_steps=drop",
		"rollouts.workers=2")
	_, err := Start(t.Context(), other, Options{Dir: dir, Resume: true})
	if !errors.Is(err, record.ErrOtherConfig) {
		t.Fatalf("resuming with another configuration: %v", err)
	}
	for _, key := range []string{"optimizer.learning_rate", "algorithm.set.filter.max_steps"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("%v: does not name %s", err, key)
		}
	}
	if strings.Contains(err.Error(), "workers") {
		t.Errorf("%v: names a key that may change", err)
	}
}
