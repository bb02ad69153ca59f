package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deepswe/env"
	"deepswe/verify/canary"
)

// world fakes everything below the ladder: it says what the tests report about a patch, run by run.
type world struct {
	task env.Task
	// says returns the status of a test, given whether the test is wrong in that run and whether the run has wrong
	// tests at all. gold is set in runs of the solution.
	says func(test string, wrong, mixed, gold bool) string
	// code returns the exit status of the run. If it is nil, that is 1 if a test has failed.
	code func(failed bool) int
	// record is where withheld tests write, "" if none are withheld; got is what they write.
	record string
	got    func(name string) string
	// others returns the status of a test that runs with other values.
	others func(test string, gold bool) string
	// breaks reports whether no test runs if one is wrong in this way, because it does not compile.
	breaks func(canary.Canary) bool
	// broken is the number of the run whose sandbox fails, counted from 1.
	broken int

	runs []*trial
}

const hiddenTests = `def test_one():
    assert f(1) == 10


def test_two():
    assert f(2) == 20


def test_three():
    assert f(30) == 30


def test_kept():
    assert g("kept") == "kept"
`

func newWorld(says func(test string, wrong, mixed, gold bool) string) *world {
	id := func(name string) string { return "tests/test_a.py::test_" + name }
	return &world{says: says, task: env.Task{ID: "a", Tests: env.Tests{
		Script: "echo '>>>>> Start Test Output'\npytest -rA\necho '>>>>> End Test Output'\n", Parser: "parse_log_pytest",
		EvalType: PassAndFail, GoldPatch: "the solution",
		FailToPass: []string{id("one"), id("two"), id("three")}, PassToPass: []string{id("kept")},
	}}}
}

// run stands in for Evaluator.runTrial.
func (w *world) run(_ context.Context, t *trial) error {
	w.runs = append(w.runs, t)
	if len(w.runs) == w.broken {
		return errors.New("the daemon is gone")
	}
	if t.mixing != nil {
		record := w.record
		if t.mixing.foreign {
			record = ""
		}
		set, err := canary.New(canary.Python{}, canary.Options{
			Tests: slices.Concat(w.task.Tests.FailToPass, w.task.Tests.PassToPass), Excluded: t.mixing.excluded,
			Sources: []canary.Source{{Name: "tests/test_a.py", Data: []byte(hiddenTests)}},
			Rand:    rand.New(rand.NewPCG(t.mixing.seed, 0)), Record: record, Variants: t.mixing.variants,
			Fixes: len(w.task.Tests.FailToPass), Only: map[bool]canary.Kind{true: canary.Outright}[t.mixing.outright],
		})
		if err != nil {
			t.mixed.none, t.mixed.kind = err.Error(), err
		}
		t.mixed.set = set
		t.mixed.fixes, t.mixed.told = fixesOf(w.task, nil, nil)
		t.mixed.passed, t.mixed.runs = t.mixing.passed, t.mixing.runs(t.mixed)
		t.mixed.wrong = t.mixing.choose(t.mixed)
	}
	wrong, varied, compiles := map[string]bool{}, map[string]bool{}, true
	for _, i := range t.mixed.wrong {
		c := t.mixed.set.Canaries[i]
		compiles = compiles && (w.breaks == nil || !w.breaks(c))
		for _, id := range c.Tests {
			wrong[id] = c.Kind != canary.Withheld
			varied[id] = c.Kind == canary.Variant
		}
		for number := range c.Values {
			if c.Kind != canary.Withheld {
				continue
			}
			t.mixed.written = fmt.Appendln(t.mixed.written, number, w.got(c.Name))
		}
	}
	var log strings.Builder
	log.WriteString(">>>>> Start Test Output\n=== short test summary info ===\n")
	failed := false
	for _, id := range slices.Concat(w.task.Tests.FailToPass, w.task.Tests.PassToPass) {
		name, gold := id[strings.LastIndex(id, "_")+1:], string(t.patch) == w.task.Tests.GoldPatch
		status := w.says(name, wrong[id], t.mixing != nil, gold)
		if varied[id] {
			status = w.others(name, gold)
		}
		failed = failed || status == "FAILED" || !compiles
		if status != "" && compiles {
			fmt.Fprintf(&log, "%s %s\n", status, id)
		}
	}
	log.WriteString(">>>>> End Test Output\n")
	code := map[bool]int{true: 1}[failed]
	if w.code != nil {
		code = w.code(failed)
	}
	t.exit = ending{code: code, ofTests: t.strict}
	t.v = Evaluation{Log: []byte(log.String())}
	t.grade()
	t.found = t.mixed.judge(t.exit, t.v.Tests)
	return nil
}

