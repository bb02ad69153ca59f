package ranking

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env/testkit"
	"deepswe/verify/rank"
	"deepswe/verify/rank/judge"
	"deepswe/verify/rank/suite"
)

// synthetic writes a run of eval with recorded scores and results, and returns it.
func synthetic(t testing.TB, tasks, attempts int) string {
	t.Helper()
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	var events, judgements, baselines, results strings.Builder
	line := func(b *strings.Builder, v any) {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(data, '\n'))
	}
	for n := range tasks {
		id := fmt.Sprintf("task-%03d", n)
		b := suite.Baseline{State: "s", Script: suite.Script{Name: "regression", Kind: suite.Regression, Command: "c"}}
		for k := range 60 {
			b.Kept = append(b.Kept, fmt.Sprintf("tests/test_%d.py::test", k))
		}
		line(&baselines, keptBaseline{Key: id, Task: id, Baseline: b})
		for a := range attempts {
			solved := random.Float64() < float64(n%10)/10
			text := fmt.Sprintf("diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1,40 @@\n-a\n+%d\n", a) + strings.Repeat("+a line of code\n", 39)
			key := rank.PatchKey([]byte(text))
			testkit.WriteFile(t, filepath.Join(dir, "rollouts", id, fmt.Sprint(a), "patch.diff"), text)
			reward, score := 0.0, random.Float64()*.7
			passed := b.Kept[:50+random.IntN(11)]
			if solved {
				reward, score, passed = 1, score+.3, b.Kept
			}
			line(&events, map[string]any{"event": "finished", "task": id, "group": id, "attempt": a, "reward": reward, "tries": 1,
				"stop_reason": "submitted", "times": map[string]any{}})
			line(&judgements, keptJudgement{Task: id, Attempt: a, Patch: key,
				Judgement: judge.Judgement{Score: &score, Method: judge.ByLogprobs}})
			line(&results, keptResult{Key: resultKey(id, b, key), Task: id, Result: suite.Result{Passed: passed}})
		}
	}
	testkit.WriteFile(t, filepath.Join(dir, "manifest.json"), `{"version":2,"kind":"eval","id":"x","program":"test"}`)
	testkit.WriteFile(t, filepath.Join(dir, "events.jsonl"), events.String())
	for name, b := range map[string]*strings.Builder{
		judgementsFile: &judgements, baselinesFile: &baselines, resultsFile: &results,
	} {
		testkit.WriteFile(t, filepath.Join(dir, "rank", name), b.String())
	}
	return dir
}

// rankRecorded ranks what is on record with a verifier.
func rankRecorded(t testing.TB, dir string, v rank.Verifier) *Report {
	t.Helper()
	source, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	store, err := OpenStore(filepath.Join(dir, "rank"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r := &Ranking{Source: source, Rule: rank.Rule{Verifier: v}, Store: store}
	rep, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// If the truth is known, every curve begins at Pass@1 and none is above the oracle, and the rule's own ends at what is
// chosen.
func TestCurves(t *testing.T) {
	t.Parallel()
	dir := synthetic(t, 20, 8)
	rep := rankRecorded(t, dir, rank.Hybrid)
	if rep.Scored != 160 || rep.Tested != 160 || len(rep.Curves) != 6 {
		t.Fatalf("%d scored, %d tested, %d curves", rep.Scored, rep.Tested, len(rep.Curves))
	}
	oracle := rep.Curves[len(rep.Curves)-1].Points
	for _, c := range rep.Curves {
		if len(c.Points) != 8 || math.Abs(c.Points[0].Rate-oracle[0].Rate) > 1e-9 {
			t.Errorf("%s begins at %v, and Pass@1 is %v", c.Name, c.Points[0].Rate, oracle[0].Rate)
		}
		for i, p := range c.Points {
			if p.Rate > oracle[i].Rate+1e-12 || p.Low > p.Rate || p.High < p.Rate {
				t.Errorf("%s: %+v, and the oracle has %v", c.Name, p, oracle[i].Rate)
			}
		}
		if c.Name == string(rank.Hybrid) {
			if last := c.Points[7].Rate; last*20 < float64(rep.ChosenSolved)-.01 || last*20 > float64(rep.ChosenSolved)+.01 {
				t.Errorf("best@8 is %v, and %d of 20 are solved", last, rep.ChosenSolved)
			}
		}
	}
}

// Tasks with fewer than k candidates stay in the curves, which say how many tasks have k. The rate of a random
// candidate is thus the same at every k.
func TestCurvesKeepTheirTasks(t *testing.T) {
	t.Parallel()
	dir := synthetic(t, 4, 3)
	for n := range 3 { // three tasks have two candidates, and one has three
		if err := os.RemoveAll(filepath.Join(dir, "rollouts", fmt.Sprintf("task-%03d", n), "2")); err != nil {
			t.Fatal(err)
		}
	}
	events, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var kept strings.Builder
	for line := range strings.Lines(string(events)) {
		if !strings.Contains(line, `"attempt":2`) || strings.Contains(line, "task-003") {
			kept.WriteString(line)
		}
	}
	testkit.WriteFile(t, filepath.Join(dir, "events.jsonl"), kept.String())
	rep := rankRecorded(t, dir, rank.Hybrid)
	table := rep.Table()
	if got := fmt.Sprint(table[:2]); got != "[[best of 1 2 3] [tasks with as many 4 4 1]]" {
		t.Errorf("the table begins with %s", got)
	}
	if none := table[2]; none[0] != string(rank.None) || none[1] != none[2] || none[2] != none[3] {
		t.Errorf("a random candidate: %v", none)
	}
	page, err := os.ReadFile(filepath.Join(dir, "rank", PageFile))
	if err != nil || !strings.Contains(string(page), "1 of 4 tasks have 3") ||
		!strings.Contains(string(page), `tasks with as many<td class="n">4<td class="n">4<td class="n">1`) {
		t.Errorf("the page does not tell how many tasks have three candidates: %v", err)
	}
}

// The curves show everything on record, whichever verifier chooses.
func TestCurvesOfEveryVerifier(t *testing.T) {
	t.Parallel()
	dir := synthetic(t, 5, 4)
	want := rankRecorded(t, dir, rank.Hybrid).Curves
	for _, v := range rank.Verifiers() {
		if diff := cmp.Diff(want, rankRecorded(t, dir, v).Curves); diff != "" {
			t.Errorf("with --verifier %s (-hybrid +%[1]s):\n%s", v, diff)
		}
	}
}

// BenchmarkRanking ranks 500 tasks with 16 recorded candidates each, parsing included.
func BenchmarkRanking(b *testing.B) {
	dir := synthetic(b, 500, 16)
	b.ResetTimer()
	for range b.N {
		rankRecorded(b, dir, rank.Hybrid)
	}
}
