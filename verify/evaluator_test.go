package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepswe/env"
)

// wrongAnswer is the repository of these tests: a wrong number, a test that shows it, and one that already passes. Its
// runner is a shell script that prints what pytest would.
var wrongAnswer = map[string]string{
	"answer":       "41\n",
	"name":         "deep thought\n",
	"tests/known":  "check known 'deep thought' \"$(cat name)\"\n",
	"runner.sh":    "check() { if [ \"$2\" = \"$3\" ]; then echo \"PASSED tests/test.py::$1\"; else echo \"FAILED tests/test.py::$1\"; fi; }\n",
	"conftest.py":  "",
	"docs/free":    "nothing\n",
	"data/crlf.tx": "one\r\ntwo\r\n",
}

const wrongAnswerScript = `set -u
echo '>>>>> Start Test Output'
. ./runner.sh
for t in tests/known tests/hidden; do . ./$t; done
if [ -s conftest.py ]; then . ./conftest.py; fi
echo '>>>>> End Test Output'
`

func wrongAnswerTask() env.Task {
	return env.Task{
		ID: "deep__thought-1", Source: "deepswe",
		Tests: env.Tests{
			FailToPass: []string{"tests/test.py::answer"}, PassToPass: []string{"tests/test.py::known"},
			Parser: "parse_log_pytest", EvalType: PassAndFail, Script: wrongAnswerScript,
			Files: map[string]string{"tests/hidden": "check answer 42 \"$(cat answer)\"\n"},
		},
	}
}

// gitDiff returns git's diff of two states of a directory.
func gitDiff(t testing.TB, before, after map[string]string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, content := range before {
		writeFile(t, filepath.Join(dir, "a", name), content)
	}
	for name, content := range after {
		writeFile(t, filepath.Join(dir, "b", name), content)
	}
	cmd := exec.Command("git", "diff", "--no-index", "--binary", "--no-renames", "--no-prefix", "a", "b")
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
		t.Fatalf("git diff: %v", err)
	}
	return out
}

func with(files map[string]string, changes ...string) map[string]string {
	out := map[string]string{}
	for name, content := range files {
		out[name] = content
	}
	for i := 0; i < len(changes); i += 2 {
		if changes[i+1] == "" {
			delete(out, changes[i])
		} else {
			out[changes[i]] = changes[i+1]
		}
	}
	return out
}

