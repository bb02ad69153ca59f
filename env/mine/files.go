package mine

import (
	"path"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/project"
	"deepswe/env/setup"
)

// Kind is what a file of a repository is for, judging by its path.
type Kind string

// The kinds. A fix has to change sources, and only tests are run.
const (
	Source      Kind = "source"
	Test        Kind = "test"
	Data        Kind = "data"        // of tests: fixtures, snapshots, helpers in other languages
	Environment Kind = "environment" // manifests and lock files
	Generated   Kind = "generated"   // or vendored
	Docs        Kind = "docs"
	Example     Kind = "example" // sample programs and benchmarks, which Cargo and Go may compile with the tests
	Other       Kind = "other"
)

// languages are the languages of sources, by the endings of their files.
var languages = map[string]string{
	".go": "go", ".py": "python", ".pyx": "python", ".js": "javascript", ".jsx": "javascript", ".mjs": "javascript",
	".cjs": "javascript", ".vue": "javascript", ".ts": "typescript", ".tsx": "typescript", ".mts": "typescript",
	".cts": "typescript", ".rs": "rust", ".java": "java", ".kt": "kotlin", ".scala": "scala", ".rb": "ruby",
	".php": "php", ".c": "c", ".h": "c", ".cc": "c++", ".cpp": "c++", ".cxx": "c++", ".hpp": "c++", ".cs": "c#",
	".swift": "swift", ".ex": "elixir", ".exs": "elixir", ".lua": "lua", ".pl": "perl", ".pm": "perl", ".sh": "shell",
}

// languageOf returns the language of a source file; empty for other files.
func languageOf(name string) string { return languages[strings.ToLower(path.Ext(name))] }

var (
	testFolder = env.Pattern(`(^|/)(tests?|__tests__|specs?|testing|unittests?|integration[-_]tests?|e2e)/`)
	dataFolder = env.Pattern(
		`(^|/)(testdata|test[-_]data|fixtures?|__fixtures__|__snapshots__|(tap-)?snapshots|golden)/|\.snap$`)
	testName = env.Pattern(`^(test_.*|.*_test|.*_tests|tests|conftest|.*[.-](tests?|specs?)|.*_spec|` +
		`spec_.*|Test[A-Z].*|.*Tests?|.*IT|.*TestCase|.*Spec)$`)
	// testProgram matches the usual names of the programs that test a library in C, which are often one word.
	testProgram = env.Pattern(`^test\w*$|(unit|[^adeost])tests?$`)
	generated   = env.Pattern(`(^|/)(vendor|node_modules|third[-_]party|generated)/|` +
		`(^|/)(dist|build)/.*\.([cm]?js|css|d\.ts)$|` +
		`(\.pb\.go|_pb2(_grpc)?\.py|\.min\.(js|css)|[._-]generated\.\w+|\.gen\.go|_gen\.go)$`)
	examples  = env.Pattern(`(?i)/(examples?|benchmarks|benches)/`)
	docFolder = env.Pattern(`(?i)/(docs?|examples?|\.github|\.circleci)/`)
	docName   = env.Pattern(`(?i)\.(md|rst|adoc|txt)$|` +
		`(^|/)(changes|changelog|news|authors|license|copying|readme)[^/]*$`)
)

// kindOf returns what a file is for.
func kindOf(name string) Kind {
	language := languageOf(name)
	folder := "/" + path.Dir(name) + "/"
	above, below, _ := strings.Cut(folder, "/src/")
	above += "/" // below src, a folder is a package, as in src/main/java/com/example
	switch {
	case dataFolder().MatchString(name):
		return Data
	case generated().MatchString(name):
		return Generated
	case setup.IsManifest(name):
		return Environment
	case language != "" && strings.HasPrefix(below, "main/"): // the layout of Maven and Gradle
		return Source
	case language != "" && (namedTest(name) || testFolder().MatchString(name)):
		return Test
	case testFolder().MatchString(name):
		return Data
	case language != "" && examples().MatchString(above):
		return Example
	case docFolder().MatchString(above), docName().MatchString(name):
		return Docs
	case language != "":
		return Source
	}
	return Other
}

// namedTest reports whether a source has a name of tests.
func namedTest(name string) bool {
	base := strings.TrimSuffix(path.Base(name), path.Ext(name))
	return testName().MatchString(base) || runnerOf(languageOf(name)) == "c" && testProgram().MatchString(base)
}

// runs reports whether a test runner would start a file, and not only load it.
func runs(name string) bool {
	switch languageOf(name) {
	case "c", "c++", "rust": // each is a program, or a part of one
		return path.Ext(name) != ".h" && path.Ext(name) != ".hpp"
	}
	return namedTest(name) && path.Base(name) != "conftest.py" && !project.OfTypes(name) || project.InTestFolder(name)
}

// byFolder reports whether a file of JavaScript that runs is a test only because of its folder.
func byFolder(name string) bool {
	return !namedTest(name) && project.InTestFolder(name)
}

// paths returns the paths of the changes of some kinds.
func paths(changes []Change, kinds ...Kind) []string {
	var all []string
	for _, c := range changes {
		if slices.Contains(kinds, c.Kind) {
			all = append(all, c.Path)
		}
	}
	return all
}
