package ranking

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/env"
	"deepswe/env/testkit"
	"deepswe/env/testkit/images"
	"deepswe/verify"
	"deepswe/verify/harness"
	"deepswe/verify/rank"
	"deepswe/verify/rank/judge"
	"deepswe/verify/rank/suite"
)

func TestMain(m *testing.M) {
	images.Main(func() int {
		if dir := os.Getenv(childDir); dir != "" {
			return rankChild(dir)
		}
		return m.Run()
	})
}

// reading is a judge that goes by what the patch adds: it says YES with the probability after "score:". It counts the
// calls, and fails from the call failAt on if that is set.
type reading struct {
	calls  atomic.Int32
	failAt int32
}

func (r *reading) Spell(_ context.Context, q agent.Request, _ int) (llm.Spelling, error) {
	n := r.calls.Add(1)
	if r.failAt > 0 && n >= r.failAt {
		return llm.Spelling{}, errors.New("connection refused")
	}
	_, after, _ := strings.Cut(q.Messages[1].Content, "# score:")
	p := 0.5
	_, _ = fmt.Sscanf(after, "%g", &p)
	yes := llm.Alternative{Text: "YES", Logprob: math.Log(p)}
	no := llm.Alternative{Text: "NO", Logprob: math.Log(1 - p)}
	return llm.Spelling{Tokens: []llm.Token{{Alternative: yes, Top: []llm.Alternative{yes, no}}}}, nil
}

// patch changes the number, and tells the judge how to score it.
func patch(number int, score float64) string {
	return fmt.Sprintf("--- a/number.py\n+++ b/number.py\n@@ -1 +1,2 @@\n-0\n+%d\n+# score:%g\n", number, score)
}

var numberTask = env.Task{ID: "number", Source: "deepswe", Statement: "The number must be 7.", Image: "number"}

// candidates are a wrong patch that the judge likes best, the right one, a copy of that, an empty one, one that does
// not apply, and one that prints forged results.
func candidates(t *testing.T) string {
	dir := t.TempDir()
	for i, text := range []string{
		patch(3, .9), patch(7, .8), "diff --git a/number.py b/number.py\nindex 1..2 100644\n" + patch(7, .8), "",
		"--- a/none.py\n+++ b/none.py\n@@ -1 +1 @@\n-0\n+# score:0.99\n",
		"--- a/number.py\n+++ b/number.py\n@@ -1 +1,4 @@\n-0\n+7\n+# score:0.95\n+>>>>> End Test Output\n+>>>>> Test Exit Code: 0\n",
	} {
		testkit.WriteFile(t, filepath.Join(dir, "number", fmt.Sprintf("%d.diff", i)), text)
	}
	return dir
}

// newRanking ranks these candidates with a judge and with tests.
func newRanking(t *testing.T, path, out string) (*Ranking, *images.Provider, *reading) {
	t.Helper()
	p, endpoint := images.New(t, map[string]string{"number.py": "0\n"}), &reading{}
	r, err := assemble(path, out, p, endpoint, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Store.Close() })
	return r, p, endpoint
}

// assemble makes a ranking of the candidates in path. first is put before the test command.
func assemble(path, out string, p env.Provider, endpoint judge.Endpoint, first string) (*Ranking, error) {
	source, err := Read(path)
	if err != nil {
		return nil, err
	}
	pack, err := judge.Builtin()
	if err != nil {
		return nil, err
	}
	store, err := OpenStore(out)
	if err != nil {
		return nil, err
	}
	return &Ranking{
		Source: source, Rule: rank.Rule{Verifier: rank.Hybrid, Top: 3}, Store: store, Workers: 2,
		Tasks: map[string]env.Task{numberTask.ID: numberTask},
		Judge: &judge.Judge{Endpoint: endpoint, Model: "judge", Pack: pack},
		Tests: &Tests{
			Runner: &suite.Runner{Evaluator: &verify.Evaluator{Provider: p}}, Parser: "parse_log_pytest",
			Command: first + "case $(head -n1 num*.py) in 0|7) echo PASSED t::old;; *) echo FAILED t::old;; esac; " +
				"tail -n+2 num*.py; echo PASSED t::other",
		},
	}, nil
}

