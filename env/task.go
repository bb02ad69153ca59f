package env

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// Recipe says how to build an image from a folder. The zero value builds the Dockerfile of the folder.
type Recipe struct {
	// File is the Dockerfile's path below the folder: Dockerfile when empty. Target is its stage: the last when empty.
	File   string            `json:"file,omitempty"`
	Target string            `json:"target,omitempty"`
	Args   map[string]string `json:"args,omitempty"`
	// Without are paths below the folder that are left out.
	Without []string `json:"without,omitempty"`
}

// Task is one issue to solve. Tests are only for the grader, and never enter the agent's sandbox or prompt. The agent
// may see everything else.
type Task struct {
	// ID is unique in the task's dataset ("django__django-11099").
	ID string `json:"id"`
	// Source is the format that the task was read from: swe-bench, swe-bench-pro, swe-rebench, multi-swe-bench, openswe,
	// r2e-gym, swe-smith, harbor, deepswe, github or text.
	Source string `json:"source,omitempty"`
	// Repo is "owner/name", if known.
	Repo string `json:"repo,omitempty"`
	// BaseCommit is the full hash of the commit to solve the issue on; "<hash>^" if only the commit of the fix is
	// known.
	BaseCommit string `json:"base_commit,omitempty"`
	// Statement is the text.
	Statement string `json:"statement"`
	// Repository is the absolute path of a git repository on this machine. Sandboxes get a copy of its BaseCommit. It is
	// empty if the image or the preparation contains the files.
	Repository string `json:"repository,omitempty"`
	// Labels say what is known about the task, for choosing and counting. They decide nothing.
	Labels map[string]string `json:"labels,omitempty"`
	// Image is the container image that contains the repository; Dockerfile is a folder to build it from instead.
	Image      string `json:"image,omitempty"`
	Dockerfile string `json:"dockerfile,omitempty"`
	// Recipe says how to build the Dockerfile folder. User is the user that commands run as; empty means the image's.
	Recipe Recipe `json:"recipe,omitzero"`
	User   string `json:"user,omitempty"`
	// Dir is the repository's absolute path in the image.
	Dir string `json:"dir,omitempty"`
	// Shows are directories of Repository that hold what the project depends on, and that are in no commit: those of
	// [Dependencies], and node_modules of its packages. The task's sandboxes have them, read-only.
	Shows []string `json:"shows,omitempty"`
	// Installed is the directory on this machine that Shows are in; empty if that is Repository.
	Installed string `json:"installed,omitempty"`
	// Hides are directories of the sandbox, as absolute paths, that are empty in it: what is installed there has a copy of
	// the solution.
	Hides []string `json:"hides,omitempty"`
	// Prepare lists command lines that bring the image to the agent's starting state.
	Prepare []string `json:"prepare,omitempty"`
	// Env is added to the image's environment for the agent's commands, as "KEY=value".
	Env    []string `json:"env,omitempty"`
	Limits Limits   `json:"limits,omitzero"`
	Tests  Tests    `json:"tests,omitzero"`
}

// Environment names what determines the files outside of the task's repository when an agent starts. Tasks that share
// it have the same ones there.
func (t Task) Environment() string {
	return fmt.Sprintf("%#v", []any{t.Image, t.Dockerfile, t.Recipe, t.User, t.Prepare, t.Dir})
}

// Spec describes a sandbox with the task's repository, as it is before the task's preparation.
func (t Task) Spec() Spec {
	s := Spec{
		Image: t.Image, Dockerfile: t.Dockerfile, Recipe: t.Recipe, User: t.User, Dir: t.Dir, Env: t.Env, Limits: t.Limits,
		Rollout: t.ID,
	}
	if t.Repository != "" {
		s.CopyIn, s.Commit = t.Repository, t.BaseCommit
		for _, name := range t.Shows {
			host := filepath.Join(cmp.Or(t.Installed, t.Repository), name)
			s.Shown = append(s.Shown, Shown{Host: host, Path: path.Join(t.Dir, name)})
			if path.Base(name) != NodeModules {
				continue
			}
			for _, scratch := range NodeScratch() {
				if info, err := os.Stat(filepath.Join(host, scratch)); err == nil && info.IsDir() {
					s.Shown = append(s.Shown, Shown{Path: path.Join(t.Dir, name, scratch), Writable: true})
				}
			}
		}
	}
	for _, dir := range t.Hides {
		s.Shown = append(s.Shown, Shown{Path: dir})
	}
	return s
}

// Dependencies returns the names of the directories below a project in which its package managers keep what it depends
// on. The last one is deepswe's own, for those that keep it elsewhere.
func Dependencies() []string { return []string{NodeModules, ".venv", "venv", "vendor", Caches} }

// NodeModules is the name of the directories with packages of JavaScript. Each package of a repository may have one.
const NodeModules = "node_modules"

// Depends reports whether a path below a project is one of [Dependencies], or NodeModules of a package.
func Depends(name string) bool {
	return slices.Contains(Dependencies(), name) || filepath.IsLocal(name) && path.Clean(name) == name &&
		path.Base(name) == NodeModules
}

// NodeScratch returns the names of the directories in NodeModules into which tools write. Vite does not start if it
// cannot write its compiled settings, nor do AVA and Vitest 0 without their caches.
func NodeScratch() []string { return []string{".vite-temp", ".vite", ".vitest", ".cache"} }

// Caches is the directory below a project that holds the caches of its package managers.
const Caches = ".deps"

// Tests is the part of a task that only the grader may see. The test names in FailToPass fail before the fix and
// pass after it; those in PassToPass have to pass both times.
type Tests struct {
	FailToPass []string `json:"fail_to_pass,omitempty"`
	PassToPass []string `json:"pass_to_pass,omitempty"`
	// Script is the shell script that runs the tests in a pristine sandbox, after the patch has been applied.
	Script string `json:"script,omitempty"`
	// Parser names the log parser in verify/testlog.
	Parser string `json:"parser,omitempty"`
	// Version is the project's version as the dataset writes it ("1.27"); some parsers depend on it.
	Version string `json:"version,omitempty"`
	// EvalType is pass_and_fail (the log must show every expected test passing) or fail_only (it must show none failing).
	EvalType string `json:"eval_type,omitempty"`
	// Expected maps every test of an R2E-Gym task to the status that it must have, exactly.
	Expected map[string]string `json:"expected,omitempty"`
	// Files are written into the grading sandbox before Script runs. Paths are absolute or relative to the
	// repository.
	Files map[string]string `json:"files,omitempty"`
	// Prepare lists command lines for the grading sandbox only, which starts from the image without Task.Prepare.
	Prepare []string `json:"prepare,omitempty"`
	// RewardFile is the file in which a Harbor task's script leaves its reward.
	RewardFile string `json:"reward_file,omitempty"`
	// GoldPatch is the dataset's own solution; TestPatch is the part of the original change that touches tests.
	GoldPatch string `json:"gold_patch,omitempty"`
	TestPatch string `json:"test_patch,omitempty"`
	// Timeout limits Script; 0 means the grader's default.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Network allows access to the network while the tests run.
	Network bool `json:"network,omitempty"`
}
