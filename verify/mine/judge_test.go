package mine

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent/run"
	"deepswe/env"
	history "deepswe/env/mine"
	"deepswe/verify"
	"deepswe/verify/testlog"
)

// ran makes a run of words such as "a+ b- c?": tests that pass, fail and are skipped.
func ran(t *testing.T, text string) testRun {
	t.Helper()
	if text == "" {
		return testRun{status: verify.Unresolved}
	}
	var log strings.Builder
	for _, word := range strings.Fields(text) {
		log.WriteString("--- " + map[byte]string{'+': "PASS", '-': "FAIL", '?': "SKIP"}[word[len(word)-1]] + ": " +
			word[:len(word)-1] + " (0.00s)\n")
	}
	parse, err := testlog.Lookup("parse_log_gotest")
	if err != nil {
		t.Fatal(err)
	}
	r, err := parse(log.String(), testlog.Task{})
	if err != nil {
		t.Fatal(err)
	}
	return testRun{results: *r, status: verify.Unresolved}
}

// The runs of a candidate decide which of its tests are to fail and to pass, or why there is no task.
func TestVerdict(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		base, before1, before2, after1, after2, after3 string
		fail, pass, label                              string
		reason                                         string
	}{
		"a new test":                 {"a+", "a+ b-", "a+ b-", "a+ b+", "a+ b+", "a+ b+", "b", "a", "fails", ""},
		"a changed test":             {"a+", "a-", "a-", "a+", "a+", "a+", "a", "", "fails", ""},
		"does not compile before it": {"a+", "", "", "a+ b+", "a+ b+", "a+ b+", "b", "a", "does not load", ""},
		"a new file, not compiled":   {"", "", "", "b+", "b+", "b+", "b", "", "does not load", ""},
		"still fails after it":       {"a+", "a+ b-", "a+ b-", "a+ b-", "a+ b-", "a+ b-", "", "", "", string(NoFailure)},
		"passes before":              {"a+", "a+ b+", "a+ b+", "a+ b+", "a+ b+", "a+ b+", "", "", "", string(NoFailure)},
		"sometimes":                  {"a+", "a+ b-", "a+ b-", "a+ b+", "a+ b-", "a+ b+", "", "", "", string(Flaky)},
		"unstable": {"a+", "a+ b- c+", "a+ b- c-", "a+ b+ c+", "a+ b+ c+", "a+ b+ c+", "b", "a", "fails",
			""},
		"a name with the time in it": {"a+", "a+ b-", "a+ b-", "a+ b+ c1+", "a+ b+ c2+", "a+ b+ c3+", "b", "a", "fails", ""},
		"is skipped":                 {"a+", "a+ b-", "a+ b-", "a+ b?", "a+ b?", "a+ b?", "", "", "", string(NoFailure)},
		"a changed one does not compile": {"twice+ a+", "", "", "twice+ a+", "twice+ a+", "twice+ a+", "twice", "a",
			"does not load", ""},
		"a changed one passes":    {"twice+", "twice+", "twice+", "twice+", "twice+", "twice+", "", "", "", string(NoFailure)},
		"a part of a changed one": {"twice/a+", "", "", "twice/a+", "twice/a+", "twice/a+", "twice/a", "", "does not load", ""},
	} {
		all := runs{base: ran(t, c.base), before: []testRun{ran(t, c.before1), ran(t, c.before2)},
			after: []testRun{ran(t, c.after1), ran(t, c.after2), ran(t, c.after3)}, changed: []string{"twice"}}
		j := all.verdict(env.Task{Labels: map[string]string{}})
		got := []string{
			strings.Join(j.Task.Tests.FailToPass, " "), strings.Join(j.Task.Tests.PassToPass, " "), j.Task.Labels["before"],
			string(j.Reason),
		}
		if diff := cmp.Diff([]string{c.fail, c.pass, c.label, c.reason}, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// The log of a run that did not work says what is missing.
func TestMissing(t *testing.T) {
	t.Parallel()
	for log, want := range map[string]string{
		"E   ModuleNotFoundError: No module named 'yaml'\nFAILED":                           "yaml",
		"a.go:3:2: no required module provides package golang.org/x/sys/unix; to add it:\n": "golang.org/x/sys/unix",
		"bash: line 5: npx: command not found\n":                                            "npx: command not found",
		"SKIPPED [1] tests/test_a.py:3: Requires yaml installed\n== 1 skipped ==\n":         "Requires yaml installed",
		"E   SyntaxError: f-string: expecting '}'\nERROR tests/test_a.py\n=== 1 error in 0.26s ===\n": "SyntaxError: " +
			"f-string: expecting '}'",
		"error[E0432]: unresolved import `a`\nerror: could not compile `b`\n": "error[E0432]: unresolved import `a`",
		"# a\n./a.go:3:5: undefined: half\nFAIL\ta [build failed]\n":          "./a.go:3:5: undefined: half",
		"npm error code ENOTCACHED\nnpm error request to https://registry.npmjs.org/ava failed: cache mode is 'only-if-cached' " +
			"but no cached response is available.\nnpm error A complete log of this run can be found in: /x\n": "ava",
		"not ok 1 - Error: ENOENT: no such file\n1..0\n# fail 1\n": "Error: ENOENT: no such file",
		"[INFO] -----\n[ERROR] COMPILATION ERROR : \n[ERROR] Source option 6 is no longer supported. Use 7 or later.\n" +
			"[ERROR] -> [Help 1]\n+ status=1\n": "Source option 6 is no longer supported. Use 7 or later.",
		"<internal:/usr/lib/rubygems/kernel_require.rb>:85:in `require': cannot load such file -- rouge (LoadError)\n": "rouge",
		"/usr/lib/psych/class_loader.rb:99:in `find': Tried to load unspecified class: A (Psych::DisallowedClass)\n" +
			"\tfrom -e:1:in `<main>'\n": "Tried to load unspecified class: A (Psych::DisallowedClass)",
		"No tests found, exiting with code 1\nPattern: tests/a.ts - 0 matches\n": "No tests found, exiting with code 1",
		"one\n  the last \n\n": "the last",
		"":                     "",
	} {
		if got := missing(log); got != want {
			t.Errorf("%q lacks %q, want %q", log, got, want)
		}
	}
}

// If no test fails without the change, another set-up may show a failure, provided that tests are skipped because
// something is not installed.
func TestNoFailure(t *testing.T) {
	t.Parallel()
	for log, want := range map[string]bool{
		"SKIPPED [1] tests/test_a.py:3: Requires yaml installed": true,
		"SKIPPED [1] tests/test_a.py:3: only on Windows":         false,
		"test_a (tests.A.test_a) ... skipped 'needs yaml'":       true,
		"PASSED tests/test_a.py::test_skip_of_import":            false,
	} {
		r := ran(t, "a+")
		r.log = log
		if got := (runs{after: []testRun{r}}).noFailure(); got.Again != want || got.Reason != NoFailure {
			t.Errorf("%q: %+v", log, got)
		}
	}
}

// If a change installs something else, and no test passes without the change, it is unknown whether a bug is the cause.
func TestDisplaced(t *testing.T) {
	t.Parallel()
	changed := env.Task{Installed: "/eras", Labels: map[string]string{"environment": "changed"}}
	for name, tc := range map[string]struct {
		task         env.Task
		base, before string
		want         bool
	}{
		"nothing passes":    {changed, "a-", "a- b-", true},
		"nothing runs":      {changed, "", "", true},
		"base passes":       {changed, "a+", "", false},
		"others pass":       {changed, "", "a+ b-", false},
		"nothing installed": {env.Task{Labels: changed.Labels}, "a-", "a-", false},
		"the same manifest": {env.Task{Installed: "/eras"}, "a-", "a-", false},
	} {
		r := runs{base: ran(t, tc.base), before: []testRun{ran(t, tc.before)}}
		if got := r.displaced(tc.task); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Symptoms are taken from failing tests only, without repetitions and long lines.
func TestSymptoms(t *testing.T) {
	t.Parallel()
	log := "=== RUN   TestA\n    a_test.go:3: a note\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n    b_test.go:4: got 1\n" +
		"    b_test.go:4: got 1\n--- FAIL: TestB (0.00s)\nE   assert 1 == 2\nE   " + strings.Repeat("x", 200) + "\n"
	got := runs{before: []testRun{{log: log}}}.symptoms()
	if diff := cmp.Diff([]string{"got 1", "assert 1 == 2"}, got); diff != "" {
		t.Error(diff)
	}
	for log, want := range map[string]string{
		"E                                                1 / 1 (100%)\n":                      "",
		"  1) Failure:\nA#test_b [a.rb:3]:\nExpected: [\"2\"]\n  Actual: []\n":                 `Expected: ["2"]|Actual: []`,
		"TypeError: no implicit conversion\n    /testbed/lib/a.rb:1:in `b'\n":                  "TypeError: no implicit conversion",
		"       expected: 1\n            got: 2\n\n       (compared using ==)\n":               "expected: 1|got: 2",
		"    Expected: \"a\"\n    Received: undefined\n":                                       `Expected: "a"|Received: undefined`,
		"<\"1\"> expected but was\n<\"2\">\n":                                                  `<"1"> expected but was|<"2">`,
		"Failed asserting that two strings are equal.\n--- Expected\n+++ Actual\n-'a'\n+'b'\n": "Failed asserting that two strings are equal.|-'a'|+'b'",
		"assertion `left == right` failed\n  left: 1\n right: 2\n":                             "left: 1|right: 2",
		"<testcase name=\"a\">\n</testcase>\n+ exit 1\n":                                       "",
		"a.ATest.b -- 1 s <<< ERROR!\njava.lang.StackOverflowError\n\tat a.A.b(A.java:1)\n":    "java.lang.StackOverflowError",
		"    <failure message=\"a.b.CError: expected:&lt;5&gt; but was:&lt;4&gt;\" type=\"a.b.CError\">a.b.CError: expected:\n": "a.b." +
			"CError: expected:<5> but was:<4>",
		"org.opentest4j.AssertionFailedError: expected: <1> but was: <2>\n": "org.opentest4j.AssertionFailedError: " +
			"expected: <1> but was: <2>",
	} {
		if got := strings.Join(runs{before: []testRun{{log: log}}}.symptoms(), "|"); got != want {
			t.Errorf("%q shows %q, want %q", log, got, want)
		}
	}
}

// A test of many cases is named after none of the functions that a commit changes.
func TestOfMany(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fail, changed []string
		want          bool
	}{
		{[]string{"misc_tests misc_tests"}, []string{"sets_numbers", "check"}, true},
		{[]string{"tests/test_a.py::test_sum"}, []string{"test_sum", "make"}, false},
		{[]string{"tests/test_a.py::test_sum"}, []string{"sum"}, true},
		{[]string{"example.com/sums TestSum"}, nil, false},
	} {
		if got := ofMany(c.fail, c.changed); got != c.want {
			t.Errorf("%v with changes of %v: %t, want %t", c.fail, c.changed, got, c.want)
		}
	}
}

// Candidates with the same sources and the same failing tests become one task, unless their cases are in test data.
func TestSameTests(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]int{"": 1, "data": 2} {
		detail, err := json.Marshal(Judged{Task: env.Task{Tests: env.Tests{FailToPass: []string{"test_files"}}}})
		if err != nil {
			t.Fatal(err)
		}
		of := map[string]history.Candidate{}
		var outcomes []run.Outcome
		for _, name := range []string{"new", "old"} {
			of[name] = history.Candidate{Tests: "+" + name, Labels: map[string]string{"tests": label}}
			outcomes = append(outcomes, run.Outcome{Job: run.Job{Task: name}, Result: run.Result{Detail: detail}})
		}
		var all Mined
		tasks := all.sort(outcomes, of, func(history.Candidate, *Judged) history.Reason { return "" })
		if len(tasks) != want || len(all.Losses) != 2-want {
			t.Errorf("%q: %d tasks, want %d; lost are %v", label, len(tasks), want, all.Losses)
		}
	}
}
