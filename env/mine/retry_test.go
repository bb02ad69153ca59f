package mine

import (
	"os/exec"
	"strings"
	"testing"

	"deepswe/env"
	"deepswe/env/project"
)

// Rust tests run again without those that abort their programs. In each program, the last thread named is to blame.
func TestRetry(t *testing.T) {
	t.Parallel()
	const log = "     Running unittests src/lib.rs (/tmp/target/debug/deps/a-1)\n" +
		"thread 'tests::failed' (16) panicked at src/lib.rs:1:1:\ntest tests::failed ... FAILED\n" +
		"     Running tests/a.rs (/tmp/target/debug/deps/a-2)\ntest b ... ok\n" +
		"thread 'c' (17) panicked at a.rs:2:1:\nunsafe precondition(s) violated: slice::from_raw_parts requires …\n" +
		"thread caused non-unwinding panic. aborting.\n" +
		"  process didn't exit successfully: `/tmp/target/debug/deps/a-2` (signal: 6, SIGABRT: process abort signal)\n" +
		"     Running tests/b.rs (/tmp/target/debug/deps/b-3)\n" +
		"thread 'deep::recursion' has overflowed its stack\nfatal runtime error: stack overflow, aborting\n" +
		"  process didn't exit successfully: `/tmp/target/debug/deps/b-3` (signal: 6, SIGABRT: process abort signal)\n"
	const another = "thread 'd' (18) panicked at a.rs:3:1:\n(signal: 6, SIGABRT: process abort signal)\n"
	d := Draft{BaseScript: "#!/bin/bash\n" + project.CargoTest, Task: env.Task{
		Labels: map[string]string{"mended": "addopts"},
		Tests:  env.Tests{Script: project.CargoTest + " --no-run || features=; " + project.CargoTest + " $features\nstatus=$?\n"},
	}}
	if d.Retry("thread 'a' (15) panicked at a.rs:1:1:\ntest a ... FAILED", false) || !d.Retry(log, true) ||
		d.Retry(log, true) || !d.Retry(another, true) {
		t.Error("retried for another reason, not at all, or again for the same")
	}
	const skip = " -- --exact --skip c --skip deep::recursion --skip d"
	if want := project.CargoTest + " --no-run || features=; " + project.CargoTest + " $features" + skip +
		"\nstatus=$?\n"; d.Task.Tests.Script != want {
		t.Errorf("the script is\n%s", d.Task.Tests.Script)
	}
	if want := "#!/bin/bash\n" + project.CargoTest + skip; d.BaseScript != want || d.Task.Labels["mended"] != "addopts aborts" {
		t.Errorf("%v, and the old tests' script is\n%s", d.Task.Labels, d.BaseScript)
	}
}

// Where no test of a workspace's package passes in its directory, they run in the root of the workspace.
func TestRetryFromRoot(t *testing.T) {
	t.Parallel()
	dir := history(t, `change package.json '{"scripts": {"test": "vitest run", "build": "tsc"}}'; change packages/a/package.json '{"scripts": {"test": "vitest run"}}'
change packages/a/src/a.ts 'a()'; commit root
change packages/a/src/a.ts 'b()'; change packages/a/src/a.test.ts 'test()'; commit 'b is missing'`)
	d, _ := drafted(t, dir)
	const inside, root = "cd 'packages/a' && ", "'packages/a/src/a.test.ts'"
	if script := d.Task.Tests.Script; !strings.Contains(script, inside) || strings.Contains(script, root) {
		t.Errorf("the script of the package is\n%s", script)
	}
	if d.Retry("", true) || !d.Retry("Cannot find module '../dist/a.js'", false) || !d.Retry("", false) || d.Retry("", false) {
		t.Error("retried with tests that pass, not at all, or too often")
	}
	if script := d.Task.Tests.Script; strings.Contains(script, inside) || !strings.Contains(script, root) ||
		!strings.Contains(script, "\nnpm run build ") {
		t.Errorf("the script of the root is\n%s", script)
	}
}

