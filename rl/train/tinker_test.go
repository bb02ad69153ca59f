package train

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/agent/run"
	"deepswe/env/testkit"
	"deepswe/rl"
	"deepswe/rl/frozenlake"
	"deepswe/rl/metrics"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/rl/trainer/embedded"
	"deepswe/rl/trainer/trainertest"
)

// residueOn is a run of the residue environment on a server.
const residueOn = `
name: residue
steps: 6
environment: {name: residue, modulus: 3, max_tokens: 6, validation_tasks: 2}
trainer: {name: tinker, base_url: %s, model: tiny, rank: 8, vocabulary: 15, patience: 5s}
rollouts: {tasks: 3, group: 4, workers: 4, keep_logs: false, retries: 0}
optimizer: {learning_rate: 0.02}
evaluate: {every: 0}
checkpoint: {every: 2}
`

func residueServer(t *testing.T, o trainertest.Options) (*trainertest.Server, string) {
	t.Helper()
	language := digits(t)
	o.Language = language
	s := trainertest.New(t, o)
	return s, fmt.Sprintf(residueOn, s.URL())
}

// curve returns what a run has learned, step by step.
func curve(points []metrics.Point) string {
	var b strings.Builder
	for _, p := range points {
		fmt.Fprintf(&b, "%d: reward %.6f, gradient %.5f, version %v\n", p.Step, p.Values["reward/mean"],
			p.Values["optim/grad_norm"], p.Values["policy/version"])
	}
	return b.String()
}

// A policy behind a server learns to cross lakes, over the whole protocol.
func TestLearningOverTheWire(t *testing.T) {
	t.Parallel()
	testkit.SkipUnderRace(t)
	s := trainertest.New(t, trainertest.Options{Dedups: true, Hidden: 32, Language: embedded.Language{
		Vocabulary: frozenlake.Vocabulary(), Window: frozenlake.CompactTokens(3), Reply: 2,
	}})
	c := mustLoad(t, fmt.Sprintf(`
name: lake
steps: 16
environment: {name: frozenlake, max_size: 3, radius: 3, max_tokens: 2, max_turns: 6}
trainer: {name: tinker, base_url: %s, model: tiny, rank: 8, vocabulary: %d}
rollouts: {tasks: 12, group: 8, keep_logs: false}
optimizer: {minibatches: 3, learning_rate: 0.02}
evaluate: {every: 0}
`, s.URL(), s.Vocabulary()))
	result, err := Start(t.Context(), c, Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil)})
	if err != nil {
		t.Fatal(err)
	}
	points := result.Points
	mean := func(points []metrics.Point) float64 {
		sum := 0.0
		for _, p := range points {
			sum += p.Values["reward/mean"]
		}
		return sum / float64(len(points))
	}
	first, last := mean(points[:3]), mean(points[len(points)-3:])
	t.Logf("mean reward %.3f at first, %.3f at last", first, last)
	if last < first+0.25 {
		t.Errorf("the mean reward rose from %.3f to %.3f only", first, last)
	}
}

// A run whose trainer is restarted, or whose replies are lost, takes the same steps as an undisturbed one: none is
// lost, and none is taken twice.
func TestLostTrainer(t *testing.T) {
	t.Parallel()
	_, text := residueServer(t, trainertest.Options{Dedups: true})
	clean, err := Start(t.Context(), mustLoad(t, text),
		Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil)})
	if err != nil {
		t.Fatal(err)
	}
	want := curve(clean.Points)
	pass := trainertest.Fault{}
	for _, dedups := range []bool{false, true} {
		for name, inject := range map[string]func(s *trainertest.Server){
			"before the first checkpoint": func(s *trainertest.Server) {
				s.Inject("forward_backward", pass, pass, pass, trainertest.Fault{Restart: true})
			},
			"at a step": func(s *trainertest.Server) {
				s.Inject("optim_step", pass, pass, pass, pass, pass, pass, pass, trainertest.Fault{Restart: true})
			},
			"while sampling": func(s *trainertest.Server) {
				faults := make([]trainertest.Fault, 40)
				s.Inject("asample", append(faults, trainertest.Fault{Restart: true})...)
			},
			"a reply is lost": func(s *trainertest.Server) {
				s.Inject("optim_step", pass, pass, pass, pass, pass, pass, trainertest.Fault{Drop: true}, pass, pass, pass,
					trainertest.Fault{Drop: true})
			},
		} {
			t.Run(fmt.Sprintf("%s, dedups %v", name, dedups), func(t *testing.T) {
				t.Parallel()
				s, text := residueServer(t, trainertest.Options{Dedups: dedups})
				inject(s)
				got, err := Start(t.Context(), mustLoad(t, text),
					Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil)})
				if err != nil {
					t.Fatal(err)
				}
				// One model is for the probe, one clears old gradients and one is trained; a lost trainer adds two
				// more.
				recovers := !dedups || name != "a reply is lost"
				if n := s.Count("create_model"); recovers != (n > 3) {
					t.Errorf("%d models were made: the fault did not have its effect", n)
				}
				if c := curve(got.Points); c != want {
					t.Errorf("the run learned\n%s, and undisturbed\n%s", c, want)
				}
			})
		}
	}
}

func TestResumedOverTheWire(t *testing.T) {
	t.Parallel()
	_, text := residueServer(t, trainertest.Options{})
	clean, err := Start(t.Context(), mustLoad(t, text),
		Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, text = residueServer(t, trainertest.Options{})
	o := Options{
		Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil),
		Observer: func(string, int) Observer { return &stopAt{step: 3, stop: cancel} },
	}
	if _, err := Start(ctx, mustLoad(t, text), o); !errors.Is(err, run.ErrInterrupted) {
		t.Fatal(err)
	}
	o.Resume, o.Observer = true, nil
	got, err := Start(t.Context(), mustLoad(t, text), o)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := curve(got.Points), curve(clean.Points); a != b {
		t.Errorf("resumed, the run learned\n%s, and undisturbed\n%s", a, b)
	}
}

// stopAt ends a run after a step.
type stopAt struct {
	step int
	stop func()
}

func (s *stopAt) Playing(int, part.Split, int, int) {}

func (s *stopAt) Warning(string) {}

func (s *stopAt) Point(p metrics.Point) {
	if p.Step == s.step {
		s.stop()
	}
}

func TestSamplerThatPartsStopsTheRun(t *testing.T) {
	t.Parallel()
	s, text := residueServer(t, trainertest.Options{})
	s.Inject("save_weights_for_sampler", trainertest.Fault{}, trainertest.Fault{}, trainertest.Fault{Stale: true})
	_, err := Start(t.Context(), mustLoad(t, text), Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil)})
	if !errors.Is(err, rl.ErrApart) {
		t.Errorf("the run ended with %v", err)
	}
}

func TestTinkerConfiguration(t *testing.T) {
	t.Parallel()
	const on = "environment: {name: residue}\ntrainer: {name: tinker, base_url: 'http://a', model: m%s}\n"
	for settings, want := range map[string]string{
		", normalisation: all": "probe, sum or mean",
		", rank: -1":           "rank is -1",
		", max_length: 3":      "max_length is 3",
		", base_url: nowhere":  "already defined",
	} {
		_, err := config.Load([]byte(fmt.Sprintf(on, settings)), builtin.Parts())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", settings, err)
		}
	}
}
