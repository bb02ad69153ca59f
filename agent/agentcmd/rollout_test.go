package agentcmd

import (
	"time"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/env/repo"
	"deepswe/tools"
)

// rollout shows a watcher a rollout with everything that can happen.
func rollout(w watcher) error {
	at := time.Date(2026, 11, 21, 10, 15, 0, 0, time.UTC)
	exit := func(n int) *int { return &n }
	call := func(name string, args map[string]string) *tools.Call {
		return &tools.Call{ID: "call_1", Name: name, Args: args}
	}
	w.show(note("copying the repository"))
	w.show(started{
		Run: "/state/runs/1", Task: "release", Model: "DeepSWE-Preview", Sandbox: "docker", Repo: "/home/ann/release",
		MaxSteps:  100,
		NotCopied: []repo.Omission{{Path: "secret\x1b[2J.pem", Reason: "not readable"}},
	})
	w.show(attempt.PhaseSandbox)
	w.show(ready("/testbed"))
	w.show(attempt.PhaseAgent)
	view := call("file_editor", map[string]string{"command": "view", "path": "/testbed/compare.go",
		"view_range": "[1, 40]"})
	run := call("execute_bash",
		map[string]string{"cmd": "go test ./... -run 'TestCompare|TestLatest' -count=1 -v 2>&1 | grep -v '^=== RUN' | tail -20"})
	finish := call("finish", map[string]string{"command": "submit"})
	for _, e := range []agent.Event{
		{Kind: agent.EventStart, Text: "xml"},
		{Kind: agent.EventStep, Step: 1},
		{Kind: agent.EventText, Step: 1, Text: "<think>Where is it?"},
		{
			Kind: agent.EventReply, Step: 1, Text: "<think>Where is it?</think>\nI look at compare.go.\n<function=file_editor>",
			Elapsed: 1500 * time.Millisecond,
			Usage:   &agent.Usage{Prompt: 2100, Completion: 80, Cached: 1024},
		},
		{Kind: agent.EventCall, Step: 1, Call: view},
		{Kind: agent.EventResult, Step: 1, Call: view, Result: &tools.Result{Output: "1\tpackage release <&>\n"},
			Elapsed: time.Millisecond},
		{Kind: agent.EventStep, Step: 2},
		{
			Kind: agent.EventReply, Step: 2,
			Text:  "この変更を確認するためにテストを実行しますので、少々お待ちください。長い行です、とても長い行です。",
			Usage: &agent.Usage{Prompt: 3000, Completion: 40},
		},
		{Kind: agent.EventCall, Step: 2, Call: run},
		{Kind: agent.EventResult, Step: 2, Call: run, Result: &tools.Result{Output: "FAIL\x1b[0m\n", Failed: true,
			ExitCode: exit(1)}, Elapsed: 2340 * time.Millisecond},
		{Kind: agent.EventStep, Step: 3},
		{Kind: agent.EventReply, Step: 3, Text: "", Usage: &agent.Usage{}},
		{Kind: agent.EventProblem, Step: 3,
			Text: "Your reply holds no function call, so nothing was run. Every reply must hold one."},
		{Kind: agent.EventFallback, Step: 3, Text: "xml"},
		{Kind: agent.EventNotice, Step: 4, Text: "You have made the same call 3 times."},
		{Kind: agent.EventStep, Step: 5},
		{Kind: agent.EventReply, Step: 5, Text: "Done.", Usage: &agent.Usage{Prompt: 4000, Completion: 20}},
		{Kind: agent.EventCall, Step: 5, Call: finish},
		{Kind: agent.EventResult, Step: 5, Call: finish, Result: &tools.Result{Output: "Submitted.\n", Finished: true}},
		{Kind: agent.EventStop, Step: 5, StopReason: agent.Submitted},
	} {
		e.Time = at
		w.show(e)
	}
	w.show(attempt.PhasePatch)
	w.show(checked{Command: "go test ./...", Passed: true, Output: "ok  \texample.com/release\t0.003s\n"})
	patch, trajectory := "/state/runs/1/rollouts/release/0/patch.diff", "/state/runs/1/rollouts/release/0/trajectory.json"
	return w.finish(outcome{
		Status: "submitted", Patch: &patch, Trajectory: &trajectory, Run: "/state/runs/1", Steps: 5,
		Files:   []string{"compare.go"},
		Omitted: []repo.Omission{{Path: "core.dump", Reason: "too large"}},
		Tokens:  attempt.Tokens{Prompt: 9100, Completion: 140, Cached: 1024}, Seconds: 12.5,
		Answer:  "It compares numbers as numbers.",
		Applied: true, Branch: "fix", Commit: "0123abcd", diff: []byte("diff --git a/compare.go b/compare.go\n"),
	})
}
