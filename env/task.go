package env

import "time"

// Task is one issue to fix. What the agent may know is in Task itself; what only the grader may know is in
// Task.Tests and never enters the agent's sandbox or prompt.
type Task struct {
	// ID is unique in its dataset ("django__django-11099").
	ID string `json:"id"`
	// Source names the format that the task was read from: swe-bench, r2e-gym, swe-smith, harbor, deepswe, github, text.
	Source string `json:"source,omitempty"`
	// Repo is "owner/name" where it is known.
	Repo string `json:"repo,omitempty"`
	// BaseCommit is the commit that the issue is fixed on top of, by full hash; "<fix>^" where only the fix is known.
	BaseCommit string `json:"base_commit,omitempty"`
	// Statement is the text.
	Statement string `json:"statement"`
	// Image is the container image that holds the repository; Dockerfile is a folder to build one from.
	Image      string `json:"image,omitempty"`
	Dockerfile string `json:"dockerfile,omitempty"`
	// Dir is the repository's absolute path in the image.
	Dir string `json:"dir,omitempty"`
	// Prepare are command lines that bring the image to the state that the agent starts from.
	Prepare []string `json:"prepare,omitempty"`
	// Env is the environment of the agent's commands, as "KEY=value".
	Env    []string `json:"env,omitempty"`
	Limits Limits   `json:"limits,omitzero"`
	Tests  Tests    `json:"tests,omitzero"`
}

// Tests is the grader's half of a task.
type Tests struct {
	FailToPass []string `json:"fail_to_pass,omitempty"`
	PassToPass []string `json:"pass_to_pass,omitempty"`
	// Script is the shell script that runs the tests in the pristine sandbox, after the patch was applied.
	Script string `json:"script,omitempty"`
	// Parser names the log parser of verify/testlog.
	Parser string `json:"parser,omitempty"`
	// Version is the project's, as the record writes it ("1.27"); some parsers go by it.
	Version string `json:"version,omitempty"`
	// EvalType is pass_and_fail or fail_only.
	EvalType string `json:"eval_type,omitempty"`
	// Expected is R2E-Gym's truth: every test's status, compared for equality.
	Expected map[string]string `json:"expected,omitempty"`
	// Files are written into the grading sandbox before the script runs, by path relative to the repository or absolute.
	Files map[string]string `json:"files,omitempty"`
	// Prepare are command lines for the grading sandbox alone. It starts from the image, not from what Task.Prepare made.
	Prepare []string `json:"prepare,omitempty"`
	// RewardFile is where a Harbor task's script leaves its verdict.
	RewardFile string `json:"reward_file,omitempty"`
	// GoldPatch solves the task; TestPatch is the part of the real change that touches tests.
	GoldPatch string `json:"gold_patch,omitempty"`
	TestPatch string `json:"test_patch,omitempty"`
	// Timeout is the longest that Script may run; 0 leaves it to the grader.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Network opens the network while the tests run.
	Network bool `json:"network,omitempty"`
}