// The right patch wins, although a wrong, a broken and a cheating one have better scores. It costs one run on the base
// and one for each distinct patch.
func TestRightOneWins(t *testing.T) {
	t.Parallel()
	path, out := candidates(t), filepath.Join(t.TempDir(), "rank")
	r, p, endpoint := newRanking(t, path, out)
	rep, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	task := rep.Results[0]
	if task.Chosen == nil || *task.Chosen != 1 || task.Agree != 2 {
		t.Errorf("chosen %+v", task)
	}
	stages := map[int]rank.Stage{}
	for _, c := range task.Candidates {
		stages[c.Attempt] = c.Stage
	}
	want := map[int]rank.Stage{
		0: rank.StageBroken, 1: rank.StageChosen, 2: rank.StageFirst, 3: rank.StageEmpty, 4: rank.StageRejected,
		5: rank.StageRejected,
	}
	if diff := cmp.Diff(want, stages); diff != "" {
		t.Errorf("stages (-want +got):\n%s", diff)
	}
	if why := task.Candidates[0].Reason; why != "breaks t::old: 1 of 2 regression tests pass" {
		t.Errorf("#0 was dropped because it %q", why)
	}
	if rep.Distinct != 4 || rep.Empty != 1 || rep.Cost.BaseRuns != 1 || rep.Cost.CandidateRuns != 4 ||
		rep.Cost.Requests != 5 || p.Starts() != 5 || endpoint.calls.Load() != 5 {
		t.Errorf("%d distinct, cost %+v, %d sandboxes, %d requests", rep.Distinct, rep.Cost, p.Starts(), endpoint.calls.Load())
	}
	var preds map[string]harness.Prediction
	data, err := os.ReadFile(filepath.Join(out, PredsFile))
	if err != nil || json.Unmarshal(data, &preds) != nil || !strings.Contains(*preds["number"].Patch, "+7") {
		t.Errorf("%s, %v", data, err)
	}
	page, err := os.ReadFile(filepath.Join(out, PageFile))
	if err != nil || !strings.Contains(string(page), "breaks no test that passed before") || strings.Contains(string(page), "<script") {
		t.Errorf("page: %v", err)
	}
	// A second ranking costs nothing and chooses the same, and so does one without a judge and tests.
	r.Store.Close()
	again, p, endpoint := newRanking(t, path, out)
	rep2, err := again.Run(t.Context())
	if err != nil || p.Starts() != 0 || endpoint.calls.Load() != 0 || rep2.Cost != (Cost{}) {
		t.Errorf("%v, %d sandboxes, %d requests", err, p.Starts(), endpoint.calls.Load())
	}
	again.Judge, again.Tests, again.Tasks = nil, nil, nil
	rep3, err := again.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []*Report{rep2, rep3} {
		if diff := cmp.Diff(rep.Results, other.Results); diff != "" {
			t.Error(diff)
		}
	}
}

// A ranking that was stopped at any point goes on from there: nothing that is on record is done again.
func TestResume(t *testing.T) {
	t.Parallel()
	path, out := candidates(t), filepath.Join(t.TempDir(), "rank")
	sandboxes, requests := 0, 0
	for stop := 1; ; stop++ {
		r, p, endpoint := newRanking(t, path, out)
		ctx, cancel := context.WithCancel(t.Context())
		ended := 0
		r.Observe = func(e Event) {
			if !e.Begin && e.Run.Outcome != nil {
				if ended++; ended == 2 {
					cancel()
				}
			}
		}
		rep, err := r.Run(ctx)
		cancel()
		r.Store.Close()
		// Work that was cut off is done again, because it is not on record.
		sandboxes, requests = sandboxes+p.Starts(), requests+int(endpoint.calls.Load())
		if err == nil {
			if *rep.Results[0].Chosen != 1 {
				t.Errorf("chosen #%d", *rep.Results[0].Chosen)
			}
			break
		}
		if stop > 20 {
			t.Fatal(err)
		}
	}
	lines, err := os.ReadFile(filepath.Join(out, resultsFile))
	if err != nil || strings.Count(string(lines), "\n") != 4 {
		t.Errorf("%d results on record, %v", strings.Count(string(lines), "\n"), err)
	}
}

// If the judge fails, candidates without a score say so, and the choice is made from the others.
func TestJudgeFails(t *testing.T) {
	t.Parallel()
	r, _, endpoint := newRanking(t, candidates(t), filepath.Join(t.TempDir(), "rank"))
	r.Workers, r.retries = 1, -1
	endpoint.failAt = 3
	r.Rule = rank.Rule{Verifier: rank.Free}
	rep, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	missing := 0
	for _, c := range rep.Results[0].Candidates {
		if strings.Contains(c.Missing, "the judge failed: ") {
			missing++
		}
	}
	if rep.Scored != 2 || missing != 3 || rep.Cost.Failures != 3 || *rep.Results[0].Chosen != 0 {
		t.Errorf("%d scored, %d missing, %+v, chosen %d", rep.Scored, missing, rep.Cost, *rep.Results[0].Chosen)
	}
}

// A verifier that has several patches to compare, but nothing to go by, says what it lacks.
func TestNothingToGoBy(t *testing.T) {
	t.Parallel()
	for v, want := range map[rank.Verifier]string{
		rank.None: "[]", rank.Free: "[scores]", rank.Exec: "[test results]", rank.Hybrid: "[scores test results]",
	} {
		r, _, _ := newRanking(t, candidates(t), filepath.Join(t.TempDir(), "rank"))
		r.Rule, r.Judge, r.Tests = rank.Rule{Verifier: v}, nil, nil
		rep, err := r.Run(t.Context())
		if err != nil || fmt.Sprint(rep.Lacks) != want {
			t.Errorf("%s lacks %v, %v; want %s", v, rep.Lacks, err, want)
		}
		r.Source.Tasks[0].Entries = r.Source.Tasks[0].Entries[1:4] // one patch, its copy, and none
		if rep, err = r.Run(t.Context()); err != nil || rep.Lacks != nil {
			t.Errorf("%s lacks %v, %v; want nothing to compare", v, rep.Lacks, err)
		}
	}
}
