package verify

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/env"
	"deepswe/verify/allowlist"
)

// rewardTask has a script that writes the reward itself, depending on what the code in code.sh answers. In reward,
// REWARD stands for the path of the reward file without its extension.
func rewardTask(t *testing.T, reward string) (env.Task, map[string]string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "logs", "reward.txt")
	place := strings.TrimSuffix(file, ".txt")
	return env.Task{ID: "harbor", Tests: env.Tests{
		Script:     ". ./code.sh\nr=0; [ \"$(answer)\" = 42 ] && r=1\n" + strings.ReplaceAll(reward, "REWARD", place) + "\n",
		RewardFile: file,
	}}, map[string]string{"code.sh": "answer() { echo 41; }\n", "PLACE": place}
}

// Only what the script itself writes at its end is a reward.
func TestRewardsCannotBeForged(t *testing.T) {
	t.Parallel()
	const plain = "echo $r > REWARD.txt"
	const computed = "p=$(cat PLACE); d=$(dirname $p); echo $r > $d/reward.$(echo txt)"
	const honest = "answer() { echo 42; }\n"
	p := `p=$(cat PLACE)` + "\n"
	for _, tc := range []struct {
		name, script, code string
		status             Status
		reward             float64
		suspicious         bool
	}{
		{name: "the fix", script: plain, code: honest, status: Resolved, reward: 1},
		{name: "the fix, and a script that names no file", script: computed, code: honest, status: Resolved, reward: 1},
		{name: "no fix", script: plain, code: "true\n", status: Unresolved},
		{name: "the other file", script: plain, code: p + `echo '{"reward": 1}' > $p.json`, status: Unresolved},
		{
			name: "the other file, and a script that names none", script: computed, status: Resolved, suspicious: true,
			code: p + `echo '{"reward": 1}' > $p.json`,
		},
		{
			name: "a directory in the place of the file", script: plain, status: Ungradable,
			code: p + `mkdir $p.txt; echo '{"reward": 1}' > $p.json`,
		},
		{name: "a link in the place of the file", script: plain, status: Ungradable, code: p + `ln -s $PWD/1 $p.txt; echo 1 > 1`},
		{
			name: "the shell ends", script: plain, status: Resolved, suspicious: true,
			code: p + `echo 1 > $p.txt; kill -9 $$`,
		},
		{
			name: "the shell ends well", script: plain, status: Resolved, suspicious: true,
			code: p + `echo 1 > $p.txt; exit 0`,
		},
		{
			name: "a file that cannot be written", script: "set -e\n" + plain, status: Resolved, suspicious: true,
			code: p + `echo 1 > $p.txt; set -o noclobber; echo() { exit 0; }`,
		},
		{
			name: "a process that goes on writing", script: plain, status: Unresolved,
			code: p + `(setsid sh -c "while :; do echo 1 > $p.txt; sleep 0.2; done" &) > /dev/null 2>&1`,
		},
		{
			name: "a process, and a script that names no file", script: computed + "\nsleep 0.5", status: Resolved, suspicious: true,
			code: p + `(setsid sh -c "while :; do echo 1 > $p.txt; sleep 0.1; done" &) > /dev/null 2>&1`,
		},
		{
			name: "both by design", script: `echo $r > REWARD.txt; echo "{\"reward\": $r}" > REWARD.json`, code: honest,
			status: Resolved, reward: 1,
		},
		{
			name: "both by design, and no fix", script: `echo $r > REWARD.txt; echo "{\"reward\": $r}" > REWARD.json`,
			code: p + `echo '{"reward": 1}' > $p.json`, status: Unresolved,
		},
		{
			name: "a server that the script leaves", script: "sleep 600 &\n" + plain, code: honest, status: Resolved, reward: 1,
		},
		{name: "more than a number", script: plain, code: p + `echo() { yes | head -c 2000000; }`, status: Ungradable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			task, files := rewardTask(t, tc.script)
			e := Evaluator{Provider: newScratch(t, files)}
			v, err := e.Evaluate(t.Context(), task, gitDiff(t, files, with(files, "code.sh", tc.code+"\n")))
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(tc.name, "a process") && v.Status != tc.status {
				// The process may win the race, or be killed while the file is empty, but it does not win in the
				// confirmation.
				tc.status, tc.suspicious = v.Status, v.Status == Resolved
			}
			if v.Status != tc.status || v.Reward != tc.reward || len(v.Suspicious) > 0 != tc.suspicious {
				t.Errorf("%s with reward %v, want %s with %v: %s, %v\n%s",
					v.Status, v.Reward, tc.status, tc.reward, v.Detail, v.Suspicious, v.Log)
			}
		})
	}
}

// What a script has started is ended before its reward is read.
func TestNothingIsLeftRunning(t *testing.T) {
	t.Parallel()
	task, files := rewardTask(t, "echo $r > REWARD.txt; setsid sleep 600 & echo $! > PID")
	p := newScratch(t, files)
	e := Evaluator{Provider: atClose{p, func(sb env.Sandbox) {
		r, err := sb.Run(context.Background(), env.Command{
			Line: `grep -q '^State:[[:space:]]*[^ZX]' /proc/$(cat PID)/status`, // a dead process may still be listed
		})
		if err != nil || r.ExitCode == 0 {
			t.Errorf("the process is still there: %v, %v", r.ExitCode, err)
		}
	}}}
	if _, err := e.Evaluate(t.Context(), task, []byte{}); err != nil {
		t.Fatal(err)
	}
}

// atClose calls look with each sandbox before it is closed.
type atClose struct {
	*scratch
	look func(env.Sandbox)
}

func (p atClose) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	sb, err := p.scratch.Start(ctx, s)
	return looked{sb, p.look}, err
}

type looked struct {
	env.Sandbox
	look func(env.Sandbox)
}

