package train

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/rl/metrics"
	"deepswe/rl/train/config"
	"deepswe/rl/train/recipe"
	"deepswe/rl/train/record"
	"deepswe/rl/trainer/embedded"
	"deepswe/rl/trainer/trainertest"
)

// residueOnVLLM starts a server with three samplers, and returns the configuration of a run on them.
func residueOnVLLM(t *testing.T) (*trainertest.Server, []*trainertest.VLLM, string) {
	t.Helper()
	s, text := residueServer(t, trainertest.Options{})
	return s, samplersOf(t, s), text
}

func samplersOf(t *testing.T, s *trainertest.Server) (vllms []*trainertest.VLLM) {
	t.Helper()
	codec, err := embedded.NewCodec(digits(t).Vocabulary)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		vllms = append(vllms, trainertest.NewVLLM(t, s, codec))
	}
	return vllms
}

func on(vllms ...*trainertest.VLLM) []string {
	urls := ""
	for _, v := range vllms {
		urls += fmt.Sprintf(", %q", v.URL)
	}
	return []string{"trainer.samplers=[" + urls[2:] + "]", "trainer.patience=20s"}
}

// Every metric on the dashboard of a recipe is exported by some run, with samplers or with sandboxes.
func TestBoardOfARun(t *testing.T) {
	t.Parallel()
	_, vllms, text := residueOnVLLM(t)
	page := metrics.NewPrometheus()
	trained, err := Start(t.Context(), mustLoad(t, text, append(on(vllms...), "steps=2", "evaluate.every=1",
		"rollouts.max_staleness=1")...),
		Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil), Metrics: []metrics.Target{page.Target()}})
	if err != nil {
		t.Fatal(err)
	}
	areDefined(t, trained.Points)
	exported := httptest.NewRecorder()
	page.ServeHTTP(exported, nil)
	names := regexp.MustCompile(`"expr": ?"(deepswe_train_\w+)"`).FindAllStringSubmatch(recipe.Board("x"), -1)
	if len(names) < 20 {
		t.Errorf("the board shows %d metrics", len(names))
	}
	graded, err := sweRun(t, filepath.Join(t.TempDir(), "graded"), &solver{tokens: true})
	if err != nil {
		t.Fatal(err)
	}
	inSandboxes := map[string]bool{}
	for name := range graded.Points[len(graded.Points)-1].Values {
		inSandboxes[metrics.PrometheusName(name)] = true
	}
	for _, name := range names {
		if !inSandboxes[name[1]] && !strings.Contains(exported.Body.String(), "\n"+name[1]+"{run=") {
			t.Errorf("no run exports %s", name[1])
		}
	}
}

// A run learns the same whichever of its samplers answer, and one of them is enough.
func TestRunOutlivesSamplers(t *testing.T) {
	t.Parallel()
	_, vllms, text := residueOnVLLM(t)
	clean, err := Start(t.Context(), mustLoad(t, text, on(vllms...)...),
		Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil)})
	if err != nil {
		t.Fatal(err)
	}
	_, vllms, text = residueOnVLLM(t)
	vllms[0].Set(trainertest.Down)
	got, err := Start(t.Context(), mustLoad(t, text, on(vllms...)...), Options{
		Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil),
		Observer: func(string, int) Observer {
			return &stopAt{step: 3, stop: func() { vllms[1].Set(trainertest.Hung) }}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := curve(got.Points), curve(clean.Points); a != b {
		t.Errorf("with one sampler, the run learned\n%s, and with three\n%s", a, b)
	}
	if v := got.Points[5].Values; v["samplers/aside"] != 2 || v["samplers/ready"] != 1 {
		t.Errorf("at the end, %v samplers are aside and %v ready", v["samplers/aside"], v["samplers/ready"])
	}
}

// Validation during training gives the same scores as validation between steps, even if the run is stopped and resumed
// meanwhile.
func TestValidationBesideTheTrainingOfSamplers(t *testing.T) {
	t.Parallel()
	measured := func(stop int, set ...string) string {
		t.Helper()
		_, vllms, text := residueOnVLLM(t)
		c := mustLoad(t, text, append(append(on(vllms...), "evaluate.every=1", "evaluate.attempts=8"), set...)...)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o := Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil)}
		if stop > 0 {
			o.Observer = func(string, int) Observer { return &stopAt{step: stop, stop: cancel} }
			if _, err := Start(ctx, c, o); !errors.Is(err, run.ErrInterrupted) {
				t.Fatal(err)
			}
			o.Resume, o.Observer = true, nil
		}
		got, err := Start(t.Context(), c, o)
		if err != nil {
			t.Fatal(err)
		}
		scores := map[int]float64{}
		for _, p := range got.Points {
			if v, ok := p.Values["val/pass@1"]; ok {
				scores[p.Step] = v
			}
		}
		return fmt.Sprint(scores)
	}
	want := measured(0, "evaluate.workers=0")
	for _, stop := range []int{0, 3} {
		if got := measured(stop, besides); got != want {
			t.Errorf("stopped after step %d, the scores beside the training are %s, and between steps %s", stop, got, want)
		}
	}
	if strings.Count(want, ":") != 7 {
		t.Errorf("scores of all steps: %s", want)
	}
}

