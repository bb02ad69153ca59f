package train

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"deepswe/env"
	"deepswe/rl/metrics"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
)

// A run with a staleness of two finishes and loses nothing, on a real SkyRL and two real vLLMs that are killed and
// restarted, stopped and slowed down at random. DEEPSWE_TEST_CHAOS is the number of its steps. DEEPSWE_TEST_REAL is the
// folder of the scripts that start the servers (../shared/real), which find their programs through VENV and VLLM_VENV.
func TestChaosOnRealServers(t *testing.T) {
	steps, scripts := os.Getenv("DEEPSWE_TEST_CHAOS"), os.Getenv("DEEPSWE_TEST_REAL")
	if steps == "" || scripts == "" {
		t.Skip("DEEPSWE_TEST_CHAOS has a number of steps, and DEEPSWE_TEST_REAL the folder of scripts that start servers")
	}
	trainer, samplers := realServers(t, scripts)
	servers := append([]*realServer{trainer}, samplers...)
	for _, s := range servers {
		s.start(t.Context(), t)
		t.Cleanup(func() { s.signal(syscall.SIGKILL) })
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "tinker-check.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	load := func(steps string) config.Config {
		c, err := config.Load(text, builtin.Parts(), "trainer.base_url="+trainer.url, "trainer.model="+trainer.model,
			fmt.Sprintf("trainer.samplers=[%s/v1, %s/v1]", samplers[0].url, samplers[1].url), "trainer.patience=20m",
			"rollouts.max_staleness=2", "rollouts.retries=3", "rollouts.keep_logs=true", "checkpoint.every=1",
			"steps="+steps)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	run := func(c config.Config) []metrics.Point {
		began := time.Now()
		o := Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil)}
		o.World.Log = logger
		got, err := Start(t.Context(), c, o)
		if err != nil {
			t.Fatal(err)
		}
		nothingLost(t, c, o.Dir, got.Points)
		t.Logf("%d steps in %s", c.Steps, time.Since(began).Round(time.Second))
		return got.Points
	}
	undisturbed := pace(run(load("20")))

	ctx, stop := context.WithCancel(t.Context())
	var chaos sync.WaitGroup
	for i, s := range servers {
		chaos.Go(func() { s.disturb(ctx, t, rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(i)))) })
	}
	share := 0.0
	chaos.Go(func() { share = wellTogether(ctx, trainer, samplers) })
	points := run(load(steps))
	stop()
	chaos.Wait()
	t.Log(curve(points))
	t.Logf("a step took %.1f s, undisturbed %.1f s: %.0f%% of the throughput; the trainer and a sampler were well for %.0f%% "+
		"of the time", pace(points), undisturbed, 100*undisturbed/pace(points), 100*share)
	if undisturbed/pace(points) < 0.85*share {
		t.Error("the throughput is more than 15% below the share of the time in which the servers were well")
	}
	for _, s := range servers {
		t.Logf("%s was killed %d times, stopped %d times, slow %d times; it was of use for %.0f%% of the time", s.name,
			s.killed, s.stopped, s.slowed, 100*(1-float64(s.lost)/float64(s.disturbed)))
	}
}

// pace returns the mean time of a step in seconds, without the first five, in which servers compile.
func pace(points []metrics.Point) float64 {
	last := points[len(points)-1]
	for _, p := range points {
		if p.Step == 5 {
			return last.Time.Sub(p.Time).Seconds() / float64(last.Step-p.Step)
		}
	}
	return 0
}

// wellTogether returns the share of the time in which the trainer and at least one sampler are undisturbed. No run can
// use more of its servers, apart from the work that it does ahead.
func wellTogether(ctx context.Context, trainer *realServer, samplers []*realServer) float64 {
	well, all := 0, 0
	for env.Sleep(ctx, 100*time.Millisecond) == nil {
		all++
		if !trainer.ill.Load() && slices.ContainsFunc(samplers, func(s *realServer) bool { return !s.ill.Load() }) {
			well++
		}
	}
	return float64(well) / float64(max(all, 1))
}

