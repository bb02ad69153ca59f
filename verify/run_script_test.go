package verify

import (
	"strings"
	"testing"

	"deepswe/env"
)

// A script is split where its tests begin, and its second half exits with the status of the tests.
func TestSplit(t *testing.T) {
	t.Parallel()
	const start, end = ": '>>>>> Start Test Output'\n", ": '>>>>> End Test Output'\n"
	for _, tc := range []struct {
		name, script, setup, tests string
		exits                      bool
	}{
		{"no markers", "cd x\npytest\n", "", "cd x\npytest\n", false},
		{"no end", "a\n" + start + "pytest\n", "", "a\n" + start + "pytest\n", false},
		{
			"the harness's", "set -x\ngit apply t\n" + start + "pytest -rA\nSWEBENCH_TEST_EXIT_CODE=$?\n" + end +
				"echo \">>>>> Test Exit Code: $SWEBENCH_TEST_EXIT_CODE\"\ngit checkout t\n",
			"set -x\ngit apply t\n", start + "pytest -rA\nSWEBENCH_TEST_EXIT_CODE=$?\n" + end +
				"echo \">>>>> Test Exit Code: $SWEBENCH_TEST_EXIT_CODE\"\n{ exit \"$SWEBENCH_TEST_EXIT_CODE\"; } 2>/dev/null\n",
			true,
		},
		{
			"always 0", start + "go test ./...\n" + end + "exit 0\n", "",
			start + "go test ./...\n{ deepswe_status=$?; } 2>/dev/null\n" + end +
				"{ exit \"$deepswe_status\"; } 2>/dev/null\n", true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := split(tc.script)
			if p.setup != tc.setup || p.tests != tc.tests || p.exits != tc.exits {
				t.Errorf("setup %q\ntests %q, exits %v", p.setup, p.tests, p.exits)
			}
		})
	}
}

// The patch of the tests is cut out of the first half only if that changes nothing else.
func TestWithoutPatch(t *testing.T) {
	t.Parallel()
	const before = "cd /testbed\npip install -e .\ngit checkout abc tests/a.py\n"
	const patch = "diff --git a/tests/a.py b/tests/a.py\n--- a/tests/a.py\n+++ b/tests/a.py\n@@ -1 +1 @@\n-a\n+b\n"
	const document = "git apply -v - <<'EOF_12'\n" + patch + "EOF_12\n"
	for _, tc := range []struct{ name, setup, rest string }{
		{"SWE-bench's", before + document, before},
		{"with comments after it", before + document + "\n# now\nset -x\n", before + "\n# now\nset -x\n"},
		{"an environment is set after it", before + document + "source /opt/x/bin/activate\nexport A=1\ngit status\n",
			before + "source /opt/x/bin/activate\nexport A=1\ngit status\n"},
		{"something is built after it", before + document + "pip install -e .\n", before + "pip install -e .\n"},
		{"another document follows", before + document + "cat >x <<'EOF'\nEOF\n", ""},
		{"another document comes first", "cat >x <<'EOF'\n" + document + "EOF\n", ""},
		{"in another directory", "cd /testbed\ncd lib\n" + document, ""},
		{"in a condition", "if true; then\n  " + document + "fi\n", ""},
		{"with variables", before + strings.ReplaceAll(document, "'", ""), ""},
		{"without an end", before + strings.TrimSuffix(document, "EOF_12\n"), ""},
		{"no patch", before, ""},
	} {
		rest, got := phases{setup: tc.setup, tests: "x"}.withoutPatch("/testbed")
		switch {
		case tc.rest == "" && (got != nil || rest.setup != tc.setup):
			t.Errorf("%s: took %q out, and left %q", tc.name, got, rest.setup)
		case tc.rest != "" && (string(got) != patch || rest.setup != tc.rest || rest.tests != "x"):
			t.Errorf("%s: took %q out, and left %q", tc.name, got, rest.setup)
		}
	}
}

func TestUnbailed(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"set -x\npytest -x -rA tests\n":               "set -x\npytest -rA tests\n",
		"pytest --maxfail=1 -q --exitfirst\n":         "pytest -q\n",
		"pytest --maxfail 2 tests -x":                 "pytest tests",
		"npx jest --bail --ci\n":                      "npx jest --ci\n",
		"go test -failfast -v ./...\n":                "go test -v ./...\n",
		"./tests/runtests.py --failfast a.b\n":        "./tests/runtests.py a.b\n",
		"cd a && cargo +nightly test -p b -- --exact": "cd a && cargo +nightly test --no-fail-fast -p b -- --exact",
		"cargo test --no-fail-fast a; cargo build":    "cargo test --no-fail-fast a; cargo build",
		"/opt/maven/bin/mvn -ff -o test":              "/opt/maven/bin/mvn -fae -o test",
		"mvn -fn test\n./mvnw test":                   "mvn -fn test\n./mvnw -fae test",
		"bash -c './gradlew -x lint test'":            "bash -c './gradlew --continue -x lint test'",
		"bundle exec rspec --fail-fast=1 a_spec.rb":   "bundle exec rspec a_spec.rb",
		"vendor/bin/phpunit --stop-on-failure tests":  "vendor/bin/phpunit tests",
		"cat cargo.log mvn.log gradle/a":              "cat cargo.log mvn.log gradle/a",
		"tar -x -f tests.tar\nbash -x ./install.sh":   "tar -x -f tests.tar\nbash -x ./install.sh",
	} {
		if got := strings.ReplaceAll(unbailed(script), "  ", " "); strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("unbailed(%q) = %q, want %q", script, got, want)
		}
	}
}