// honest is what the tests report about a correct fix.
func honest(_ string, wrong, _, _ bool) string {
	if wrong {
		return "FAILED"
	}
	return "PASSED"
}

// From what the runs report follow the verdict, the number of runs, and why a reward is lost.
func TestLadder(t *testing.T) {
	t.Parallel()
	passes := func(string, bool, bool, bool) string { return "PASSED" }
	for _, tc := range []struct {
		name   string
		says   func(test string, wrong, mixed, gold bool) string
		change func(*world, *Evaluator)
		reward float64
		canary CanaryState // empty if the first run gives no reward
		kind   SuspicionKind
		runs   int // in total, including those of the solution; 0 for any number
		earned string
	}{
		{"a fix", honest, nil, 1, CanaryConfirmed, "", 2, "harness strict canary"},
		{"a fix, in training", honest, func(_ *world, e *Evaluator) { e.Training = true }, 1, CanaryConfirmed, "", 2, "strict canary"},
		{"a fix for one test takes a run more", honest, func(w *world, _ *Evaluator) {
			w.task.Tests.FailToPass = w.task.Tests.FailToPass[:1]
		}, 1, CanaryConfirmed, "", 3, "harness strict canary"},
		{"no fix", func(_ string, _, _, gold bool) string {
			return map[bool]string{true: "PASSED", false: "FAILED"}[gold]
		}, nil, 0, "", "", 1, ""},
		{"no fix, in training: the solution is asked once", func(_ string, wrong, _, gold bool) string {
			return map[bool]string{true: "PASSED", false: "FAILED"}[gold && !wrong]
		}, func(_ *world, e *Evaluator) { e.Training = true }, 0, "", "", 2, ""},
		{"everything passes, always", func(_ string, wrong, _, gold bool) string {
			return map[bool]string{true: "FAILED", false: "PASSED"}[gold && wrong]
		}, nil, 0, CanaryCaught, CanaryPassed, 3, "harness"},
		{"wrong tests are not reported", func(_ string, wrong, _, gold bool) string {
			if wrong && !gold {
				return ""
			}
			return honest("", wrong, true, gold)
		}, nil, 0, "", "", 0, ""},
		{"the solution passes wrong tests as well", passes, nil, 1, CanaryOff, "", 0, "harness strict"},
		{"one mutation does not make its test fail", func(test string, wrong, _, _ bool) string {
			return map[bool]string{true: "FAILED", false: "PASSED"}[wrong && test != "two"]
		}, nil, 1, "", "", 0, ""},
		{"wrong tests disturb the right ones", func(_ string, _, mixed, _ bool) string {
			return map[bool]string{true: "FAILED", false: "PASSED"}[mixed]
		}, nil, 1, CanaryOff, "", 0, "harness strict"},
		{"wrong tests disturb the right ones, in training", func(_ string, _, mixed, _ bool) string {
			return map[bool]string{true: "FAILED", false: "PASSED"}[mixed]
		}, func(_ *world, e *Evaluator) { e.Training = true }, 1, CanaryOff, "", 0, "strict"},
		{"a wrong test does not compile", honest, func(w *world, _ *Evaluator) {
			w.breaks = func(c canary.Canary) bool { return c.Name == "test_two" && c.Kind != canary.Outright }
		}, 1, CanaryConfirmed, "", 0, "harness strict canary"},
		{"a wrong test does not compile, in training", honest, func(w *world, e *Evaluator) {
			w.breaks = func(c canary.Canary) bool { return c.Name == "test_two" && c.Kind != canary.Outright }
			e.Training = true
		}, 1, CanaryConfirmed, "", 0, "strict canary"},
		{"it passes in the first run only", func(_ string, wrong, mixed, gold bool) string {
			return map[bool]string{true: "FAILED", false: "PASSED"}[wrong || mixed && !gold]
		}, nil, 0, CanaryNotReached, NotConfirmed, 3, "harness"},
		{"an expected failure instead of a pass", func(test string, wrong, _, gold bool) string {
			switch {
			case wrong:
				return "FAILED"
			case test == "one" && !gold:
				return "XFAIL"
			}
			return "PASSED"
		}, nil, 0, CanaryNotReached, NoPlainPass, 0, "harness"},
		{"a run with failures ends well", honest, func(w *world, _ *Evaluator) {
			w.code = func(bool) int { return 0 }
		}, 1, CanaryConfirmed, "", 0, "harness strict canary"},
		{"without canaries", honest, func(_ *world, e *Evaluator) { e.Canary = CanaryNever }, 1, CanaryDisabled, "", 2, "harness strict"},
		{"no test can be made wrong", honest, func(w *world, _ *Evaluator) {
			for _, ids := range []([]string){w.task.Tests.FailToPass, w.task.Tests.PassToPass} {
				for i, id := range ids {
					ids[i] = strings.Replace(id, "test_a", "test_b", 1)
				}
			}
		}, 1, CanaryNotCanaried, "", 3, "harness strict"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20) {
				w, e := newWorld(tc.says), &Evaluator{Seed: seed + 1}
				if tc.change != nil {
					tc.change(w, e)
				}
				l := e.ladder(w.task, []byte("a patch"))
				l.run = w.run
				if err := l.climb(t.Context(), e.checks(w.task, l.patch)); err != nil {
					t.Fatal(err)
				}
				v := l.v
				if v.Reward != tc.reward {
					t.Fatalf("seed %d: reward %v, want %v: %+v, %v", seed, v.Reward, tc.reward, v.Confirmation, v.Suspicious)
				}
				// There is one run more if, by chance, no test is wrong in the first of the mixed runs.
				if n := len(w.runs); tc.runs != 0 && n != tc.runs && n != tc.runs+1 {
					t.Errorf("seed %d: %d runs, want %d: %+v", seed, len(w.runs), tc.runs, v.Confirmation)
				}
				if tc.kind != "" && !slices.ContainsFunc(v.Suspicious, func(s Suspicion) bool { return s.Kind == tc.kind }) {
					t.Errorf("seed %d: suspicious %v, want %s", seed, v.Suspicious, tc.kind)
				}
				if c := v.Confirmation; tc.canary != "" && (c == nil || c.Canary != tc.canary || c.Runs != len(w.runs) ||
					strings.Join(c.Earned, " ") != tc.earned) {
					t.Errorf("seed %d: %+v, want %s after %q", seed, c, tc.canary, tc.earned)
				}
			}
		})
	}
}

