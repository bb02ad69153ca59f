package project

import (
	"bytes"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"

	"deepswe/env"
)

var (
	// javaScriptRunners matches the test runners that run the files which follow on their command line.
	javaScriptRunners = env.Pattern(`\b(vitest|jest|mocha|ava|tape|(?:node|tsx)\b.* --test)\b`)
	// nodeScript matches a command line that starts a test as a program of its own.
	nodeScript = env.Pattern(`\bnode\b.*\btests?\b`)
	// settings matches options of Node and of test runners on which the results of tests depend: they load something
	// before the tests, say what is loaded, or say what tests find there. Without its configuration or its environment, a
	// runner may find no test; without --exit, Mocha waits for what tests leave open.
	settings = env.Pattern(`(?:--require|-r|--import|--(?:experimental-)?loader|--conditions|-C)[ =][\w@./:-]+|` +
		`--(?:config|env|environment|opts)[ =][\w@./:-]+|-c[ =][\w./-]*config[\w./-]*|` +
		`(?:--ui|-u)[ =](?:tdd|bdd|qunit|exports)\b|` +
		`--(?:globals|exit|forceExit|expose[-_]gc|allow-natives-syntax|experimental-[\w-]+)\b`)
	// assignments matches what sets an environment variable on a command line, as the shell and cross-env read it.
	assignments = env.Pattern(`(?:^|\s)([A-Za-z_]\w*=(?:'[^']*'|"[^"]*"|[^\s'"]+))`)
	// calls matches a command that runs another script of the package.
	calls = env.Pattern(`\b(?:npm|yarn|pnpm)(?: run)?(?: -\S+)* ([\w:.-]+)`)
	// outputs matches the argument of a test runner that names tests which a build has written, and their directory.
	outputs = env.Pattern(`\s["']?(?:\./)?((?:out|dist|build|lib|cjs|esm|compiled)(?:[-_]\w+)?)/`)
	// commandEnd matches what ends a command on a line of several.
	commandEnd = env.Pattern(`&&|[;|]`)
)

// javaScriptRunner is how a package runs its tests.
type javaScriptRunner struct {
	// name is as in the command that starts it; empty if it is not known, "node" where the tests are programs.
	name string
	// variables and options are the command's assignments and those options on which results depend, each followed by a
	// space.
	variables, options string
	// output is the directory of the tests that it runs, where a build writes them; empty if it runs their sources.
	output string
}

// deepestScript limits how far the scripts of a package are followed that run each other.
const deepestScript = 4

