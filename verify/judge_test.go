package verify

import (
	"maps"
	"slices"
	"testing"

	"deepswe/env"
	"deepswe/verify/canary"
	"deepswe/verify/testlog"
)

// A subtest of a failing Go test would pass as a right test and fail as a wrong one. The reference shows whether its
// parent has to fail, and if so, the subtest is no evidence.
func TestCasesOfAFailingTest(t *testing.T) {
	t.Parallel()
	parse, err := testlog.Lookup("parse_log_gotest")
	if err != nil {
		t.Fatal(err)
	}
	for log, want := range map[string]int{
		"--- PASS: TestA (0.00s)\n    --- PASS: TestA/one (0.00s)\n": 0,
		"--- FAIL: TestA (0.00s)\n    --- PASS: TestA/one (0.00s)\n": 1,
	} {
		r, err := parse(log, testlog.Task{})
		if err != nil {
			t.Fatal(err)
		}
		task := env.Task{Tests: env.Tests{FailToPass: []string{"TestA/one"}, EvalType: PassAndFail}}
		one := &trial{task: task, v: Evaluation{Tests: r}}
		if found := unplain(one); len(found) != want {
			t.Errorf("%q: %v", log, found)
		}
		ref, c := (&Evaluator{}).reference(task), &Confirmation{}
		ref.add(one, true, false)
		set := canary.Set{Canaries: []canary.Canary{{Tests: []string{"TestA/one"}, Kind: canary.Expectation}}}
		c.weigh(task, mixture{set: set, fixes: map[string]bool{"TestA/one": true}, told: true}, ref, nil)
		if weak := c.Evidence == NoEvidence; weak != (want > 0) {
			t.Errorf("%q: the evidence is %s", log, c.Evidence)
		}
	}
}

// A case that passes without a fix shows whether its test is wrong, so that the others have less evidence.
func TestCasesThatPassWithoutAFix(t *testing.T) {
	t.Parallel()
	for other, want := range map[string]Strength{
		"TestA/two": OutrightEvidence, "TestB/two": PairedEvidence, "FuzzA/two": PairedEvidence,
		"FuzzB/seed#1": OutrightEvidence, "test_c[two]": OutrightEvidence,
	} {
		task := env.Task{Tests: env.Tests{PassToPass: []string{other}}}
		weakest := OutsideEvidence
		for _, id := range []string{"TestA/one", "FuzzB/seed#0", "test_c[one]"} {
			set := canary.Set{Canaries: []canary.Canary{{Tests: []string{id}, Kind: canary.Expectation}}}
			c := &Confirmation{}
			c.weigh(task, mixture{set: set, fixes: map[string]bool{id: true}, told: true}, (&Evaluator{}).reference(task), nil)
			if !c.Evidence.Suffices(weakest) {
				weakest = c.Evidence
			}
		}
		if weakest != want {
			t.Errorf("beside %s, the evidence is %s", other, weakest)
		}
	}
}

// If a task does not say which tests fail without a fix, there may be only one.
func TestOddsOfUnknownFixes(t *testing.T) {
	t.Parallel()
	var set canary.Set
	task := env.Task{Tests: env.Tests{Expected: map[string]string{}}}
	for _, id := range []string{"test_a", "test_b", "test_c", "test_d"} {
		task.Tests.Expected[id] = "PASSED"
		set.Canaries = append(set.Canaries, canary.Canary{Tests: []string{id}, Kind: canary.Expectation})
	}
	mixed := mixture{set: set, passed: true}
	if mixed.runs = (mixing{passed: true}).runs(mixed); mixed.runs != 2 {
		t.Errorf("%d runs, want 2", mixed.runs)
	}
	c := &Confirmation{}
	if c.weigh(task, mixed, (&Evaluator{}).reference(task), nil); c.Odds != 3 || c.Evidence != PairedEvidence {
		t.Errorf("%s, one in %v", c.Evidence, c.Odds)
	}
}