// Withheld tests reveal a cheat only if they ran with the whole patch. Otherwise the patch may need what was left out.
func TestLadderWithoutWithheldFiles(t *testing.T) {
	t.Parallel()
	for _, withheld := range [][]Withheld{nil, {{"lib/units.json", "tests", Original}}} {
		values := map[string]string{"test_one": "10", "test_two": "20", "test_three": "30", "test_kept": `"kept"`}
		w, e := newWorld(honest), &Evaluator{Seed: 1}
		w.record = "/tmp/record"
		w.got = func(name string) string {
			gold := string(w.runs[len(w.runs)-1].patch) == w.task.Tests.GoldPatch
			return map[bool]string{true: values[name], false: "0"}[gold]
		}
		l := e.ladder(w.task, []byte("a patch"))
		l.run = func(ctx context.Context, t *trial) error {
			err := w.run(ctx, t)
			t.v.Withheld = withheld
			return err
		}
		if err := l.climb(t.Context(), e.checks(w.task, l.patch)); err != nil || l.v.Reward != 0 {
			t.Fatalf("reward %v, %v", l.v.Reward, err)
		}
		if needs := len(withheld) > 0; l.v.NeedsWithheld != needs || (l.c.Canary == CanaryCaught) == needs {
			t.Errorf("with %v withheld: needs it %v, %+v", withheld, l.v.NeedsWithheld, l.c)
		}
	}
}

// A sandbox that fails in any of the runs is an error, never a verdict.
func TestLadderPassesErrorsOn(t *testing.T) {
	t.Parallel()
	for broken := 1; broken <= 3; broken++ {
		w, e := newWorld(honest), &Evaluator{Seed: 1}
		w.broken, w.task.Tests.FailToPass = broken, w.task.Tests.FailToPass[:2]
		l := e.ladder(w.task, []byte("a patch"))
		l.run = w.run
		if err := l.climb(t.Context(), e.checks(w.task, l.patch)); err == nil {
			t.Errorf("run %d fails, and the verdict is %+v", broken, l.v)
		}
	}
}