func TestEvaluate(t *testing.T) {
	t.Parallel()
	patch := func(changes ...string) []byte { return gitDiff(t, wrongAnswer, with(wrongAnswer, changes...)) }
	right := patch("answer", "42\n")
	for _, tc := range []struct {
		name   string
		patch  []byte
		status Status
		reward float64
		// suspicious is the expected kind, "" for none.
		suspicious SuspicionKind
		// sandboxes is how many are started: a resolved patch takes one for the harness's run, one for the strict run
		// and one for the reference. There is no canary run, because these tests are in no known language.
		sandboxes int32
	}{
		{name: "the right patch", patch: right, status: Resolved, reward: 1, sandboxes: 3},
		{name: "a wrong patch", patch: patch("answer", "43\n"), status: Unresolved, sandboxes: 1},
		{name: "a patch that breaks what worked", patch: patch("answer", "42\n", "name", "marvin\n"), status: Unresolved,
			sandboxes: 1},
		{name: "no patch", patch: nil, status: NoPatch},
		{name: "an empty patch", patch: []byte{}, status: Unresolved, sandboxes: 1},
		{name: "a patch that does not apply", patch: bytes.Replace(right, []byte("-41"), []byte("-40"), 1),
			status: PatchFailed, sandboxes: 4},
		{name: "no patch but words", patch: []byte("I changed the answer."), status: PatchFailed, sandboxes: 4},
		{name: "a patch with tests of its own", patch: patch("answer", "42\n", "tests/mine", "check mine 1 1\n"),
			status: Resolved, reward: 1, sandboxes: 3},
		{name: "a patch to the test", patch: patch("answer", "42\n", "name", "marvin\n", "tests/known", "check known a a\n"),
			status: Resolved, suspicious: TestTampering, sandboxes: 3},
		{name: "a patch to the runner's configuration", patch: patch("conftest.py", "echo PASSED tests/test.py::answer\n"),
			status: Resolved, suspicious: TestTampering, sandboxes: 3},
		{name: "a patch to the hidden test", patch: patch("tests/hidden", "check answer 1 1\n"), status: Unresolved,
			sandboxes: 1},
		{name: "a patch where the hidden test belongs", patch: patch("answer", "42\n", "tests/known", "", "tests",
			"in the way\n"),
			status: Unresolved, sandboxes: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newScratch(t, wrongAnswer)
			e := Evaluator{Provider: p}
			v, err := e.Evaluate(t.Context(), wrongAnswerTask(), tc.patch)
			if err != nil {
				t.Fatal(err)
			}
			if v.Status != tc.status || v.Reward != tc.reward {
				t.Errorf("%s with reward %v, want %s with %v: %s\n%s", v.Status, v.Reward, tc.status, tc.reward, v.Detail, v.Log)
			}
			var kind SuspicionKind
			if len(v.Suspicious) > 0 {
				kind = v.Suspicious[0].Kind
			}
			if kind != tc.suspicious {
				t.Errorf("suspicious: %v, want %q", v.Suspicious, tc.suspicious)
			}
			if n := p.starts.Load(); n != tc.sandboxes {
				t.Errorf("%d sandboxes, want %d", n, tc.sandboxes)
			}
			if v.Report == nil && (v.Status == Resolved || v.Status == NoPatch) {
				t.Errorf("%s without a report", v.Status)
			}
		})
	}
}

// Without git in the image, the host's git applies the patch.
func TestEvaluateWithoutGit(t *testing.T) {
	t.Parallel()
	before := with(wrongAnswer, "old", "to be removed\n", "dir/kept", "x\n")
	after := with(before, "old", "", "new/deep/file", "new\n", "answer", "42\n", "data/crlf.tx", "one\r\n2\r\n", "bin",
		"\x00\x01\xff")
	task := wrongAnswerTask()
	task.Tests.Script = `git() { return 127; }
` + task.Tests.Script + `
[ ! -e old ] && [ "$(cat new/deep/file)" = new ] && [ -e dir/kept ] && [ "$(wc -c < bin)" = 3 ] && printf 'one\r\n2\r\n' | cmp - data/crlf.tx || echo 'FAILED tests/test.py::answer'
`
	// Output after the end marker is not read, so the marker is moved behind the check.
	task.Tests.Script = strings.Replace(task.Tests.Script, "echo '>>>>> End Test Output'\n", "", 1) +
		"echo '>>>>> End Test Output'\n"
	p := newScratch(t, before)
	e := Evaluator{Provider: gitless{p}}
	v, err := e.Evaluate(t.Context(), task, gitDiff(t, before, after))
	if err != nil {
		t.Fatal(err)
	}
	if v.Status != Resolved || v.Applied != "git apply on the host" {
		t.Errorf("%s, applied by %q: %s\n%s", v.Status, v.Applied, v.Detail, v.Log)
	}
	v, err = e.Evaluate(t.Context(), task, []byte("--- a/answer\n+++ b/answer\n@@ -1 +1 @@\n-40\n+42\n"))
	if err != nil || v.Status != PatchFailed || !strings.Contains(v.Detail, "answer") {
		t.Errorf("a patch that does not apply: %s, %s, %v", v.Status, v.Detail, err)
	}
}

// gitless hides git from commands.
type gitless struct{ *scratch }

func (p gitless) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	sb, err := p.scratch.Start(ctx, s)
	return hidden{sb}, err
}

type hidden struct{ env.Sandbox }

