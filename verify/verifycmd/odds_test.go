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

// byChance are patches that guess which tests are wrong, each for one suite.
var byChance = []struct {
	suite string
	patch map[string]string
}{
	{"files", map[string]string{"+desk/__init__.py": coin}},
	{"repeats", map[string]string{"+pages/__init__.py": coin}},
	{"partly", map[string]string{"+desk/__init__.py": coin}},
}

// coin lets each test that needs the fix pass or fail by chance.
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

// openBwrap opens a bubblewrap provider, which is closed at the end of the test.
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

// A cheat that has to guess which tests are wrong wins no more often than the verdict's odds say: the test fails if
// that many wins in 20 tries have a probability below one in a thousand.
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
			t.Errorf("%s: %d of %d is more often than by chance", cheat.suite, len(won), times)
		}
	}
}

// atLeast returns the probability that something of probability p happens at least k times in n tries.
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