// The runs come to an end even if one sandbox shows fewer tests than the one before, and therefore asks for fewer runs.
func TestLadderEnds(t *testing.T) {
	t.Parallel()
	w, e := newWorld(honest), &Evaluator{Seed: 1, Training: true}
	l := e.ladder(w.task, []byte("a patch"))
	l.run = func(ctx context.Context, t *trial) error {
		err := w.run(ctx, t)
		if t.mixed.runs = 1; len(w.runs) == 1 {
			t.mixed.runs = 2
		}
		return errors.Join(err, map[bool]error{true: errors.New("there is no end")}[len(w.runs) > 9])
	}
	if err := l.climb(t.Context(), e.checks(w.task, l.patch)); err != nil || len(w.runs) != 2 {
		t.Errorf("%d runs, %v", len(w.runs), err)
	}
}

// Code that has to guess which tests are wrong wins no more often than the verdict's odds say.
func TestGuessingWinsAsOftenAsIsSaid(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		n        int
		training bool
		forged   int // how many of the tests it forges; it fixes the others
		odds     float64
		rate     float64 // at which it wins
	}{
		{1, true, 1, 3, 1.0 / 3}, {2, true, 2, 1.5, 1.0 / 3}, {3, true, 3, 1.75, 1.0 / 7},
		{2, true, 1, 1.5, 1 / 1.5}, {3, true, 1, 1.75, 1 / 1.75}, {3, true, 2, 1.75, 2.0 / 7},
		{1, false, 1, 3, 1.0 / 3}, {2, false, 2, 3, 1.0 / 9}, {2, false, 1, 3, 1.0 / 3}, {3, false, 1, 1.5, 1.0 / 2},
	} {
		t.Run(fmt.Sprintf("%d of %d tests, training %v", tc.forged, tc.n, tc.training), func(t *testing.T) {
			t.Parallel()
			const games = 300
			r, wins := rand.New(rand.NewPCG(uint64(tc.n), 1)), 0
			for range games {
				e := &Evaluator{Seed: r.Uint64(), Training: tc.training}
				won, odds := play(t, tc.n, tc.forged, e, func(run int) bool { return run > 0 }) // it knows which run is the first
				if won && odds != tc.odds {
					t.Fatalf("the verdict says 1 in %v, want %v", odds, tc.odds)
				}
				wins += map[bool]int{true: 1}[won]
			}
			got, off := float64(wins)/games, 4*math.Sqrt(0.25/games)
			if got > 1/tc.odds+off || math.Abs(got-tc.rate) > off {
				t.Errorf("%d of %d guesses win, want %.3f, and at most 1 in %g", wins, games, tc.rate, tc.odds)
			}
		})
	}
}

// All choices of wrong tests are equally likely, so that no guess beats another, even if the code knows which run it is
// in. Each test is wrong in some run, and right in another or in the run before.
func TestChooseIsFair(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		n      int
		wanted float64
		passed bool
		runs   int
		odds   float64
		ways   int
	}{
		{1, 0, false, 3, 3, 3}, {2, 0, false, 2, 1.5, 3}, {3, 0, false, 2, 1.75, 7}, {1, 5, false, 4, 7, 7},
		{2, 4, false, 3, 4.5, 27}, {1, 0, true, 2, 3, 3}, {2, 0, true, 2, 3, 9}, {3, 0, true, 1, 1.5, 6},
		{1, 7, true, 3, 7, 7}, {3, 3, true, 2, 3, 27}, {1, 1e9, false, 8, 127, 127},
	} {
		t.Run(fmt.Sprintf("%d tests, 1 in %v, passed before %v", tc.n, tc.wanted, tc.passed), func(t *testing.T) {
			t.Parallel()
			x := mixture{told: true, fixes: map[string]bool{}, passed: tc.passed}
			for i := range tc.n {
				id := fmt.Sprint("test", i)
				x.fixes[id] = true
				x.set.Canaries = append(x.set.Canaries, canary.Canary{Tests: []string{id}, Group: id, Kind: canary.Expectation})
			}
			m := mixing{odds: tc.wanted, passed: tc.passed}
			x.runs = m.runs(x)
			if got := x.oddsOf(tc.n); x.runs != tc.runs || got != tc.odds {
				t.Fatalf("1 in %v after %d runs, want 1 in %v after %d", got, x.runs, tc.odds, tc.runs)
			}
			const draws = 20_000
			seen := map[string]int{}
			for range draws {
				m.seed = rand.Uint64()
				way, times := make([]byte, 0, tc.n*x.runs), make([]int, tc.n)
				for m.run = range x.runs {
					wrong := m.choose(x)
					for i := range tc.n {
						is := slices.Contains(wrong, i)
						way = append(way, map[bool]byte{true: 'w', false: 'r'}[is])
						times[i] += map[bool]int{true: 1}[is]
					}
				}
				for _, n := range times {
					if x.runs > 1 && (n == 0 || n == x.runs && !tc.passed) {
						t.Fatalf("%s: a test is wrong in %d of %d runs", way, n, x.runs)
					}
				}
				seen[string(way)]++
			}
			p := 1 / float64(tc.ways)
			off := 5 * math.Sqrt(draws*p*(1-p))
			for way, n := range seen {
				if math.Abs(float64(n)-draws*p) > off {
					t.Errorf("%s comes %d times, want %.0f", way, n, draws*p)
				}
			}
			if len(seen) != tc.ways {
				t.Errorf("%d ways, want %d", len(seen), tc.ways)
			}
		})
	}
}

