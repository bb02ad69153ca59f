package mine

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/project"
	"deepswe/env/repo"
)

// Old commits meet a toolchain of today. What is known to help is done to their tasks; the label mended says what.

var (
	// addopts matches options of pytest that need a plugin, or that it no longer has.
	addopts = env.Pattern(`(?s)addopts\s*=.{0,400}?` +
		`(--(cov|flake8|black|isort|mypy|pylint|timeout|benchmark|dist|randomly)|-n\s*\w|--strict\b[^-])`)
	module = env.Pattern(`(?m)^module\s+(\S+)`)
	// versionFile matches the name of the module into which a build writes the version, and which git ignores.
	versionFile = env.Pattern(`["']?\b(?:version[-_]file|write_to)["']?\s*[=:]\s*["']([\w./-]+\.py)["']`)
)

// mend changes the draft of a task whose base commit is checked out in dir. homes are the directories of its packages.
// build are command lines that come ahead of the tests, once the change is there.
func (b Builder) mend(
	ctx context.Context, dir string, homes []string, t *env.Task, language string,
) (build []string, err error) {
	var mended []string
	has := func(pattern string) func(home string) bool {
		return func(home string) bool {
			return len(disk.Glob(filepath.Join(dir, home), pattern)) > 0
		}
	}
	if i := slices.IndexFunc(homes, has("src/*/__init__.py")); i >= 0 {
		t.Env = append(t.Env, "PYTHONPATH="+path.Join(testbed, homes[i], "src"))
	}
	switch language {
	case "python":
		mended = mendPython(dir, t)
	case "java":
		build, mended = mendJava(dir, t)
	case "c", "c++":
		build, mended = mendC(dir)
	}
	lines := project.Prepare(dir)
	t.Prepare, t.Tests.Prepare = append(t.Prepare, lines...), append(t.Tests.Prepare, lines...)
	if language == "go" && !slices.ContainsFunc(homes, has("go.mod")) {
		name := "example.com/" + b.Name
		if data, err := repo.Blob(ctx, b.Repository, "HEAD:go.mod"); err == nil {
			if m := module().FindSubmatch(data); m != nil {
				name = string(m[1])
			}
		}
		init := "test -f go.mod || printf 'module %s\\n' " + env.ShellQuote(name) + " >go.mod"
		t.Prepare, t.Tests.Prepare, mended = []string{init}, []string{init}, append(mended, "go.mod")
		// Without requirements no module is needed, and the machine's may be later versions of this one.
		t.Env = append(t.Env, "GOMODCACHE="+path.Join(testbed, env.Caches, "go"))
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module "+name+"\n"), 0o600); err != nil {
			return nil, err
		}
	}
	if len(mended) > 0 {
		t.Labels["mended"] = strings.Join(mended, " ")
	}
	return build, nil
}

// mendPython overrides a project's pytest options that may not be available, and writes the version that a build
// would write. Sets always have the same order, in which some tests are numbered or named.
func mendPython(dir string, t *env.Task) (mended []string) {
	t.Env = append(t.Env, "PYTHONHASHSEED=0")
	for _, name := range []string{"pyproject.toml", "setup.cfg", "setup.py", "pytest.ini", "tox.ini"} {
		data, _ := os.ReadFile(filepath.Join(dir, name)) // what is missing has no options
		if addopts().Match(data) && !slices.Contains(mended, "addopts") {
			t.Env, mended = append(t.Env, "PYTEST_ADDOPTS=-o addopts="), append(mended, "addopts")
		}
		m := versionFile().FindSubmatch(data)
		if m == nil || slices.Contains(mended, "version") || !filepath.IsLocal(string(m[1])) {
			continue
		}
		const version = `version = __version__ = "0.0.0"\nversion_tuple = __version_tuple__ = (0, 0, 0)\n`
		quoted := env.ShellQuote(string(m[1]))
		line := "test -e " + quoted + " || printf '" + version + "' >" + quoted
		t.Prepare, t.Tests.Prepare = append(t.Prepare, line), append(t.Tests.Prepare, line)
		mended = append(mended, "version")
	}
	return mended
}

// anyMatches reports whether the text of a file matches a pattern. The files are those below dir that one of the globs
// matches; one that cannot be read does not match.
func anyMatches(pattern *regexp.Regexp, dir string, globs ...string) bool {
	for _, glob := range globs {
		if slices.ContainsFunc(disk.Glob(dir, glob), func(file string) bool {
			data, _ := os.ReadFile(file)
			return pattern.Match(data)
		}) {
			return true
		}
	}
	return false
}