// realServer is a server that is started by a script, which writes its process group to a file.
type realServer struct {
	name, script, state, url, model string
	args, variables                 []string

	ill                     atomic.Bool // it is being disturbed
	killed, stopped, slowed int
	lost, disturbed         time.Duration
}

// realServers returns SkyRL, and two vLLMs with the same model.
func realServers(t *testing.T, scripts string) (trainer *realServer, samplers []*realServer) {
	t.Helper()
	dir := t.TempDir()
	model := filepath.Join(dir, "tiny-qwen3")
	trainer = &realServer{
		name: "the trainer", script: filepath.Join(scripts, "tinker", "up.sh"), state: filepath.Join(dir, "trainer"),
		url: "http://127.0.0.1:18471", model: model, variables: []string{"PORT=18471", "MODEL=" + model},
	}
	trainer.variables = append(trainer.variables, "STATE="+trainer.state)
	if err := os.MkdirAll(trainer.state, 0o755); err != nil {
		t.Fatal(err)
	}
	// The script counts the lines of this file, so it must exist.
	if err := os.WriteFile(filepath.Join(trainer.state, "server.log"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		port := strconv.Itoa(18472 + i)
		s := &realServer{
			name: "sampler " + port, script: filepath.Join(scripts, "vllm", "up.sh"),
			state: filepath.Join(dir, "sampler"+port), url: "http://127.0.0.1:" + port, args: []string{port},
			variables: []string{"VLLM_MODEL=" + model, "VLLM_NAME=" + model, "VLLM_MAX_LEN=2048"},
		}
		s.variables = append(s.variables, "VLLM_STATE="+s.state)
		if err := os.MkdirAll(s.state, 0o755); err != nil {
			t.Fatal(err)
		}
		if venv := os.Getenv("VLLM_VENV"); venv != "" {
			if err := os.Symlink(venv, filepath.Join(s.state, "v")); err != nil {
				t.Fatal(err)
			}
		}
		samplers = append(samplers, s)
	}
	return trainer, samplers
}

func (s *realServer) start(ctx context.Context, t *testing.T) {
	cmd := exec.CommandContext(ctx, s.script, s.args...)
	cmd.Env = append(os.Environ(), s.variables...)
	if out, err := cmd.CombinedOutput(); err != nil && ctx.Err() == nil {
		t.Errorf("starting %s: %v\n%s", s.name, err, out)
	}
}

// signal sends a signal to all processes of the server.
func (s *realServer) signal(signal syscall.Signal) {
	text, err := os.ReadFile(filepath.Join(s.state, "pid"))
	if err != nil {
		return
	}
	if pid, err := strconv.Atoi(string(bytes.TrimSpace(text))); err == nil && pid > 1 {
		_ = syscall.Kill(-pid, signal)
	}
}

// disturb disturbs a server in one way after another until the context ends. Then the server runs normally.
func (s *realServer) disturb(ctx context.Context, t *testing.T, random *rand.Rand) {
	began := time.Now()
	defer func() { s.disturbed = time.Since(began) }()
	seconds := func(least, most int) time.Duration {
		return time.Duration(1000*least+random.IntN(1000*(most-least))) * time.Millisecond
	}
	for env.Sleep(ctx, seconds(20, 120)) == nil {
		at := time.Now()
		s.ill.Store(true)
		switch random.IntN(6) {
		case 0:
			s.killed++
			s.signal(syscall.SIGKILL)
			_ = env.Sleep(ctx, seconds(0, 30))
			s.start(context.WithoutCancel(ctx), t)
		case 1, 2, 3:
			s.stopped++
			s.signal(syscall.SIGSTOP)
			_ = env.Sleep(ctx, seconds(5, 90))
			s.signal(syscall.SIGCONT)
		default:
			s.slowed++
			for end := time.Now().Add(seconds(10, 60)); time.Now().Before(end) && ctx.Err() == nil; {
				s.signal(syscall.SIGSTOP)
				_ = env.Sleep(ctx, 900*time.Millisecond)
				s.signal(syscall.SIGCONT)
				_ = env.Sleep(ctx, 100*time.Millisecond)
			}
		}
		s.ill.Store(false)
		s.lost += time.Since(at)
	}
}