// Tests that are wrong in the same runs give each other away, so they add nothing to the odds.
func TestOddsOfTestsWrongTogether(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		groups []string
		kind   canary.Kind
		want   float64
	}{
		"apart":    {[]string{"a", "b", "c"}, canary.Expectation, 3},
		"together": {[]string{"a", "b", "a"}, canary.Expectation, 1},
		"withheld": {[]string{"a", "a", "a"}, canary.Withheld, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task, mixed := env.Task{}, mixture{passed: true, told: true, runs: 2, fixes: map[string]bool{}}
			for i, group := range tc.groups {
				id := "test_" + string(rune('a'+i))
				task.Tests.FailToPass, mixed.fixes[id] = append(task.Tests.FailToPass, id), true
				mixed.set.Canaries = append(mixed.set.Canaries, canary.Canary{Tests: []string{id}, Kind: tc.kind, Group: group})
			}
			c := &Confirmation{}
			if c.weigh(task, mixed, (&Evaluator{}).reference(task), nil); c.Odds != tc.want {
				t.Errorf("one in %v, want %v", c.Odds, tc.want)
			}
		})
	}
}

// A case of a wrong test whose name is computed, or a test that may be one, counts neither as right nor as wrong.
func TestWithoutWhatMayBeWrong(t *testing.T) {
	t.Parallel()
	set := canary.Set{Canaries: []canary.Canary{{Tests: []string{"a"}, May: []string{"b"}}, {Tests: []string{"c"}}}}
	task := env.Task{Tests: env.Tests{FailToPass: []string{"a"}, PassToPass: []string{"b", "c", "d"}}}
	got := mixture{set: set, wrong: []int{0}}.without(task, nil).Tests
	if len(got.FailToPass) != 0 || !slices.Equal(got.PassToPass, []string{"c", "d"}) {
		t.Errorf("the right tests are %q and %q", got.FailToPass, got.PassToPass)
	}
}

// Whether the solution has to be asked about a run without results depends on what it has passed with.
func TestExplainsWithoutResults(t *testing.T) {
	t.Parallel()
	set := canary.Set{Canaries: []canary.Canary{{Mutation: "a"}, {Mutation: "b"}}}
	ref := (&Evaluator{}).reference(env.Task{})
	run := func(reward float64, wrong ...int) *trial {
		return &trial{mixed: mixture{set: set, wrong: wrong}, v: Evaluation{Reward: reward}}
	}
	ref.add(run(1, 0), true, true)
	ref.add(run(0, 0, 1), true, true)
	for _, tc := range []struct {
		wrong []int
		want  bool
	}{{[]int{0}, true}, {[]int{0, 1}, true}, {[]int{1}, false}, {nil, false}} {
		if got := ref.explains(run(0, tc.wrong...), false); got != tc.want {
			t.Errorf("%d: %v, want %v", tc.wrong, got, tc.want)
		}
	}
}

// A wrong test that keeps all others from running, such as one that does not compile, says nothing about them: only how
// tests were wrong otherwise than by constant failures is not tried again.
func TestRightTestsFailWithTheSolution(t *testing.T) {
	t.Parallel()
	set := canary.Set{Canaries: []canary.Canary{
		{Mutation: "a", Kind: canary.Telling}, {Mutation: "b", Kind: canary.Expectation}, {Mutation: "c", Kind: canary.Outright},
	}}
	ref := (&Evaluator{}).reference(env.Task{})
	run := &trial{mixed: mixture{set: set, wrong: []int{0, 1, 2}}, found: findings{
		passed: map[string]string{"a": "is not in the log", "b": "is not in the log", "c": "is not in the log"},
	}}
	ref.add(run, true, true)
	if got, want := ref.get().spoilt(), (map[string]bool{"a": true, "b": true}); !maps.Equal(got, want) {
		t.Errorf("spoilt are %v, want %v", got, want)
	}
	parse, err := testlog.Lookup("parse_log_gotest")
	if err != nil {
		t.Fatal(err)
	}
	later := &trial{mixed: mixture{set: set, wrong: []int{2}}, found: findings{passed: map[string]string{"c": "passed"}}}
	if later.v.Tests, err = parse("--- PASS: TestC (0.00s)\n", testlog.Task{}); err != nil {
		t.Fatal(err)
	}
	if ref.explains(later, false) {
		t.Error("the solution is not asked about a test that was only wrong beside one that does not compile")
	}
	if ref.add(run, true, true); !ref.get().outright {
		t.Error("after the second such run, tests are not wrong by constant failures only")
	}
	if says := ref.get().found.says(); says != "" {
		t.Errorf("found: %s", says)
	}
}
