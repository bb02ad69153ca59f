package coding

import (
	"testing"

	"deepswe/agent/trajectory"
	"deepswe/rl/train/part"
)

func TestBehaviour(t *testing.T) {
	t.Parallel()
	bash := func(cmd string) trajectory.Call {
		return trajectory.Call{Name: "execute_bash", Args: map[string]string{"cmd": cmd}}
	}
	for cmd, want := range map[string]bool{
		"pytest -x": true, "cd /testbed && python -m pytest tests": true, "python3 test_a.py": true, "go test ./...": true,
		"./tests/runtests.py auth": false, "python tests/runtests.py auth": true, "npm run test": true, "npm test": true,
		"make check": true, "cargo test": true, "sh run_tests.sh": true, "python manage.py test app": true,
		"cat test_a.py": false, "grep -r pytest .": false, "ls tests": false, "pip install pytest": false, "": false,
		"python latest.py": false, "sh ./test.sh": true,
	} {
		if got := runsTests(bash(cmd)); got != want {
			t.Errorf("%q runs tests: %t, want %t", cmd, got, want)
		}
	}
	edit := func(command, path string) trajectory.Call {
		return trajectory.Call{Name: "file_editor", Args: map[string]string{"command": command, "path": path}}
	}
	for _, x := range []struct {
		call trajectory.Call
		want bool
	}{
		{edit("create", "/tmp/test_a.py"), true}, {edit("view", "/tmp/test_a.py"), false}, {edit("create", "a.py"), false},
		{edit("str_replace", "pkg/a_test.go"), true}, {bash("cat > test_b.py <<'E'\nE"), true},
		{bash("cat test_b.py > out"), false}, {bash("echo x | tee -a tests/test_c.py"), true},
	} {
		if got := writesTests(x.call); got != x.want {
			t.Errorf("%v writes tests: %t, want %t", x.call.Args, got, x.want)
		}
	}
	reply := func(text, finish string, problem string, calls ...trajectory.Call) trajectory.Reply {
		return trajectory.Reply{
			Message: trajectory.Message{Content: text}, FinishReason: finish, Problem: problem, Calls: calls,
			Tokens: &trajectory.Sample{CompletionIDs: make([]int32, 20)},
		}
	}
	m := map[string]float64{}
	behaviour(m, &trajectory.Recording{Turns: []trajectory.Turn{
		{
			Reply:        reply("1234567890<function=", "stop", "", bash("pytest")),
			Observations: []trajectory.Observation{{Results: []trajectory.Result{{Failed: true}, {TimedOut: true}}}},
		},
		{Reply: reply("1234567890", "length", "no call")},
	}})
	for name, want := range map[string]float64{
		"think/execute_bash": 10, "think/no_action": 20, "tokens/think_per_turn": 15, "errors/format": 0.5,
		"errors/truncated_reply": 0.5, "errors/tool": 0.5, "errors/command_timeout": 0.5, "tests/ran": 1, "tests/wrote": 0,
	} {
		got, ok := m[name]
		if !ok {
			got, ok = m[name+part.SumEnd]/m[name+part.OfEnd], m[name+part.OfEnd] > 0
		}
		if !ok || got != want {
			t.Errorf("%s is %v (there: %t), want %v", name, got, ok, want)
		}
	}
}