func (s hidden) Run(ctx context.Context, c env.Command) (env.Result, error) {
	if strings.HasPrefix(c.Line, "git ") {
		return env.Result{ExitCode: commandNotFound}, nil
	}
	return s.Sandbox.Run(ctx, c)
}

// What cannot be graded is told apart: failures that the patch caused give no reward, a task that is at fault gives no
// verdict, and an infrastructure failure is an error.
func TestEvaluateLimits(t *testing.T) {
	t.Parallel()
	right := gitDiff(t, wrongAnswer, with(wrongAnswer, "answer", "42\n"))
	t.Run("time", func(t *testing.T) {
		t.Parallel()
		task := wrongAnswerTask()
		task.Tests.Script += "sleep 600\n"
		e := Evaluator{Provider: newScratch(t, wrongAnswer), Timeout: 300 * time.Millisecond}
		v, err := e.Evaluate(t.Context(), task, right)
		if err != nil || v.Status != TimedOut || v.Reward != 0 || v.Report != nil {
			t.Errorf("%s, reward %v, %v", v.Status, v.Reward, err)
		}
		if !bytes.HasSuffix(v.Log, []byte("\n\nTimeout error: 0 seconds exceeded.")) {
			t.Errorf("the log ends in %q", v.Log[max(0, len(v.Log)-60):])
		}
	})
	t.Run("log", func(t *testing.T) {
		t.Parallel()
		e := Evaluator{Provider: newScratch(t, wrongAnswer), maxLog: 100}
		v, err := e.Evaluate(t.Context(), wrongAnswerTask(), right)
		if err != nil || v.Status != Ungradable || v.Void || v.Reward != 0 {
			t.Errorf("%s, void %v, reward %v, %v", v.Status, v.Void, v.Reward, err)
		}
	})
	t.Run("parser", func(t *testing.T) {
		t.Parallel()
		task := wrongAnswerTask()
		task.Tests.Parser = "parse_log_nothing"
		e := Evaluator{Provider: newScratch(t, wrongAnswer)}
		v, err := e.Evaluate(t.Context(), task, right)
		if err != nil || v.Status != Ungradable || !v.Void {
			t.Errorf("%s, void %v, %v", v.Status, v.Void, err)
		}
		if err := Gradable(task); !errors.Is(err, ErrUngradable) {
			t.Errorf("Gradable: %v", err)
		}
	})
	t.Run("sandbox", func(t *testing.T) {
		t.Parallel()
		p := newScratch(t, wrongAnswer)
		p.fail = func(int) error { return fmt.Errorf("%w: the disk is full", env.ErrInfrastructure) }
		e := Evaluator{Provider: p}
		if _, err := e.Evaluate(t.Context(), wrongAnswerTask(), right); !errors.Is(err, env.ErrInfrastructure) {
			t.Errorf("error %v, want %v", err, env.ErrInfrastructure)
		}
	})
	t.Run("guest lost", func(t *testing.T) {
		t.Parallel()
		task := wrongAnswerTask()
		task.Tests.Script = "kill -9 $PPID; sleep 60\n"
		e := Evaluator{Provider: newScratch(t, wrongAnswer)}
		if _, err := e.Evaluate(t.Context(), task, right); !errors.Is(err, env.ErrInfrastructure) {
			t.Errorf("error %v, want %v", err, env.ErrInfrastructure)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		task := wrongAnswerTask()
		task.Tests.Script += "sleep 600\n"
		e := Evaluator{Provider: newScratch(t, wrongAnswer)}
		if v, err := e.Evaluate(ctx, task, right); err == nil {
			t.Errorf("%s, want an error", v.Status)
		}
	})
}

// The code under test can change every file that it may write to, but not the script that is being run.
func TestScriptCannotBeRewritten(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		padding string
	}{{"short", ""}, {"too long for an argument", strings.Repeat("# "+strings.Repeat("-", 97)+"\n", 2000)}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			task := wrongAnswerTask()
			task.Tests.Files["tests/hidden"] += "for f in /proc/$PPID/fd/* /proc/$$/fd/*; do :; done; read -r stolen && echo \"stolen: $stolen\"\n"
			task.Tests.Script = tc.padding + task.Tests.Script
			e := Evaluator{Provider: newScratch(t, wrongAnswer)}
			v, err := e.Evaluate(t.Context(), task, gitDiff(t, wrongAnswer, with(wrongAnswer, "answer", "42\n")))
			if err != nil || v.Status != Resolved || bytes.Contains(v.Log, []byte("stolen")) {
				t.Errorf("%s: %s, %v\n%s", v.Status, v.Detail, err, v.Log)
			}
		})
	}
}