func (s looked) Close(ctx context.Context) error {
	s.look(s.Sandbox)
	return s.Sandbox.Close(ctx)
}

// If a script shows pytest's output, a reward needs a test that passed.
func TestLostSummary(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, script, log string
		want              bool
	}{
		{"whole", "pytest -q\necho 1 > /logs/verifier/reward.txt", "...\n3 passed in 0.1s\n", false},
		{"ended", "pytest -q\necho 1 > /logs/verifier/reward.txt", "", true},
		{"ended early", "pytest > x\n", "==== test session starts ====\ncollected 3 items\n", true},
		{"none", "pytest -q\n", "3 failed in 0.1s", true},
		{"into a file", "pytest > /logs/pytest.log 2>&1\n", "", false},
		{"errors with the rest", "pytest 2>&1\n", "", true},
		{"quiet", "pytest -qq\n", "...", false},
		{"another runner", "go test ./...\n", "ok", false},
	} {
		task := env.Task{Tests: env.Tests{
			RewardFile: "/logs/verifier/reward.txt", Files: map[string]string{"/tests/test.sh": tc.script},
		}}
		if got := lostSummary(task, []byte(tc.log)); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestElsewhere(t *testing.T) {
	t.Parallel()
	task := env.Task{Dir: "/app", Tests: env.Tests{
		RewardFile: "/logs/verifier/reward.txt", Script: "#!/bin/bash\ncd /app\n/tests/test.sh\n",
		Files: map[string]string{
			"/tests/test.sh":  "#!/bin/bash\npytest --ctrf /logs/verifier/ctrf.json\nls /logs/verifiers\necho $? > /logs/verifier/reward.txt\n",
			"/tests/grade.py": "open('/logs/verifier/reward.json')", "/tests/data": "\x00/logs/verifier/reward.txt",
		},
	}}
	moved, _ := elsewhere(task)
	to := filepath.Dir(moved.Tests.RewardFile)
	if !strings.HasPrefix(to, "/logs/verifier-") || filepath.Base(moved.Tests.RewardFile) != "reward.txt" {
		t.Fatalf("the reward is in %s", moved.Tests.RewardFile)
	}
	want := "#!/bin/bash\npytest --ctrf " + to + "/ctrf.json\nls /logs/verifiers\necho $? > " + to + "/reward.txt\n"
	if got := moved.Tests.Files["/tests/test.sh"]; got != want {
		t.Errorf("the script is %q, want %q", got, want)
	}
	if got := moved.Tests.Files["/tests/grade.py"]; got != "open('"+to+"/reward.json')" {
		t.Errorf("its helper is %q", got)
	}
	if moved.Tests.Files["/tests/data"] != task.Tests.Files["/tests/data"] {
		t.Error("a data file was changed")
	}
	if got := moved.Tests.Script; got != "#!/bin/bash\ncd /app\n/bin/bash -c "+env.ShellQuote(want)+" /tests/test.sh\n" {
		t.Errorf("it runs %q", got)
	}
	if task.Tests.Files["/tests/grade.py"] != "open('/logs/verifier/reward.json')" {
		t.Error("the task itself was changed")
	}
	own := env.Task{Tests: env.Tests{RewardFile: "/app/reward.txt", Script: "cd /app\necho 1 > /app/reward.txt\n"}}
	if got, _ := elsewhere(own); !strings.HasPrefix(got.Tests.Script, "cd /app\necho 1 > /app/reward-") ||
		!strings.HasPrefix(got.Tests.RewardFile, "/app/reward-") {
		t.Errorf("a reward in the repository moves to %+v", got.Tests)
	}
}

// If a task gives its own reward, it may ask for any file, so only files that serve nothing but a test runner are
// withheld.
func TestReaches(t *testing.T) {
	t.Parallel()
	task := env.Task{Statement: "Make pytest.ini collect our tests.", Tests: env.Tests{RewardFile: "/logs/verifier/reward.txt"}}
	tr := trial{task: task}
	for _, tc := range []struct {
		name, before, after string
		want                bool
	}{
		{"conftest.py", "", "def pytest_runtest_makereport(): pass", true},
		{"a-1.dist-info/entry_points.txt", "", "[pytest11]", true},
		{"iniconfig/__init__.py", "", "", true},
		{"a/__pycache__/b.cpython-311.pyc", "", "", true},
		{"pyproject.toml", "[tool.pytest.ini_options]\n", "[tool.pytest.ini_options]\naddopts = '-p evil'\n", true},
		{"setup.cfg", "", "[tool:pytest]\n", true},
		{"main_test.go", "", "package a\nfunc TestMain(m *testing.M) { os.Exit(0) }", true},
		{"pytest.ini", "", "[pytest]\n", false},
		{"pyproject.toml", "[tool.pytest.ini_options]\n", "[project]\nname = 'a'\n[tool.pytest.ini_options]\n", false},
		{"Makefile", "", "all:\n", false},
		{"tests/test_mine.py", "", "def test(): pass", false},
		{"package.json", "{}", `{"main": "a.js", "dependencies": {}}`, false},
		{"bin/tool", "", "\x7fELF", false},
	} {
		c := change{file{name: tc.name}, file{name: tc.name, kind: env.KindFile, data: []byte(tc.after)}}
		if tc.before != "" {
			c.before.kind, c.before.data = env.KindFile, []byte(tc.before)
		}
		s := snapshot{list: allowlist.New(allowlist.Repository{})}
		withheld, _ := s.withhold([]change{c}, tr.reaches)
		if got := slices.ContainsFunc(withheld, func(w Withheld) bool { return w.Path == tc.name }); got != tc.want {
			t.Errorf("%s is withheld: %v, want %v", tc.name, got, tc.want)
		}
	}
}
