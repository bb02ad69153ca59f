package mine

import (
	"regexp"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/project"
)

// A log may show why tests could not run. Where that is known how to mend, they run again.

// mostSkipped limits how many tests Retry leaves out of a task.
const mostSkipped = 8

var (
	// cargoRun matches a line of a script that runs Rust tests.
	cargoRun = env.Pattern(`(?m)^.*` + regexp.QuoteMeta(project.CargoTest) + `.*$`)
	// rustThread matches what Rust prints about a thread that aborts its program. Threads are named after their tests.
	rustThread = env.Pattern(`(?m)^thread '([\w:]+)'.* (?:panicked at|has overflowed its stack)`)
)

// aborting returns the names of the Rust tests that have aborted their programs, according to the log.
func aborting(log string) (tests []string) {
	programs := strings.Split(log, "SIGABRT")
	for _, printed := range programs[:len(programs)-1] {
		printed = printed[max(0, strings.LastIndex(printed, "\n     Running ")):]
		threads := rustThread().FindAllStringSubmatch(printed, -1)
		if len(threads) > 0 {
			tests = append(tests, threads[len(threads)-1][1])
		}
	}
	return tests
}

// Retry changes a draft whose tests have printed log, and reports whether they should run again. passes reports
// whether any test passes.
func (d *Draft) Retry(log string, passes bool) bool {
	return d.skipAborting(log) || d.loadAnyYAML(log) ||
		!passes && (d.withoutBundler(log) || d.ignoreStatus(log) || d.buildFirst(log) || d.runFromRoot())
}

// keepStatus ends the command of a runner whose results come from a report. It restores the runner's exit status.
const keepStatus = "; (exit $status)"

// ignoreStatus ignores the exit status of a runner that fails although all its tests pass, because of the coverage, for
// example, or because it cannot check types. Then only its report counts.
func (d *Draft) ignoreStatus(log string) bool {
	if !strings.Contains(log, "\n[PASSED] ") || !strings.Contains(d.Task.Tests.Script, keepStatus) {
		return false
	}
	d.edit(func(script string) string { return strings.ReplaceAll(script, keepStatus, "") })
	d.mended("status")
	return true
}

// unbuilt matches Node's errors about a missing module that the package's own build writes.
var unbuilt = env.Pattern(
	`Cannot find (?:module|package) '(?:/testbed|\.{1,2})/(?:[^']*/)?(?:dist|build|lib|out|cjs|esm)\b`)

// buildFirst builds the package before its tests run.
func (d *Draft) buildFirst(log string) bool {
	if d.ownBuild == "" || !unbuilt().MatchString(log) {
		return false
	}
	const options = "pipefail\n" // ends the line of a script that comes first
	d.edit(func(script string) string { return strings.Replace(script, options, options+d.ownBuild+"\n", 1) })
	d.ownBuild = ""
	d.mended("build")
	return true
}

// runFromRoot runs the tests in the root of the project rather than in their package.
func (d *Draft) runFromRoot() bool {
	if d.fromRoot == nil {
		return false
	}
	d.use(*d.fromRoot)
	d.fromRoot = nil
	return true
}

// skipAborting leaves out Rust tests that abort their program, because the other tests in it then have no results.
// Unsafe code in old tests makes current versions of Rust abort.
func (d *Draft) skipAborting(log string) bool {
	n := len(d.aborting)
	for _, name := range aborting(log) {
		if !slices.Contains(d.aborting, name) && len(d.aborting) < mostSkipped {
			d.aborting = append(d.aborting, name)
		}
	}
	if len(d.aborting) == n {
		return false
	}
	const options = " -- --exact"
	d.edit(func(script string) string {
		return cargoRun().ReplaceAllStringFunc(script, func(line string) string {
			line, _, _ = strings.Cut(line, options)
			return line + options + " --skip " + strings.Join(d.aborting, " --skip ")
		})
	})
	if n == 0 {
		d.mended("aborts")
	}
	return true
}

var (
	// refusedYAML matches the errors with which YAML.load, since Ruby 3.1, refuses what YAML.unsafe_load still reads.
	refusedYAML = env.Pattern(`\bPsych::(?:DisallowedClass|BadAlias)\b`)
	// lacksGems matches the errors of Bundler where tests load it themselves, and not all gems of the Gemfile are there.
	lacksGems = env.Pattern(`\bBundler::GemNotFound\b|\bin locally installed gems\b`)
)

// loadAnyYAML makes YAML.load read what it could read before Ruby 3.1.
func (d *Draft) loadAnyYAML(log string) bool {
	const source = `require "psych"\nPsych.singleton_class.alias_method :load, :unsafe_load\n`
	return refusedYAML().MatchString(log) && d.preload("yaml", source)
}

// withoutBundler makes tests find gems without Bundler: they seldom need all of those that it asks for.
func (d *Draft) withoutBundler(log string) bool {
	const source = `module Bundler\ndef self.setup(*); self; end\ndef self.require(*); []; end\nend\n` +
		`$LOADED_FEATURES.push("bundler.rb", "bundler/setup.rb")\n`
	return lacksGems().MatchString(log) && d.preload("bundler", source)
}

// preload makes Ruby load a source first, unless it does already. The task has the label mended with the given word.
func (d *Draft) preload(word, source string) bool {
	file := "/tmp/" + word + ".rb"
	line := "printf '" + source + "' >" + file
	t := &d.Task
	if slices.Contains(t.Prepare, line) {
		return false
	}
	t.Prepare = append([]string{line}, t.Prepare...)
	t.Tests.Prepare = append([]string{line}, t.Tests.Prepare...)
	const options = "RUBYOPT="
	t.Env = slices.Clone(t.Env)
	if i := slices.IndexFunc(t.Env, func(v string) bool { return strings.HasPrefix(v, options) }); i >= 0 {
		t.Env[i] += " -r" + file
	} else {
		t.Env = append(t.Env, options+"-r"+file)
	}
	d.mended(word)
	return true
}

// edit changes the scripts of the draft.
func (d *Draft) edit(change func(script string) string) {
	d.Task.Tests.Script, d.BaseScript = change(d.Task.Tests.Script), change(d.BaseScript)
	if d.fromRoot != nil {
		d.fromRoot.patched, d.fromRoot.base = change(d.fromRoot.patched), change(d.fromRoot.base)
	}
}

// mended adds to the label that says what was done to a task.
func (d *Draft) mended(what string) {
	d.Task.Labels["mended"] = strings.TrimSpace(d.Task.Labels["mended"] + " " + what)
}
