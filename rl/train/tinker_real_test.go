package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"deepswe/agent/run"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
	"deepswe/rl/train/games"
	"deepswe/rl/trainer/trainertest"
)

// A transformer behind the real server learns the task of tinker-check: undisturbed, with faults, and when the run is
// stopped and resumed.
func TestRealServer(t *testing.T) {
	url, base := trainertest.RealServer(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "tinker-check.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const steps = 16
	load := func(url string, seed int) config.Config {
		c, err := config.Load(text, builtin.Parts(), "trainer.base_url="+url, "trainer.model="+base,
			fmt.Sprint("seed=", seed), fmt.Sprint("steps=", steps))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Run("undisturbed", func(t *testing.T) {
		learns(t, load(url, 1), Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil)})
	})
	t.Run("with faults on the way", func(t *testing.T) {
		proxy := trainertest.NewProxy(t, url)
		pass, drop := trainertest.ProxyFault{}, trainertest.ProxyFault{Drop: true}
		// The probe and the clearing of gradients take steps too.
		proxy.Inject("optim_step", pass, pass, pass, pass, pass, pass, pass, pass, drop)
		proxy.Inject("forward_backward", pass, pass, pass, pass, pass, pass, pass, pass, pass, pass, drop)
		proxy.Inject("asample", append(make([]trainertest.ProxyFault, 70), drop, trainertest.ProxyFault{Status: 502})...)
		proxy.Inject("retrieve_future", append(make([]trainertest.ProxyFault, 90), drop,
			trainertest.ProxyFault{Status: 408}, trainertest.ProxyFault{Status: 500, Text: "Internal Server Error"})...)
		learns(t, load(proxy.URL, 2), Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil)})
		if left := proxy.Waiting(); len(left) > 0 {
			t.Errorf("the requests to %v have not failed", left)
		}
	})
	t.Run("stopped and resumed", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := load(url, 3)
		o := Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil),
			Observer: func(string, int) Observer { return &stopAt{step: 6, stop: cancel} }}
		if _, err := Start(ctx, c, o); !errors.Is(err, run.ErrInterrupted) {
			t.Fatal(err)
		}
		o.Resume, o.Observer = true, nil
		learns(t, c, o)
	})
}

// learns runs a configuration, and checks that the verdict on the run is that the trainer works.
func learns(t *testing.T, c config.Config, o Options) {
	t.Helper()
	result, err := Start(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	points := result.Points
	if len(points) != c.Steps {
		t.Fatalf("%d steps of %d", len(points), c.Steps)
	}
	verdict, err := games.Verdict(c, points)
	t.Logf("%s\n%s", verdict, curve(points))
	if err != nil {
		t.Error(err)
	}
}
