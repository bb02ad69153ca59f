package verifycmd

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"deepswe/env"
	"deepswe/env/local"
	"deepswe/env/testkit"
	"deepswe/verify"
)

// byChance are cheats for pytest that guess which tests are wrong, with the odds that the verdict on a fix states.
var byChance = []struct {
	suite string
	patch map[string]string
}{
	{"files", map[string]string{"+desk/__init__.py": coin}},
	{"repeats", map[string]string{"+pages/__init__.py": coin}},
	{"partly", map[string]string{"+desk/__init__.py": coin}},
}

// coin lets each test that cannot pass without a fix pass or fail by chance.
const coin = `

import random
import sys

_m = sys.modules.get("_py" + "test.python")
if _m:
    _run = _m.Function.runtest

    def _runtest(item):
        if item.name in ("test_plain", "test_found"):
            return _run(item)
        assert random.random() < 0.5

    _m.Function.runtest = _runtest
`

// openBwrap opens bubblewrap's sandboxes, which are closed at the end of the test.
func openBwrap(t *testing.T) env.Provider {
	t.Helper()
	p, err := local.NewBwrap(local.Options{Scratch: t.TempDir()})
	if err != nil {
		testkit.Skip(t, "bwrap", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Where it has to be guessed which tests are wrong, a reward is as rare as the verdict says: of 20 times, it is not won
// more often than by chance with one in a thousand. Withheld tests are never guessed.
func TestOdds(t *testing.T) {
	if os.Getenv("DEEPSWE_TEST_FULL") == "" {
		testkit.Skip(t, "odds", "DEEPSWE_TEST_FULL is not set")
	}
	p := openBwrap(t)
	e := &verify.Evaluator{Provider: p, Run: "test-odds", Training: true, Evidence: verify.PairedEvidence}
	const times = 20
	for _, cheat := range byChance {
		s := readSuite(t, filepath.Join("../../testdata/attacks", cheat.suite+".txtar"))
		s.task.Image = ""
		fix, err := e.Evaluate(t.Context(), s.task, s.patch(t, "honest gold"))
		if err != nil || fix.Reward != 1 {
			t.Fatalf("%s: a fix has reward %v: %s, %v\n%s", cheat.suite, fix.Reward, fix.Detail, err, fix.Log)
		}
		s.patches["cheat a coin"] = cheat.patch
		patch := s.patch(t, "cheat a coin")
		wins, atOnce := make(chan string, times), make(chan struct{}, 2)
		var plays sync.WaitGroup
		for range times {
			plays.Go(func() {
				atOnce <- struct{}{}
				defer func() { <-atOnce }()
				switch v, err := e.Evaluate(t.Context(), s.task, patch); {
				case err != nil:
					t.Error(err)
				case v.Reward == 1:
					wins <- string(v.Confirmation.Evidence)
				}
			})
		}
		plays.Wait()
		close(wins)
		var won []string
		for one := range wins {
			won = append(won, one)
		}
		chance := 1 / fix.Confirmation.Odds
		if fix.Confirmation.Odds == 0 {
			chance = 0
		}
		t.Logf("%s: a coin wins %d of %d times at odds of one in %g (%s)", cheat.suite, len(won), times,
			fix.Confirmation.Odds, strings.Join(won, " "))
		if atLeast(len(won), times, chance) < 0.001 {
			t.Errorf("%s: that is more often than by chance", cheat.suite)
		}
	}
}

// atLeast returns how probable it is that something with a probability of p happens k or more times of n.
func atLeast(k, n int, p float64) (sum float64) {
	for ; k <= n; k++ {
		ways := 1.0
		for i := range k {
			ways *= float64(n-i) / float64(k-i)
		}
		sum += ways * math.Pow(p, float64(k)) * math.Pow(1-p, float64(n-k))
	}
	return sum
}