// What the tests import from a build is built, if the package has a script for that.
func TestRetryBuild(t *testing.T) {
	t.Parallel()
	dir := history(t, `change package.json '{"scripts": {"test": "mocha", "build": "tsup"}}'; change src/a.js 'a()'; commit root
change src/a.js 'b()'; change test/a.js 'test()'; commit 'b is missing'`)
	d, _ := drafted(t, dir)
	const log = "Error [ERR_MODULE_NOT_FOUND]: Cannot find module '/testbed/dist/esm/index.js' imported from /testbed/test/a.js"
	if d.Retry(log, true) || d.Retry("Cannot find module 'chai'", false) || !d.Retry(log, false) || d.Retry(log, false) {
		t.Error("retried with tests that pass, for another reason, not at all, or twice")
	}
	const begin = "#!/bin/bash\nset -uxo pipefail\nnpm run build >/dev/null 2>&1\n"
	if script := d.Task.Tests.Script; !strings.HasPrefix(script, begin) || d.Task.Labels["mended"] != "build" {
		t.Errorf("%v, %s", d.Task.Labels, script)
	}
}

// Where the report of a runner says that all tests pass, its status does not matter.
func TestRetryStatus(t *testing.T) {
	t.Parallel()
	how, _ := readable("npx --no-install jest --verbose a.test.js")
	script := how.command("npx --no-install jest --verbose a.test.js") + "\n"
	d := Draft{Task: env.Task{Labels: map[string]string{}, Tests: env.Tests{Script: script}}, BaseScript: script}
	const log = "Jest: coverage threshold is not met\n[PASSED] a.test.js > adds\n"
	if d.Retry(log, true) || d.Retry("no tests", false) || !d.Retry(log, false) || d.Retry(log, false) {
		t.Error("retried with tests that count, with none, not at all, or twice")
	}
	want := strings.Replace(script, "; (exit $status)", "", 1)
	if d.Task.Tests.Script != want || d.BaseScript != want || d.Task.Labels["mended"] != "status" {
		t.Errorf("%v, %s", d.Task.Labels, d.Task.Tests.Script)
	}
}

// YAML.load reads what it could read before Ruby 3.1.
func TestRetryYAML(t *testing.T) {
	t.Parallel()
	d := Draft{Task: env.Task{Env: []string{"A=1"}, Labels: map[string]string{}, Prepare: []string{"true"}}}
	const log = "class_loader.rb:99:in `find': Tried to load unspecified class: Symbol (Psych::DisallowedClass)\n"
	if d.Retry("a_test.rb:1: Psych::SyntaxError", false) || !d.Retry(log, true) || d.Retry(log, true) {
		t.Fatal("retried for another reason, not at all, or twice")
	}
	if d.Task.Labels["mended"] != "yaml" || len(d.Task.Prepare) != 2 || len(d.Task.Tests.Prepare) != 1 {
		t.Errorf("%+v", d.Task)
	}
	if _, err := exec.LookPath("ruby"); err != nil {
		t.Skip("needs Ruby")
	}
	script := d.Task.Prepare[0] + "\nexport " + d.Task.Env[1] + "\nruby -ryaml -e 'p YAML.load(\":a\")'"
	c := exec.CommandContext(t.Context(), "sh", "-ec", strings.ReplaceAll(script, "/tmp/", t.TempDir()+"/"))
	if out, err := c.CombinedOutput(); err != nil || string(out) != ":a\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// Tests that load Bundler run without it where it does not find all gems.
func TestRetryBundler(t *testing.T) {
	t.Parallel()
	d := Draft{Task: env.Task{Env: []string{"RUBYOPT=-ryaml"}, Labels: map[string]string{}}}
	const log = "Could not find gem 'mocha (~> 2.1.0)' in locally installed gems. (Bundler::GemNotFound)\n"
	if d.Retry(log, true) || !d.Retry(log, false) || d.Retry(log, false) {
		t.Fatal("retried although tests pass, not at all, or twice")
	}
	if d.Task.Labels["mended"] != "bundler" || len(d.Task.Env) != 1 {
		t.Errorf("%+v", d.Task)
	}
	if _, err := exec.LookPath("ruby"); err != nil {
		t.Skip("needs Ruby")
	}
	script := d.Task.Prepare[0] + "\nexport '" + d.Task.Env[0] + "'\n" +
		`ruby -e 'require "bundler/setup"; require "bundler"; Bundler.require(:default); p Bundler.setup, YAML.load("1")'`
	c := exec.CommandContext(t.Context(), "sh", "-ec", strings.ReplaceAll(script, "/tmp/", t.TempDir()+"/"))
	if out, err := c.CombinedOutput(); err != nil || string(out) != "Bundler\n1\n" {
		t.Errorf("%q, %v", out, err)
	}
}