// The second half of a script runs in the shell state that the first half left, but cannot see the first half's text.
func TestPhasesKeepTheShell(t *testing.T) {
	t.Parallel()
	p := newScratch(t, map[string]string{"a b/c": "x\n"})
	sb, err := p.Start(t.Context(), env.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close(t.Context())
	state := t.TempDir() + "/state.sh"
	script := split(`set -uo pipefail
export EXPORTED="it's
two lines" plain='a "b"' ; list=(one "two three")
greet() { echo "hello $1"; }
alias ll='ls -l'
umask 027
cd 'a b'
secret=hidden # the words of the first half
: '>>>>> Start Test Output'
echo "$EXPORTED|$plain|${list[1]}|$(greet you)|$(umask)|$(basename "$PWD")|$-"
printenv EXPORTED
tr '\0' '\n' </proc/$$/cmdline | grep -c 'word[s] of'
env | grep -c 'word[s] of'
false
: '>>>>> End Test Output'
echo after
`)
	for _, shell := range []string{"", "sh"} {
		text := script
		if shell == "sh" {
			text.setup = strings.NewReplacer(` list=(one "two three")`, " list=x", "greet() { echo \"hello $1\"; }\n", "",
				"set -uo pipefail", "set -u").Replace(text.setup)
			text.tests = strings.NewReplacer("${list[1]}", "$list", "$(greet you)", "").Replace(text.tests)
		}
		r, err := sb.Run(t.Context(), env.Command{Line: text.saving(state), Shell: shell})
		if err != nil || r.ExitCode != 0 || r.Stdout.Size+r.Stderr.Size > 0 {
			t.Fatalf("first half: %v, %+v", err, r)
		}
		r, err = sb.Run(t.Context(), env.Command{Line: text.restoring(state), Shell: shell})
		want := "it's\ntwo lines|a \"b\"|two three|hello you|0027|a b|"
		if shell == "sh" {
			want = "it's\ntwo lines|a \"b\"|x||0027|a b|"
		}
		got := string(r.Stdout.Head)
		if err != nil || !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "it's\ntwo lines\n0\n0\n") {
			t.Errorf("%s: %v\n%q\nstderr %q\nwant %q", shell, err, got, r.Stderr.Head, want)
		}
		if r.ExitCode != 1 || r.Signal != "" {
			t.Errorf("%s: exit code %d, signal %q", shell, r.ExitCode, r.Signal)
		}
	}
}

func TestNeedsHistory(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"git checkout abc123 tests/a.py": false, "git show": false, "git -c core.fileMode=false diff abc123": false,
		"git checkout -b x": false, "git checkout fix -- tests": true, "git show v2:tests/a.py >tests/a.py": true,
		"git reset --hard HEAD": false, "+git checkout fix": false, "pytest": false, "git apply -v - <<'EOF'": false,
	} {
		task := env.Task{BaseCommit: "abc123", Tests: env.Tests{Script: "set -x\n" + line + "\npytest\n"}}
		if got := needsHistory(task); got != want {
			t.Errorf("needsHistory(%q) = %v", line, got)
		}
	}
}

// While the script prepares the tests, no hidden test is in a file or on its command line, and a git that it has
// replaced is not used to install them.
func TestNoTestsDuringSetup(t *testing.T) {
	t.Parallel()
	test := map[string]string{"tests/new": "check answer 42 \"$(cat answer)\" # the word is mellon\n"}
	setup := `grep -rqs 'mello[n]' . && echo leaked by a file
tr '\0' '\n' </proc/$$/cmdline | grep -q 'mello[n]' && echo leaked by the command line
mkdir bin && echo 'cat >>stolen; exit 1' >bin/git && chmod +x bin/git && PATH=$PWD/bin:$PATH
git apply -v - <<'EOF_1'
` + string(gitDiff(t, nil, test)) + "EOF_1\n"
	task := wrongAnswerTask()
	task.Tests.Files["tests/hidden"] += "# mellon\n"
	tests := strings.Replace(wrongAnswerScript, "echo '>>>>> Start", setup+"echo '>>>>> Start", 1)
	const both = "tests/hidden tests/new; do if [ -e stolen ]; then cat stolen; fi;"
	task.Tests.Script = strings.Replace(tests, "tests/hidden; do", both, 1)
	if task.Tests.Script == tests || tests == wrongAnswerScript {
		t.Fatalf("the script is another than expected:\n%s", wrongAnswerScript)
	}
	e := Evaluator{Provider: newScratch(t, wrongAnswer), Training: true, Canary: CanaryNever}
	v, err := e.Evaluate(t.Context(), task, gitDiff(t, wrongAnswer, with(wrongAnswer, "answer", "42\n")))
	if err != nil || v.Status != Resolved {
		t.Fatalf("%s, %s, %v\n%s", v.Status, v.Detail, err, v.Log)
	}
	if log := string(v.Log); strings.Contains(log, "leaked") || strings.Contains(log, "the word") {
		t.Errorf("a hidden test was visible before the tests began:\n%s", log)
	}
}
