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
	// javaScriptRunner matches the test runners that run the files which follow on their command line.
	javaScriptRunner = env.Pattern(`\b(vitest|jest|mocha|ava|tape|(?:node|tsx)\b.* --test)\b`)
	// nodeScript matches a command line that starts a test as a program of its own.
	nodeScript = env.Pattern(`\bnode\b.*\btests?\b`)
	// loads matches options of Node and Mocha that load something before the tests, or say what they load.
	loads = env.Pattern(`(?:--require|-r|--import|--(?:experimental-)?loader|--conditions|-C)[ =][\w@./:-]+|` +
		`--experimental-[\w-]+`)
	// commandEnd matches what ends a command on a line of several.
	commandEnd = env.Pattern(`&&|[;|]`)
)

// javaScriptTestsOf returns the command line for some files of a package's tests; empty where the runner is not known.
func (t tree) javaScriptTestsOf(files []string) string {
	files = slices.DeleteFunc(slices.Clone(files), func(name string) bool { // data and helpers of tests
		base := path.Base(name)
		return ofTypes().MatchString(name) ||
			!strings.Contains(base, "test") && !strings.Contains(base, "spec") && !InTestFolder(name)
	})
	words := named(files, ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx")
	if words == "" || t.plugAndPlay() {
		return ""
	}
	runner, options := t.javaScriptRunner()
	loading := options + words
	switch {
	case runner == "vitest":
		return "npx --no-install vitest run --reporter=verbose " + words
	case runner == "jest":
		return "npx --no-install jest --verbose " + words
	case runner == "ava":
		return "npx --no-install ava --tap " + words
	case runner == "mocha":
		return "npx --no-install " + t.mocha() + " " + loading
	case runner == "tape":
		return "npx --no-install tape " + loading
	case runner == "tap", runner == "node":
		return programs(words, options)
	case strings.HasPrefix(runner, "tsx"):
		return "npx --no-install tsx --test " + loading
	case runner != "":
		return "node --test " + loading
	}
	return ""
}

// javaScriptRunner returns the test runner of a package, and those of its options that load something; empty if it is
// not known. The runner is "node" where the tests are programs.
func (t tree) javaScriptRunner() (runner, options string) {
	var manifest struct {
		Scripts         map[string]string
		DevDependencies map[string]any
	}
	_ = json.Unmarshal(t.read("package.json"), &manifest) // without one there are no scripts
	test := manifest.Scripts["test"]
	// The test script may call another script, or a program that calls the runner.
	for _, line := range append([]string{test}, slices.Sorted(maps.Values(manifest.Scripts))...) {
		if at := javaScriptRunner().FindStringIndex(line); at != nil {
			return line[at[0]:at[1]], loading(line, at[0])
		}
	}
	for _, known := range []string{"vitest", "jest", "mocha", "ava", "tape", "tap"} {
		if _, has := manifest.DevDependencies[known]; has {
			return known, loading(test, max(0, strings.Index(test, known)))
		}
	}
	if at := nodeScript().FindStringIndex(test); at != nil {
		return "node", loading(test, at[0])
	}
	return "", ""
}

// loading returns the options that load something of the command whose runner begins at an offset of a line, each
// followed by a space. Before the runner, only long options count: short ones may have another meaning there.
func loading(line string, runner int) (options string) {
	commands := commandEnd().Split(line[:runner], -1)
	for _, option := range loads().FindAllString(commands[len(commands)-1], -1) {
		if strings.HasPrefix(option, "--") {
			options += option + " "
		}
	}
	for _, option := range loads().FindAllString(commandEnd().Split(line[runner:], 2)[0], -1) {
		options += option + " "
	}
	return options
}

// Programs is a part of the command line for tests that are programs. It prints, as the Test Anything Protocol does,
// that each of them is a test.
const Programs = `do echo "# Subtest: $t"; if node `

// programs returns the command line that starts each file by itself. Tests for Tap are such programs, and print the
// tests that are in them, whatever its version.
func programs(words, options string) string {
	return `(status=0; for t in ` + words + `; ` + Programs + options + `"$t"; then echo "ok - $t"; ` +
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

// builds matches the part of a test script that builds the package.
var builds = env.Pattern(`\b(?:npm|yarn|pnpm)(?: run)? (build[\w:.-]*)`)

// Build returns the commands that build a package before its tests run, with their output discarded; none if its test
// scripts do not build it.
func Build(dir, language string) []string {
	var manifest struct{ Scripts map[string]string }
	_ = json.Unmarshal(tree(dir).read("package.json"), &manifest) // without one there are no scripts
	for _, script := range []string{manifest.Scripts["pretest"], manifest.Scripts["test"]} {
		m := builds().FindStringSubmatch(script)
		if m != nil && (language == "javascript" || language == "typescript") {
			return []string{"npm run " + m[1] + " >/dev/null 2>&1"}
		}
	}
	return nil
}

var (
	// inTestFolder matches JavaScript below a folder of tests, all of which most runners start.
	inTestFolder = env.Pattern(`(?:^|/)(?:tests?|__tests__|specs?)/(?:(.*)/)?([^/]+)\.[cm]?[jt]sx?$`)
	// helps matches the names of what tests load.
	helps = env.Pattern(`(?i)helper|support|util|setup|fixture|common|mock`)
	// mayHelp matches those of them that are also common names of what is tested.
	mayHelp = env.Pattern(`(?i)^(util|common)s?$`)
	// ofTypes matches the names of files that are compiled, and not run.
	ofTypes = env.Pattern(`[.-]d\.[cm]?ts$`)
)

// InTestFolder reports whether a file of JavaScript is a test because of its folder.
func InTestFolder(name string) bool {
	m := inTestFolder().FindStringSubmatch(name)
	return m != nil && !helps().MatchString(m[1]) && (!helps().MatchString(m[2]) || mayHelp().MatchString(m[2])) &&
		!ofTypes().MatchString(name)
}
