package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/env/testkit"
	"deepswe/rl"
	"deepswe/rl/metrics"
	"deepswe/rl/train/config"
	"deepswe/rl/train/examples"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
	"deepswe/rl/trainer/embedded"
	"deepswe/rl/trainer/tinker"
	"deepswe/rl/trainer/trainertest"
)

// echoes writes examples in which the policy repeats each digit as often as it says, one task for each digit.
func echoes(t testing.TB, copies int) string {
	t.Helper()
	language := digits(t)
	codec, err := embedded.NewCodec(language.Vocabulary)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for n := range copies {
		for digit := range 5 {
			asked := []agent.Message{{Role: agent.RoleUser, Content: fmt.Sprint(digit)}}
			prompt, err := codec.Prompt(t.Context(), agent.Request{Messages: asked})
			if err != nil {
				t.Fatal(err)
			}
			answer := append(slices.Repeat([]int32{int32(digit)}, digit+1), codec.Stop()[0])[:min(digit+2, 6)]
			labels := append(slices.Repeat([]int32{-100}, len(prompt)), answer...)
			line, err := json.Marshal(map[string]any{
				"task": fmt.Sprint("digit-", digit), "group": "g", "attempt": n, "row": 0,
				"input_ids": append(prompt, answer...), "labels": labels,
			})
			if err != nil {
				t.Fatal(err)
			}
			b.Write(append(line, '\n'))
		}
	}
	return testkit.WriteFile(t, filepath.Join(t.TempDir(), "rows.jsonl"), b.String())
}

const echoing = `
objective: sft
name: echo
environment: {name: residue, max_tokens: 6}
trainer: {name: embedded, hidden: 16}
optimizer: {learning_rate: 0.03}
checkpoint: {every: 4}
sft: {rows: %q, batch: 5, epochs: 6, validation: 0.2, mean: %s}
`

// echoingOn is the same run on a server.
func echoingOn(s *trainertest.Server, rows string, mean config.Mean) string {
	server := fmt.Sprintf("{name: tinker, base_url: %q, model: tiny, rank: 8, vocabulary: %d, patience: 5s}", s.URL(),
		s.Vocabulary())
	return fmt.Sprintf(strings.Replace(echoing, "{name: embedded, hidden: 16}", server, 1), rows, mean)
}

// imitated runs a configuration and returns its points.
func imitated(t *testing.T, c config.Config) []metrics.Point {
	t.Helper()
	result, err := Start(t.Context(), c, Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil)})
	if err != nil {
		t.Fatal(err)
	}
	return result.Points
}

// losses returns the loss curve of a run as text.
func losses(points []metrics.Point) string {
	var b strings.Builder
	for _, p := range points {
		fmt.Fprintf(&b, "%d: loss %.5f, validation %.5f\n", p.Step, p.Values["sft/loss"], p.Values["val/loss"])
	}
	return b.String()
}

// The embedded policy learns from the examples, and so does one behind a server, whether it sums gradients or averages
// them.
func TestImitation(t *testing.T) {
	t.Parallel()
	rows := echoes(t, 4)
	for _, mean := range []config.Mean{config.OverTokens, config.OverRows} {
		want := imitated(t, mustLoad(t, fmt.Sprintf(echoing, rows, mean)))
		if n := len(want); n != 1+6*4 {
			t.Fatalf("%d points", n)
		}
		first, last := want[1].Values["sft/loss"], want[len(want)-1].Values["sft/loss"]
		t.Logf("mean over %s: loss %.3f at first, %.3f at last", mean, first, last)
		if math.Abs(first-math.Log(11)) > 0.05 || last > first/2 {
			t.Errorf("mean over %s: the loss went from %.3f to %.3f", mean, first, last)
		}
		for _, sums := range []bool{false, true} {
			language := digits(t)
			s := trainertest.New(t, trainertest.Options{Language: language, Sums: sums, Hidden: 16})
			got := imitated(t, mustLoad(t, echoingOn(s, rows, mean)))
			first, last := got[1].Values["sft/loss"], got[len(got)-1].Values["sft/loss"]
			if math.Abs(first-math.Log(11)) > 0.05 || last > first/2 {
				t.Errorf("mean over %s, sums %v: the loss went from %.3f to %.3f", mean, sums, first, last)
			}
			// A server that averages over tokens cannot weight rows against each other, so the client makes a forward
			// pass first.
			n, epochs := s.Count("forward"), 7
			if direct := sums || mean == config.OverRows; direct != (n < 20+epochs) {
				t.Errorf("mean over %s, sums %v: %d forward passes", mean, sums, n)
			}
		}
	}
}