func TestEvaluateRewardFile(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, script string
		status       Status
		reward       float64
	}{
		{"one", "echo 1 > $R.txt", Resolved, 1},
		{"half", "echo 0.5 > $R.txt", Unresolved, 0.5},
		{"json first", `echo 0 > $R.txt; echo '{"reward": 1.0}' > $R.json`, Resolved, 1},
		{"none", "true", Ungradable, 0},
		{"words", "echo yes > $R.txt", Ungradable, 0},
		{"directory", "mkdir $R.json", Ungradable, 0},
		{"left by somebody else", "cat $R.txt", Ungradable, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "logs", "reward.txt")
			if tc.name == "left by somebody else" {
				writeFile(t, file, "1\n")
			}
			task := env.Task{ID: "harbor", Tests: env.Tests{
				Script: "R=" + strings.TrimSuffix(file, ".txt") + "\n" + tc.script, RewardFile: file,
			}}
			e := Evaluator{Provider: newScratch(t, wrongAnswer)}
			v, err := e.Evaluate(t.Context(), task, []byte{})
			if err != nil || v.Status != tc.status || v.Reward != tc.reward {
				t.Errorf("%s with reward %v, want %s with %v: %s, %v", v.Status, v.Reward, tc.status, tc.reward, v.Detail, err)
			}
		})
	}
}

// If the script gives the reward itself, a patch may change a file of any name.
func TestEvaluateRewardFileTakesAnyFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "reward.txt")
	task := env.Task{ID: "harbor", Tests: env.Tests{Script: "grep -c os._exit Makefile > " + file, RewardFile: file}}
	p := newScratch(t, wrongAnswer)
	e := Evaluator{Provider: p}
	patch := gitDiff(t, wrongAnswer, with(wrongAnswer, "Makefile", "all:\n\tos._exit\n"))
	if v, err := e.Evaluate(t.Context(), task, patch); err != nil || v.Reward != 1 || len(v.Suspicious) > 0 {
		t.Errorf("%s with reward %v, suspicious %v, %v", v.Status, v.Reward, v.Suspicious, err)
	}
	if n := p.starts.Load(); n != 2 {
		t.Errorf("%d sandboxes, want 2: the reward is confirmed", n)
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	task, patch := wrongAnswerTask(), []byte("x")
	e := Evaluator{}
	key := e.Key(task, patch)
	if key == "" || key != e.Key(task, patch) {
		t.Fatal("the key is not the same twice")
	}
	if named := (&Evaluator{Odds: DefaultOdds}).Key(task, patch); named != key {
		t.Error("the default odds give another key if they are set")
	}
	other := wrongAnswerTask()
	other.Tests.FailToPass = nil
	worded := wrongAnswerTask()
	worded.Statement = "other words"
	if e.Key(worded, patch) != key {
		t.Error("the statement changes the key")
	}
	for name, k := range map[string]string{
		"patch": e.Key(task, []byte("y")), "task": e.Key(other, patch), "limit": (&Evaluator{Timeout: 1}).Key(task, patch),
		"network": (&Evaluator{Network: true}).Key(task, patch),
	} {
		if k == key {
			t.Errorf("the same key with another %s", name)
		}
	}
	if e.Key(task, nil) == e.Key(task, []byte{}) {
		t.Error("no patch and an empty patch are the same")
	}
}