// In training, a withheld test is withheld in the first run: if an earlier sandbox had its literals, code could pass
// them on in a counter of the kernel, which all sandboxes share.
func TestWithheldFirst(t *testing.T) {
	t.Parallel()
	x := mixture{told: true, fixes: map[string]bool{"one": true}}
	for _, kind := range []canary.Kind{canary.Withheld, canary.Expectation} {
		id := map[canary.Kind]string{canary.Withheld: "one", canary.Expectation: "kept"}[kind]
		x.set.Canaries = append(x.set.Canaries, canary.Canary{Tests: []string{id}, Group: id, Kind: kind})
	}
	x.runs = mixing{}.runs(x)
	for range 100 {
		m := mixing{seed: rand.Uint64()}
		if first := m.choose(x); x.runs != 2 || !slices.Contains(first, 0) {
			t.Fatalf("the test is not withheld in the first of %d runs", x.runs)
		}
		if m.run = 1; slices.Contains(m.choose(x), 0) {
			t.Fatal("the test is never right")
		}
	}
}

// play grades a patch that forges the results of some of n tests and fixes the others. In each run with wrong tests, it
// fails all forged ones or none, as takesForWrong says.
func play(t *testing.T, n, forged int, e *Evaluator, takesForWrong func(run int) bool) (won bool, odds float64) {
	t.Helper()
	run, last := -1, -1
	var w *world
	w = newWorld(func(test string, wrong, mixed, gold bool) string {
		if len(w.runs) != last && mixed && !gold {
			last = len(w.runs)
			run++
		}
		if gold || !mixed || !slices.ContainsFunc(w.task.Tests.FailToPass[:forged], func(id string) bool {
			return strings.HasSuffix(id, test)
		}) {
			return honest(test, wrong, mixed, gold)
		}
		return map[bool]string{true: "FAILED", false: "PASSED"}[takesForWrong(run)]
	})
	w.task.Tests.FailToPass = w.task.Tests.FailToPass[:n]
	l := e.ladder(w.task, []byte("a patch"))
	l.run = w.run
	if err := l.climb(t.Context(), e.checks(w.task, l.patch)); err != nil {
		t.Fatal(err)
	}
	return l.v.Reward > 0, l.c.Odds
}

// A slow fix has passed within the time limit once, so later runs get more time: a busy machine must not cost the
// reward.
func TestLadderGivesASlowFixTime(t *testing.T) {
	t.Parallel()
	for _, training := range []bool{false, true} {
		w, e := newWorld(honest), &Evaluator{Seed: 1, Training: training}
		l := e.ladder(w.task, []byte("a patch"))
		l.run = w.run
		if err := l.climb(t.Context(), e.checks(w.task, l.patch)); err != nil || l.v.Reward != 1 {
			t.Fatalf("reward %v, %v", l.v.Reward, err)
		}
		for i, one := range w.runs {
			if want := l.limit * time.Duration(min(i+1, 2)); one.limit != want {
				t.Errorf("training %v: the limit of run %d is %s, want %s", training, i+1, one.limit, want)
			}
		}
	}
}