// javaScriptTestsOf returns the command line for some files of a package's tests; empty where the runner is not known.
func (t tree) javaScriptTestsOf(files []string) string {
	files = slices.DeleteFunc(slices.Clone(files), func(name string) bool { // data and helpers of tests
		base := path.Base(name)
		return OfTypes(name) ||
			!strings.Contains(base, "test") && !strings.Contains(base, "spec") && !InTestFolder(name)
	})
	words := named(files, ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx")
	if words == "" || t.plugAndPlay() {
		return ""
	}
	r := t.javaScriptRunner()
	if r.output != "" && !t.has(r.output) {
		words = built(r.output, files)
	}
	arguments := r.options + words
	npx := r.variables + "npx --no-install "
	switch {
	case r.name == "vitest":
		return npx + "vitest run --reporter=verbose " + arguments
	case r.name == "jest":
		return npx + "jest --verbose " + arguments
	case r.name == "ava":
		return npx + "ava --tap " + arguments
	case r.name == "mocha":
		return npx + t.mocha() + " " + arguments
	case r.name == "tape":
		return npx + "tape " + arguments
	case r.name == "tap", r.name == "node":
		return r.programs(words)
	case strings.HasPrefix(r.name, "tsx"):
		return npx + "tsx --test " + arguments
	case r.name != "":
		return r.variables + "node --test " + arguments
	}
	return ""
}

// built returns a part of a command line: the names of the compiled files of tests, as far as these exist below a
// directory. Compilers keep the path of a source there, or leave out its first directory.
func built(output string, files []string) string {
	var names []string
	for _, name := range files {
		ending := path.Ext(name)
		written := strings.TrimSuffix(name, ending) + strings.NewReplacer("t", "j", "x", "").Replace(ending)
		names = append(names, path.Join(output, written))
		if _, below, found := strings.Cut(written, "/"); found {
			names = append(names, path.Join(output, below))
		}
	}
	return "$(ls " + env.ShellQuote(names...) + " 2>/dev/null)"
}

// javaScriptRunner returns the test runner of a package.
func (t tree) javaScriptRunner() javaScriptRunner {
	var manifest struct {
		Scripts         map[string]string
		DevDependencies map[string]any
	}
	_ = json.Unmarshal(t.read("package.json"), &manifest) // without one there are no scripts
	test := manifest.Scripts["test"]
	if r := runnerOf(manifest.Scripts, "test", "", 0); r.name != "" {
		return r
	}
	// The test script may call a program that runs another script. Each script is looked at by itself, without those that
	// it runs.
	for _, name := range slices.Sorted(maps.Keys(manifest.Scripts)) {
		if r := runnerOf(manifest.Scripts, name, "", deepestScript); r.name != "" {
			return r
		}
	}
	for _, known := range []string{"vitest", "jest", "mocha", "ava", "tape", "tap"} {
		if _, has := manifest.DevDependencies[known]; has {
			return startedBy(test, known, max(0, strings.Index(test, known)))
		}
	}
	if at := nodeScript().FindStringIndex(test); at != nil {
		return startedBy(test, "node", at[0])
	}
	return javaScriptRunner{}
}

// runnerOf returns the first test runner that a script starts, itself or by a script that it runs. variables are the
// assignments of the script that runs this one, and depth is how many scripts led to it.
func runnerOf(scripts map[string]string, name, variables string, depth int) javaScriptRunner {
	for _, command := range commandEnd().Split(scripts[name], -1) {
		if at := javaScriptRunners().FindStringIndex(command); at != nil {
			r := startedBy(command, command[at[0]:at[1]], at[0])
			r.variables = variables + r.variables
			return r
		}
		if m := calls().FindStringSubmatchIndex(command); m != nil && depth < deepestScript {
			called := command[m[2]:m[3]]
			r := runnerOf(scripts, called, variables+assigned(command[:m[0]]), depth+1)
			if r.name != "" {
				return r
			}
		}
	}
	return javaScriptRunner{}
}

// startedBy returns the test runner that begins at an offset of a command. Before it, only long options count: short
// ones may have another meaning there.
func startedBy(line, name string, at int) javaScriptRunner {
	commands := commandEnd().Split(line[:at], -1)
	before := commands[len(commands)-1]
	r := javaScriptRunner{name: name, variables: assigned(before)}
	for _, option := range settings().FindAllString(before, -1) {
		if strings.HasPrefix(option, "--") {
			r.options += option + " "
		}
	}
	after := commandEnd().Split(line[at:], 2)[0]
	for _, option := range settings().FindAllString(after, -1) {
		r.options += option + " "
	}
	if m := outputs().FindStringSubmatch(after); m != nil {
		r.output = m[1]
	}
	return r
}

// assigned returns the assignments of a command line, each followed by a space.
func assigned(line string) (variables string) {
	for _, m := range assignments().FindAllStringSubmatch(line, -1) {
		variables += m[1] + " "
	}
	return variables
}

// Programs is a part of the command line for tests that are programs. It prints, as the Test Anything Protocol does,
// that each of them is a test.
const Programs = `do echo "# Subtest: $t"; if node `

// programs returns the command line that starts each file by itself. Tests for Tap are such programs, and print the
// tests that are in them, whatever its version.
func (r javaScriptRunner) programs(words string) string {
	exports := ""
	if r.variables != "" {
		exports = "export " + strings.TrimSpace(r.variables) + "; "
	}
	return `(` + exports + `status=0; for t in ` + words + `; ` + Programs + r.options + `"$t"; then echo "ok - $t"; ` +
		`else echo "not ok - $t"; status=1; fi; done; exit $status)`
}

// mocha returns the name of Mocha's program. The usual one of Mocha 1 starts _mocha, but its output is lost if Node
// no longer knows the option customFds that shares it.
func (t tree) mocha() string {
	if bytes.Contains(t.read("node_modules/mocha/bin/mocha"), []byte("customFds")) {
		return "_mocha"
	}
	return "mocha"
}

// builds matches a command that builds a package: one of its own scripts, or a compiler.
var builds = env.Pattern(
	`\b(?:npm|yarn|pnpm)(?: run)? ((?:build|compile|transpile|bundle|generate|prepa|prepublish)[\w:.-]*)|` +
		`\b(?:tsc|tshy|tsup|tsdown|unbuild|babel|rollup|webpack|esbuild|swc|gulp|grunt)(?:\s|$)`)

// checks matches a script that checks a package, too.
var checks = env.Pattern(`\b(?:test|lint|xo|eslint)\b`)

// OwnBuild returns the command that builds a package of Node, with its output discarded; empty if it has no script for
// that. If it has several, one that checks nothing comes first.
func OwnBuild(dir string) string {
	scripts := tree(dir).scripts()
	names := []string{"build", "compile", "prepare"}
	names = slices.DeleteFunc(names, func(name string) bool { return scripts[name] == "" })
	if len(names) == 0 {
		return ""
	}
	i := slices.IndexFunc(names, func(name string) bool { return !checks().MatchString(scripts[name]) })
	return "npm run " + names[max(i, 0)] + discarded
}

// discarded ends a command whose output does not matter.
const discarded = " >/dev/null 2>&1"

// scripts returns those of the package.json, by name; none without one.
func (t tree) scripts() map[string]string {
	var manifest struct{ Scripts map[string]string }
	_ = json.Unmarshal(t.read("package.json"), &manifest) // without one there are no scripts
	return manifest.Scripts
}

// Build returns the commands that build a package before its tests run, with their output discarded; none if its test
// scripts do not build it, and do not run what a build has written.
func Build(dir, language string) (lines []string) {
	if language != "javascript" && language != "typescript" {
		return nil
	}
	scripts := tree(dir).scripts()
	for _, script := range []string{scripts["pretest"], scripts["test"]} {
		for _, command := range commandEnd().Split(script, -1) {
			if javaScriptRunners().MatchString(command) {
				break
			}
			at := builds().FindStringSubmatchIndex(command)
			switch line := strings.TrimSpace(command); {
			case at == nil, strings.Contains(line, "--noEmit"): // it only checks types
				continue
			case at[2] >= 0:
				lines = append(lines, assigned(command[:at[0]])+"npm run "+command[at[2]:at[3]]+discarded)
			default:
				lines = append(lines, `PATH="$PWD/node_modules/.bin:$PATH" `+line+discarded)
			}
		}
	}
	if r := tree(dir).javaScriptRunner(); len(lines) == 0 && r.output != "" && !tree(dir).has(r.output) {
		if own := OwnBuild(dir); own != "" {
			lines = []string{own}
		}
	}
	return lines
}

var (
	// inTestFolder matches JavaScript below a folder of tests, all of which most runners start.
	inTestFolder = env.Pattern(`(?:^|/)(?:tests?|__tests__|specs?)/(?:(.*)/)?([^/]+)\.[cm]?[jt]sx?$`)
	// helps matches the names of what tests load.
	helps = env.Pattern(`(?i)helper|support|util|setup|fixture|common|mock`)
	// mayHelp matches those of them that are also common names of what is tested.
	mayHelp = env.Pattern(`(?i)^(util|common)s?$`)
	// ofTypes matches the names of files that are compiled, and not run.
	ofTypes = env.Pattern(`[.-]d\.[cm]?ts$|(^|[/._-])type-?(check[-_])?tests?\.[cm]?tsx?$|\.tst\.tsx?$|` +
		`(^|/)(test-d|type-tests?)/`)
)

// OfTypes reports whether a file of TypeScript only declares or tests types. Such a file is compiled, and never run.
func OfTypes(name string) bool { return ofTypes().MatchString(name) }

// InTestFolder reports whether a file of JavaScript is a test because of its folder.
func InTestFolder(name string) bool {
	m := inTestFolder().FindStringSubmatch(name)
	return m != nil && !helps().MatchString(m[1]) && (!helps().MatchString(m[2]) || mayHelp().MatchString(m[2])) &&
		!OfTypes(name)
}
