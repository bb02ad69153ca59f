package ranking

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"deepswe/verify/rank"
	"deepswe/verify/rank/judge"
	"deepswe/verify/rank/suite"
)

// recordedTask is a task whose scores and results are all on record.
type recordedTask struct {
	entries    []Entry
	judgements []*keptJudgement
	baselines  []*keptBaseline
	results    []*keptResult
}

// drawRecorded draws a task with few tests and many ties, so that every test can change the choice.
func drawRecorded(t *rapid.T) recordedTask {
	var r recordedTask
	for _, kind := range []suite.Kind{suite.Regression, suite.Reproduction} {
		b := suite.Baseline{Script: suite.Script{Name: string(kind), Kind: kind, Command: string(kind)}}
		for n := range rapid.IntRange(1, 3).Draw(t, string(kind)) {
			b.Kept = append(b.Kept, fmt.Sprint(kind, n))
		}
		r.baselines = append(r.baselines, &keptBaseline{Key: string(kind), Task: "t", Baseline: b})
	}
	seen := map[string]bool{}
	for id := range rapid.IntRange(2, 7).Draw(t, "candidates") {
		text := fmt.Sprintf("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-0\n+%d\n", rapid.IntRange(1, 5).Draw(t, "patch"))
		key := rank.PatchKey([]byte(text))
		r.entries = append(r.entries, Entry{ID: id, Patch: []byte(text)})
		if rapid.IntRange(0, 5).Draw(t, "judged") > 0 {
			score := float64(rapid.IntRange(0, 3).Draw(t, "score")) / 3
			r.judgements = append(r.judgements, &keptJudgement{Task: "t", Attempt: id, Patch: key,
				Judgement: judge.Judgement{Score: &score}})
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		forged := rapid.SampledFrom([]string{"", "", "", "", "everywhere", "reproduction"}).Draw(t, "forged")
		for _, b := range r.baselines {
			rejected := forged == "everywhere" || forged == string(b.Script.Kind)
			k := &keptResult{Key: resultKey("t", b.Baseline, key), Task: "t", Patch: key, Result: suite.Result{Passed: []string{}}}
			for _, name := range b.Kept {
				if !rejected && rapid.IntRange(0, 2).Draw(t, "passes") > 0 {
					k.Passed = append(k.Passed, name)
				}
			}
			if rejected {
				k.Rejected = "forged"
			}
			r.results = append(r.results, k)
		}
	}
	return r
}

// inMemory is a shelf that has no file.
func inMemory[T any](t rapid.TB, keys func(*T) ([]string, error), lines []*T) *shelf[T] {
	s := &shelf[T]{keys: keys, known: map[string]*T{}}
	for _, l := range lines {
		if err := s.add(l); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// choose returns the chosen patch, how many distinct patches were tested, and whether one that forges results was not
// run with the script that shows it.
func (r recordedTask) choose(t rapid.TB, rule rank.Rule, early bool) (patch string, tested int, missed bool) {
	k := &Ranking{
		Source: &Source{Tasks: []Set{{Task: "t", Entries: r.entries}}}, Rule: rule, Early: early, Workers: 1,
		Store: &Store{
			judgements: inMemory(t, (*keptJudgement).keys, r.judgements),
			baselines:  inMemory(t, (*keptBaseline).keys, r.baselines),
			results:    inMemory(t, (*keptResult).keys, r.results),
		},
	}
	if err := k.choose(context.Background()); err != nil {
		t.Fatal(err)
	}
	c := k.contests[0]
	caught := map[string]bool{}
	for i := range c.patches {
		caught[c.patches[i]] = c.rejected(i) != ""
	}
	for _, k := range r.results {
		missed = missed || k.Rejected != "" && !caught[k.Patch]
	}
	return c.patches[c.choice.Winner], len(c.results), missed
}

// Testing only what can still change the choice gives the choice of the full run, although which tests count depends on
// the results of all candidates. The exception is a patch that forges results in a script that was not run.
func TestEarlyChoosesTheSame(t *testing.T) {
	t.Parallel()
	saved := 0
	rapid.Check(t, func(t *rapid.T) {
		rule := rank.Rule{
			Verifier: rapid.SampledFrom([]rank.Verifier{rank.Exec, rank.Hybrid}).Draw(t, "verifier"),
			Top:      rapid.IntRange(0, 3).Draw(t, "top"),
		}
		task := drawRecorded(t)
		full, all, _ := task.choose(t, rule, false)
		early, tested, missed := task.choose(t, rule, true)
		if full != early && !missed {
			t.Fatalf("%s after all %d patches were tested, %s after %d", full[:8], all, early[:8], tested)
		}
		saved += all - tested
	})
	if saved == 0 && !testing.Short() {
		t.Error("nothing was ever left untested")
	}
}

// A result that is missing because a sandbox failed does not count against a patch: a script decides nothing unless it
// was run on every patch that is left.
func TestMissingReproductionResults(t *testing.T) {
	t.Parallel()
	tests := []string{"t::a", "t::b"}
	for name, c := range map[string]struct {
		first, second []string // the reproduction tests that each passes; the second has the better score
		missing       bool     // the second has no result
		want          int
	}{
		"both are there":    {first: tests[:1], second: tests, want: 1},
		"one is worse":      {first: tests[:1], second: nil, want: 0},
		"one is missing":    {first: tests[:1], missing: true, want: 1},
		"and all pass else": {first: tests, missing: true, want: 1},
	} {
		var r recordedTask
		for _, kind := range []suite.Kind{suite.Regression, suite.Reproduction} {
			r.baselines = append(r.baselines, &keptBaseline{Key: string(kind), Task: "t", Baseline: suite.Baseline{
				Script: suite.Script{Name: string(kind), Kind: kind, Command: string(kind)}, Kept: tests,
			}})
		}
		for id, passed := range [][]string{c.first, c.second} {
			text := patch(id+1, .5+float64(id)/4)
			key, score := rank.PatchKey([]byte(text)), .5+float64(id)/4
			r.entries = append(r.entries, Entry{ID: id, Patch: []byte(text)})
			r.judgements = append(r.judgements, &keptJudgement{Task: "t", Attempt: id, Patch: key,
				Judgement: judge.Judgement{Score: &score}})
			for n, result := range []suite.Result{{Passed: tests}, {Passed: passed}} {
				if n == 0 || id == 0 || !c.missing {
					b := r.baselines[n].Baseline
					r.results = append(r.results, &keptResult{Key: resultKey("t", b, key), Task: "t", Patch: key, Result: result})
				}
			}
		}
		got, _, _ := r.choose(t, rank.Rule{Verifier: rank.Hybrid}, false)
		if want := rank.PatchKey(r.entries[c.want].Patch); got != want {
			t.Errorf("%s: the other patch than #%d was chosen", name, c.want)
		}
	}
}