// One update has the same effect in every way of making it.
func TestImitateIsForwardBackwardAndStep(t *testing.T) {
	t.Parallel()
	l, err := examples.Read(t.Context(), &config.SFT{Rows: echoes(t, 1)}, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	language := digits(t)
	for _, mean := range []config.Mean{config.OverTokens, config.OverRows} {
		var all [][][]float64
		for _, sums := range []bool{false, true} {
			for _, own := range []bool{false, true} {
				s := trainertest.New(t, trainertest.Options{Language: language, Sums: sums})
				client, err := tinker.NewClient(tinker.ClientOptions{URL: s.URL()})
				if err != nil {
					t.Fatal(err)
				}
				tr, err := tinker.Open(t.Context(), tinker.Options{
					Client: client, Model: tinker.ModelOptions{Base: "tiny", Rank: 8, Seed: 3}, Vocabulary: s.Vocabulary(),
				})
				if err != nil {
					t.Fatal(err)
				}
				rows := examples.Complete(l.Train, mean)
				update := part.Trainer{Trainer: tr}
				if own {
					update.Imitate = tr.Imitate
				}
				if _, _, err := imitate(t.Context(), update, rows, rl.Optimizer{LearningRate: 0.05}); err != nil {
					t.Fatal(err)
				}
				logprobs, err := tr.Forward(t.Context(), rows)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, logprobs)
				if err := tr.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		for _, other := range all[1:] {
			for i := range other {
				for k := range other[i] {
					if d := math.Abs(other[i][k] - all[0][i][k]); d > 1e-4 {
						t.Fatalf("mean over %s: a logprob differs by %g", mean, d)
					}
				}
			}
		}
	}
}

// A run that is stopped, or whose server restarts, makes the same updates as an undisturbed one.
func TestImitationGoesOn(t *testing.T) {
	t.Parallel()
	rows := echoes(t, 4)
	language := digits(t)
	text := func(s *trainertest.Server) string { return echoingOn(s, rows, config.OverRows) }
	want := losses(imitated(t, mustLoad(t, text(trainertest.New(t, trainertest.Options{Language: language})))))

	s := trainertest.New(t, trainertest.Options{Language: language})
	s.Inject("forward_backward", append(make([]trainertest.Fault, 16), trainertest.Fault{Restart: true})...)
	s.Inject("optim_step", append(make([]trainertest.Fault, 10), trainertest.Fault{Drop: true})...)
	if got := losses(imitated(t, mustLoad(t, text(s)))); got != want {
		t.Errorf("with faults (-want +got):\n%s", cmp.Diff(want, got))
	}
	if n := s.Count("create_model"); n < 4 {
		t.Errorf("%d models were made: want at least 4, or the faults had no effect", n)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := Options{
		Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil),
		Observer: func(string, int) Observer { return &stopAt{step: 6, stop: cancel} },
	}
	s = trainertest.New(t, trainertest.Options{Language: language})
	if _, err := Start(ctx, mustLoad(t, text(s)), o); !errors.Is(err, run.ErrInterrupted) {
		t.Fatal(err)
	}
	o.Resume, o.Observer = true, nil
	result, err := Start(t.Context(), mustLoad(t, text(s)), o)
	if err != nil {
		t.Fatal(err)
	}
	if got := losses(result.Points); got != want {
		t.Errorf("resumed (-want +got):\n%s", cmp.Diff(want, got))
	}
	// Other rows under the same name are detected.
	data, err := os.ReadFile(rows)
	if err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, rows, strings.Replace(string(data), "10]", "9]", 2))
	if _, err := Start(t.Context(), mustLoad(t, text(s)), o); !errors.Is(err, record.ErrOtherConfig) {
		t.Errorf("with other rows: %v", err)
	}
}

// However often it is killed, a run ends with the losses and the weights of an undisturbed one.
func TestKillMinusNineImitating(t *testing.T) {
	t.Parallel()
	rows := echoes(t, 8)
	c := mustLoad(t, fmt.Sprintf(echoing, rows, config.OverTokens))
	clean := filepath.Join(t.TempDir(), "clean")
	result, err := Start(t.Context(), c, Options{Dir: clean})
	if err != nil {
		t.Fatal(err)
	}
	want := losses(result.Points)
	dir, kills := filepath.Join(t.TempDir(), "run"), 0
	for runAndKill(t, dir, 7+kills%5, childRows+"="+rows) {
		if kills++; kills > 100 {
			t.Fatal("the run does not come to an end")
		}
	}
	t.Logf("killed %d times", kills)
	if kills < 3 {
		t.Errorf("killed %d times only", kills)
	}
	points, err := metrics.ReadJSONL(filepath.Join(dir, record.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	if got := losses(points); got != want {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
	}
	last := filepath.Join(record.CheckpointsDir, checkpointName(42)+".policy")
	a, errA := os.ReadFile(filepath.Join(clean, last))
	b, errB := os.ReadFile(filepath.Join(dir, last))
	if errA != nil || errB != nil || !slices.Equal(a, b) {
		t.Errorf("the weights differ: %v, %v", errA, errB)
	}
}

// A run can begin with the weights of another run.
func TestBeginsWithARunsWeights(t *testing.T) {
	t.Parallel()
	language := digits(t)
	s := trainertest.New(t, trainertest.Options{Language: language, Dedups: true})
	text, dir := echoingOn(s, echoes(t, 4), config.OverRows), filepath.Join(t.TempDir(), "run")
	first, err := Start(t.Context(), mustLoad(t, text), Options{Dir: dir, World: scripted(nil)})
	if err != nil {
		t.Fatal(err)
	}
	points := first.Points
	second := imitated(t, mustLoad(t, text, "trainer.start="+dir, "sft.epochs=1"))
	if got, want := second[0].Values["val/loss"], points[len(points)-1].Values["val/loss"]; math.Abs(got-want) > 1e-5 {
		t.Errorf("it begins with a loss of %.5f, and the run before ended with %.5f", got, want)
	}
	third := mustLoad(t, text, "trainer.start=tinker://no/weights/x")
	other := Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil)}
	if _, err := Start(t.Context(), third, other); err == nil ||
		!strings.Contains(err.Error(), "begin with tinker://no/weights/x") {
		t.Errorf("a checkpoint that is not there: %v", err)
	}
}

func TestLearningRateSchedule(t *testing.T) {
	t.Parallel()
	m := imitation{
		optimizer: config.Optimizer{LearningRate: 1, Warmup: 2}, settings: config.SFT{Batch: 1, Epochs: 1},
		data: &examples.Set{Train: make([]examples.Example, 6)},
	}
	for schedule, want := range map[config.Schedule][]float64{
		config.Constant: {0.5, 1, 1, 1, 1, 1},
		config.Linear:   {0.5, 1, 1, 0.75, 0.5, 0.25},
		config.Cosine:   {0.5, 1, 1, 0.853553, 0.5, 0.146447},
	} {
		m.settings.Schedule = schedule
		for i, w := range want {
			if got := m.rates(i + 1).LearningRate; math.Abs(got-w) > 1e-6 {
				t.Errorf("%s: update %d has %g, want %g", schedule, i+1, got, w)
			}
		}
	}
}

// Whole tasks are held out, the same ones for a seed, and each epoch has every other row once.
func TestOrderOfExamples(t *testing.T) {
	t.Parallel()
	rows := echoes(t, 3)
	l, err := examples.Read(t.Context(), &config.SFT{Rows: rows, Validation: 0.3}, "", 7)
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]int{}
	for _, e := range l.Held {
		held[e.Row.Task]++
	}
	for _, e := range l.Train {
		if held[e.Row.Task] > 0 {
			t.Errorf("task %s is on both sides", e.Row.Task)
		}
	}
	if len(l.Held) != 6 || len(held) != 2 {
		t.Errorf("%d rows of %d tasks are held out of 15", len(l.Held), len(held))
	}
	m := imitation{seed: 7, settings: config.SFT{Batch: 4, Epochs: 3}, data: l}
	orders := map[string]bool{}
	for epoch := range 3 {
		seen := map[string]int{}
		order := ""
		for i := range m.perEpoch() {
			for _, e := range m.batch(epoch*m.perEpoch() + i + 1) {
				seen[fmt.Sprintf("%p", e.Row.IDs)]++
				order += fmt.Sprintf("%p ", e.Row.IDs)
			}
		}
		orders[order] = true
		if len(seen) != len(l.Train) {
			t.Errorf("epoch %d has %d of %d rows", epoch, len(seen), len(l.Train))
		}
	}
	if len(orders) != 3 {
		t.Errorf("%d orders in three epochs", len(orders))
	}
}