// A run with a staleness of two finishes while its samplers are killed, hang, are slow, refuse and restart at random,
// and with DEEPSWE_TEST_FULL its trainer as well. It plays each rollout once, learns from every group once, and
// publishes every version in order.
func TestRunOnUnreliableServers(t *testing.T) {
	t.Parallel()
	seeds, sums := 1, []bool{false}
	if os.Getenv("DEEPSWE_TEST_FULL") != "" {
		seeds, sums = 20, []bool{false, true}
	}
	for seed := range seeds {
		for _, sums := range sums {
			t.Run(fmt.Sprintf("seed %d, sums %v", seed, sums), func(t *testing.T) {
				if seeds > 1 {
					t.Parallel()
				}
				s, text := residueServer(t, trainertest.Options{Sums: sums, Dedups: seed%2 > 0, MaxModels: 50})
				runOnUnreliable(t, s, samplersOf(t, s), text, uint64(seed), seeds > 1)
			})
		}
	}
}

func runOnUnreliable(
	t *testing.T, s *trainertest.Server, vllms []*trainertest.VLLM, text string, seed uint64, trainer bool,
) {
	ctx, stop := context.WithCancel(t.Context())
	var chaos sync.WaitGroup
	for i, v := range vllms {
		chaos.Go(func() { breakSampler(ctx, v, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	if trainer {
		chaos.Go(func() { breakTrainer(ctx, s, rand.New(rand.NewPCG(seed, uint64(len(vllms))))) })
	}
	defer chaos.Wait()
	defer stop()
	o := Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil)}
	c := mustLoad(t, text, append(on(vllms...), "rollouts.max_staleness=2", "rollouts.keep_logs=true",
		"rollouts.retries=2", "steps=10")...)
	got, err := Start(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	nothingLost(t, c, o.Dir, got.Points)
}

// nothingLost checks a finished run with a staleness of two: it published each of its versions, learned from every
// group once, and played every rollout once.
func nothingLost(t *testing.T, c config.Config, dir string, points []metrics.Point) {
	t.Helper()
	for i, p := range points {
		if p.Values["policy/version"] != float64(i+1) || p.Values["staleness/max"] > 2 {
			t.Errorf("step %d has version %v and rollouts %v updates old", p.Step, p.Values["policy/version"],
				p.Values["staleness/max"])
		}
	}
	times := map[string]int{}
	visits, err := record.ReadVisits(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range visits {
		times[v.Group]++
	}
	for group, n := range times {
		if n != 1 {
			t.Errorf("group %s was learned from %d times", group, n)
		}
	}
	if len(points) != c.Steps || len(times) != c.Steps*c.Rollouts.Tasks {
		t.Errorf("%d steps learned from %d groups", len(points), len(times))
	}
	onceEach(t, dir, c)
}

// breakSampler puts a server into one state after another.
func breakSampler(ctx context.Context, v *trainertest.VLLM, random *rand.Rand) {
	for ctx.Err() == nil {
		switch n := random.IntN(8); n {
		case 6:
			v.Restart()
		default:
			v.Set([]trainertest.State{
				trainertest.Down, trainertest.Hung, trainertest.Busy, trainertest.Slow, trainertest.Stuck, trainertest.Up,
				trainertest.Up, trainertest.Up}[n])
		}
		time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
		v.Set(trainertest.Up)
		time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
	}
}

// breakTrainer makes a request fail now and then.
func breakTrainer(ctx context.Context, s *trainertest.Server, random *rand.Rand) {
	paths := []string{
		"forward", "forward_backward", "optim_step", "retrieve_future", "save_weights_for_sampler", "archive", "save_weights",
		"create_model", "load_weights", "create_session",
	}
	for env.Sleep(ctx, time.Duration(1500+random.IntN(6000))*time.Millisecond) == nil {
		s.Inject(paths[random.IntN(len(paths))], []trainertest.Fault{
			{Restart: true}, {Status: 429, Detail: "slow down"}, {Status: 500, Detail: "Internal Server Error"},
			{Delay: time.Second}, {Drop: true},
		}[random.IntN(5)])
	}
}

// A run that is asked to stop while its trainer hangs in an update abandons it after rollouts.drain, a checkpoint after
// as long again, or each when it is asked again. It can be resumed in all cases.
func TestStoppedWhileTheTrainerHangs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path  string
		drain time.Duration
	}{
		{"forward_backward", time.Second}, {"forward_backward", time.Hour}, {"optim_step", time.Second},
		{"optim_step", time.Hour}, {"save_weights", time.Second}, {"save_weights", time.Hour},
	} {
		path, drain := c.path, c.drain
		t.Run(fmt.Sprint(path, drain), func(t *testing.T) {
			t.Parallel()
			s, vllms, text := residueOnVLLM(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			abandon, asked := make(chan struct{}), time.Now()
			o := Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil)}
			o.World.Abandon = abandon
			o.Observer = func(string, int) Observer {
				return &stopAt{step: 2, stop: func() {
					s.Inject(path, trainertest.Fault{Delay: 10 * time.Minute})
					asked = time.Now().Add(2 * time.Second)
					time.AfterFunc(2*time.Second, cancel)
					if drain > time.Minute {
						time.AfterFunc(3*time.Second, func() { close(abandon) })
					}
				}}
			}
			c := mustLoad(t, text, append(on(vllms...), "checkpoint.every=1", "rollouts.drain="+drain.String())...)
			_, err := Start(ctx, c, o)
			if took := time.Since(asked); !errors.Is(err, run.ErrInterrupted) || took > 10*time.Second {
				t.Errorf("after %s: %v", took, err)
			}
			o.Resume, o.World.Abandon, o.Observer = true, nil, nil
			got, err := Start(t.Context(), c, o)
			if err != nil || len(got.Points) != 6 {
				t.Errorf("resumed: %d steps, %v", len(got.Points), err)
			}
		})
	}
}

// A run whose trainer hangs in every request, also in those by which it samples, ends soon after it is asked to stop,
// in its first step or later. It can be resumed from its last checkpoint, or from its beginning.
func TestStoppedWhileEveryRequestHangs(t *testing.T) {
	t.Parallel()
	for _, step := range []int{0, 1, 3} {
		t.Run(fmt.Sprint("after step ", step), func(t *testing.T) {
			t.Parallel()
			s, text := residueServer(t, trainertest.Options{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			asked := make(chan time.Time, 1)
			o := Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil)}
			o.Observer = func(string, int) Observer {
				return &stopAt{step: step, stop: func() {
					s.Hang()
					time.AfterFunc(2*time.Second, func() {
						asked <- time.Now()
						cancel()
					})
				}}
			}
			c := mustLoad(t, text, "evaluate.every=100", "checkpoint.every=2", "rollouts.drain=1s")
			_, err := Start(ctx, c, o)
			if took := time.Since(<-asked); !errors.Is(err, run.ErrInterrupted) || took > 10*time.Second {
				t.Errorf("after %s: %v", took, err)
			}
			s.Stop()
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			o.Resume, o.Observer = true, nil
			got, err := Start(t.Context(), c, o)
			if err != nil || len(got.Points) < 6 {
				t.Errorf("resumed: %d steps, %v", len(got.Points), err)
			}
		})
	}
}

// A run that is stopped while no sampler takes a publication keeps the step, and can be resumed with two of the
// samplers, whether the third is named no longer or is named and down.
func TestStoppedAtAPublication(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set  []string
		down bool
	}{{nil, false}, {nil, true}, {[]string{"rollouts.max_staleness=1"}, true}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			s, vllms, text := residueOnVLLM(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			// The archive of the third step is delayed, so that the servers hang before they can load it.
			s.Inject("archive", append(make([]trainertest.Fault, 3), trainertest.Fault{Delay: time.Second})...)
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				for s.Count("save_weights_for_sampler") < 4 && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				for _, v := range vllms {
					v.Set(trainertest.Hung)
				}
				cancel()
			}()
			o := Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil)}
			set := append(c.set, "rollouts.drain=1s")
			_, err := Start(ctx, mustLoad(t, text, append(set, on(vllms...)...)...), o)
			cancel()
			<-stopped
			if !errors.Is(err, run.ErrInterrupted) || !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			for _, v := range vllms {
				v.Set(trainertest.Up)
			}
			var at state
			if err := disk.ReadJSON(filepath.Join(o.Dir, record.StateFile), &at); err != nil {
				t.Fatal(err)
			}
			if at.Step != 2 || at.Pending == nil {
				t.Errorf("it was saved at step %d, pending: %v", at.Step, at.Pending)
			}
			o.Resume = true
			named := vllms[1:]
			if c.down {
				named = vllms
				vllms[0].Set(trainertest.Down)
			}
			got, err := Start(t.Context(), mustLoad(t, text, append(set, on(named...)...)...), o)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(got.Points); n != 6 {
				t.Errorf("the run has %d points", n)
			}
			for i, p := range got.Points {
				if p.Values["policy/version"] != float64(i+1) {
					t.Errorf("after step %d, the version is %v", p.Step, p.Values["policy/version"])
				}
			}
		})
	}
}