// strict matches options of compilers that turn warnings into errors.
var strict = env.Pattern(`-Werror\b|-pedantic-errors\b`)

// mendC turns these errors back into warnings where CMake builds: today's compilers warn of more than those of an old
// commit did.
func mendC(dir string) (build, mended []string) {
	if !anyMatches(strict(), dir, "CMakeLists.txt", "*/CMakeLists.txt", "*.cmake", "*/*.cmake") {
		return nil, nil
	}
	const launcher = "/tmp/compile" // CMake puts it before the command line of a compiler
	return []string{
		`printf '#!/bin/sh\nexec "$@" -Wno-error\n' >` + launcher + " && chmod +x " + launcher,
		"export CMAKE_C_COMPILER_LAUNCHER=" + launcher + " CMAKE_CXX_COMPILER_LAUNCHER=" + launcher,
	}, []string{"warnings"}
}

// javaVersion is the pattern of names that projects give to the property of a pom.xml that says which Java it is for:
// they differ, but are made of the same words.
const javaVersion = `((maven|project|build|version)\.)*` +
	`((compiler?|javac?|jdk|src|source|target|release|test)[.-]?)+(version|level)?`

// oldJava matches a property with such a name if it asks for Java 7 or older. Current compilers reject these versions
// (JDK 20 dropped Java 7).
var oldJava = env.Pattern(`(?i)<` + javaVersion + `>\s*(1\.)?[1-7]\s*</`)

// errorProne matches a compiler that works only within those of Java 8 to 10.
var errorProne = env.Pattern(`<compilerId>\s*javac-with-errorprone\s*</`)

// mendJava makes a project's pom.xml files fit today's Java. A solution that changes one only applies to the original
// file, so in that case the tests make the change after it.
func mendJava(dir string, t *env.Task) (build, mended []string) {
	line, mended := editPoms(dir)
	if line == "" {
		return nil, nil
	}
	t.Prepare = []string{line}
	if strings.Contains(t.Tests.GoldPatch, "pom.xml\n") {
		build = t.Prepare
	} else {
		t.Tests.Prepare = t.Prepare
	}
	return build, mended
}

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
		!passes && (d.ignoreStatus(log) || d.buildFirst(log) || d.runFromRoot())
}

// keepStatus ends the command of a runner whose results come from a report: with the runner's own status.
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

// unbuilt matches errors of Node about a module that a build of the package writes.
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

// refusedYAML matches the errors of YAML.load, from Ruby 3.1 on, about what only YAML.unsafe_load reads since then.
var refusedYAML = env.Pattern(`\bPsych::(?:DisallowedClass|BadAlias)\b`)

// loadAnyYAML makes YAML.load read what it could read before Ruby 3.1.
func (d *Draft) loadAnyYAML(log string) bool {
	const preloaded = "/tmp/yaml.rb"
	const line = `printf 'require "psych"\nPsych.singleton_class.alias_method :load, :unsafe_load\n' >` + preloaded
	t := &d.Task
	if !refusedYAML().MatchString(log) || slices.Contains(t.Prepare, line) {
		return false
	}
	t.Prepare = append([]string{line}, t.Prepare...)
	t.Tests.Prepare = append([]string{line}, t.Tests.Prepare...)
	t.Env = append(slices.Clip(t.Env), "RUBYOPT=-r"+preloaded)
	d.mended("yaml")
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

// mendManifests returns the command lines that today's tools need before they can use the manifests in dir.
func mendManifests(dir, language string) []string {
	if line, _ := editPoms(dir); line != "" && language == "java" {
		return []string{line}
	}
	return nil
}

// editPoms returns a command line that makes a Maven project use Java 8 in place of an older one, and Java's own
// compiler in place of [errorProne], with a word for each; empty if it asks for neither.
func editPoms(dir string) (line string, mended []string) {
	var edits []string
	for _, c := range []struct {
		word    string
		pattern *regexp.Regexp
		edit    string
	}{
		{"java", oldJava(), `s#<(` + javaVersion + `)>\s*(1\.)?[1-7]\s*</#<\1>8</#gI`},
		{"compiler", errorProne(), `s#(<compilerId>\s*javac)-with-errorprone#\1#g`},
	} {
		if anyMatches(c.pattern, dir, "pom.xml", "*/pom.xml", "*/*/pom.xml") {
			edits, mended = append(edits, c.edit), append(mended, c.word)
		}
	}
	if len(edits) == 0 {
		return "", nil
	}
	return "find . -name pom.xml -exec sed -Ei " + env.ShellQuote(strings.Join(edits, ";")) + " {} +", mended
}