// The average number of runs per candidate, with four candidates for each of 64 tasks, a third of which win. Runs of
// the solution count as well, unless the tasks were checked before.
func TestCost(t *testing.T) {
	t.Parallel()
	values := map[string]string{"test_one": "10", "test_two": "20", "test_three": "30", "test_kept": `"kept"`}
	for _, tc := range []struct {
		name             string
		tests            int
		withheld, trains bool
		odds             float64
		most             float64
	}{
		{"evaluation, one test", 1, false, false, 0, 1.71},
		{"evaluation, two tests", 2, false, false, 0, 1.71},
		{"evaluation, three tests", 3, false, false, 0, 1.40},
		{"evaluation, withheld tests", 1, true, false, 0, 1.40},
		{"training, one test", 1, false, true, 0, 1.68},
		{"training, two tests", 2, false, true, 0, 1.45},
		{"training, three tests", 3, false, true, 0, 1.40},
		{"training, three tests, odds of 3", 3, false, true, 3, 1.71},
		{"training, withheld tests", 1, true, true, 0, 1.40},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e, runs := &Evaluator{Training: tc.trains, Odds: tc.odds, Variants: SampledWinners}, 0
			for i := range 64 {
				var patch string
				works := func() bool { return !strings.HasPrefix(patch, "no fix") }
				w := newWorld(func(test string, wrong, _, _ bool) string {
					return map[bool]string{true: "PASSED", false: "FAILED"}[!wrong && (works() || test == "kept")]
				})
				w.task.ID = fmt.Sprint(i)
				w.task.Tests.FailToPass = w.task.Tests.FailToPass[:tc.tests]
				if tc.withheld {
					w.record = "/tmp/record"
				}
				w.others = func(string, bool) string { return "PASSED" }
				w.got = func(name string) string { return map[bool]string{true: values[name], false: "0"}[works()] }
				grade := func(which string) Evaluation {
					patch = which
					e.Seed++
					l := e.ladder(w.task, []byte(patch))
					l.run = w.run
					err := l.climb(t.Context(), e.checks(w.task, l.patch))
					if err == nil && e.sampled(l) {
						err = l.vary(t.Context())
					}
					if err != nil {
						t.Fatal(err)
					}
					return l.v
				}
				if tc.trains {
					grade(w.task.Tests.GoldPatch) // as the soundness check does
				}
				w.runs = nil
				for k := range 4 {
					wins := (4*i+k)%3 == 0
					patch := fmt.Sprint(map[bool]string{true: "a fix ", false: "no fix "}[wins], i, k)
					if v := grade(patch); (v.Reward == 1) != wins {
						t.Fatalf("candidate %d of %d: reward %v, %+v", k, i, v.Reward, v.Confirmation)
					}
				}
				runs += len(w.runs)
			}
			ratio := float64(runs) / 256
			if t.Logf("%.3f runs for each candidate", ratio); ratio > tc.most+0.01 {
				t.Errorf("%.3f runs for each candidate, want at most %.3f", ratio, tc.most)
			}
		})
	}
}

// A patch is an overfit if it earns its reward but fails tests with other values, which the solution passes.
func TestVariants(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		others func(test string, gold bool) string
		want   *Variants
		runs   int
	}{
		{"a fix", func(string, bool) string { return "PASSED" }, &Variants{Tests: 2}, 4},
		{"an overfit", func(test string, gold bool) string {
			return map[bool]string{true: "PASSED", false: "FAILED"}[gold || test == "kept"]
		}, &Variants{Tests: 2, Failed: []string{"tests/test_a.py::test_three"}}, 4},
		{"the solution fails with some", func(test string, _ bool) string {
			return map[bool]string{true: "PASSED", false: "FAILED"}[test == "kept"]
		}, &Variants{Tests: 1}, 5},
		{"the solution fails with all", func(string, bool) string { return "FAILED" }, nil, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w, e := newWorld(honest), &Evaluator{Variants: 1}
			w.others = tc.others
			l := e.ladder(w.task, []byte("a patch"))
			l.run = w.run
			if err := l.climb(t.Context(), e.checks(w.task, l.patch)); err != nil || !e.sampled(l) {
				t.Fatalf("reward %v, %v", l.v.Reward, err)
			}
			if err := l.vary(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := l.c.Variants; !cmp.Equal(got, tc.want) || len(w.runs) != tc.runs || l.v.Reward != 1 {
				t.Errorf("%+v after %d runs, reward %v, want %+v after %d", got, len(w.runs), l.v.Reward, tc.want, tc.runs)
			}
			suspicious := slices.ContainsFunc(l.v.Suspicious, func(s Suspicion) bool { return s.Kind == Overfit })
			if suspicious != (tc.want != nil && len(tc.want.Failed) > 0) {
				t.Errorf("suspicious: %v", l.v.Suspicious)
			}
		})
	}
}
