package verify

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env"
)

// TestTampering means that the tests pass only with the patch's changes to tests and to what configures them.
const TestTampering SuspicionKind = "steering"

// A patch can pass tests by fixing the code, or by changing what the tests are and how they run. What it changes of the
// second kind is not evidence, and is not forbidden either: good patches come with tests. So the stricter reading
// reverts those files and checks whether the patch still passes. The files that the task's own solution changes are
// left alone: there, the change is part of what was asked for.

// controlPaths returns the paths that a patch changes and that control the tests, sorted. root are the names of the
// entries at the root of the repository without the patch.
func controlPaths(t env.Task, patch []byte, root []string) []string {
	solution := patchedPaths([]byte(t.Tests.GoldPatch))
	expected := map[string]bool{}
	for _, ids := range [][]string{t.Tests.FailToPass, t.Tests.PassToPass} {
		for _, id := range ids {
			if file := testFile(id); file != "" {
				expected[path.Clean(file)] = true
			}
		}
	}
	return slices.DeleteFunc(patchedPaths(patch), func(name string) bool {
		_, found := slices.BinarySearch(solution, name)
		return found || !expected[name] && !controlsTests(name) && !shadows(name, root)
	})
}

// controlsTests reports whether a file can decide which tests run, how they run, or what they find, by its name.
func controlsTests(name string) bool {
	dir, base := path.Split(name)
	stem, ext, _ := strings.Cut(base, ".")
	return slices.Contains(runnerFiles, base) || slices.Contains(runnerConfigs, stem) && strings.HasPrefix(ext, "conf") ||
		strings.HasSuffix(base, ".pth") || strings.HasPrefix(base, ".mocharc") || isTest(base, stem, ext) ||
		slices.ContainsFunc(strings.Split(dir, "/"), func(dir string) bool {
			return slices.Contains(installed, dir) || holdsTests(dir, ext)
		})
}

// runnerFiles configure a test runner, or are read by an interpreter before the first line of a test.
var runnerFiles = []string{
	"conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", "noxfile.py", ".coveragerc",
	"sitecustomize.py", "usercustomize.py", "pyvenv.cfg", "package.json", ".npmrc", ".babelrc", ".nycrc", ".taprc",
	"go.work", "Makefile", "GNUmakefile", "makefile", "Rakefile", ".rspec", "phpunit.xml", "phpunit.xml.dist",
	"run_tests.sh", "runtests.py", "runtests.sh", "eval.sh",
}

// runnerConfigs are what a configuration file is called that may be written in several languages (jest.config.mjs,
// karma.conf.js).
var runnerConfigs = []string{
	"jest", "vitest", "vite", "karma", "playwright", "cypress", "ava", "jasmine", "mocha", "babel",
}

// installed are directories of third-party code.
var installed = []string{
	".venv", "venv", ".tox", ".nox", "site-packages", "dist-packages", "node_modules", "vendor", ".git",
}

// isTest reports whether a file's name is that of tests, in the conventions of the common runners.
func isTest(base, stem, ext string) bool {
	switch ext {
	case "py", "pyx":
		return strings.HasPrefix(stem, "test_") || strings.HasSuffix(stem, "_test") || stem == "tests"
	case "go", "rb", "cc", "cpp", "c":
		return strings.HasSuffix(stem, "_test") || strings.HasSuffix(stem, "_spec")
	case "java", "kt", "scala", "php", "cs":
		return strings.HasSuffix(stem, "Test") || strings.HasSuffix(stem, "Tests")
	}
	for _, infix := range []string{".test.", ".spec.", "-test.", "_test.", "-spec.", "_spec."} {
		if strings.Contains(base, infix) {
			return true
		}
	}
	return strings.HasSuffix(base, ".snap")
}

// holdsTests reports whether a directory is one for tests and their data. In Python, one called test or spec is as
// often a part of the product (django/test).
func holdsTests(dir, ext string) bool {
	switch dir {
	case "tests", "__tests__", "__snapshots__", "__mocks__", "testdata", "r2e_tests":
		return true
	case "test", "spec":
		return ext != "py" && ext != "go"
	}
	return false
}

// shadows reports whether a path adds a module at the root that has the name of the test runner, or of a module that
// the runner uses: the working directory comes first where Python looks for modules. A repository that has such a
// module of its own is the one that it is installed from.
func shadows(name string, root []string) bool {
	top, _, deeper := strings.Cut(name, "/")
	stem, ext, _ := strings.Cut(top, ".")
	if !deeper && ext != "py" && !strings.HasSuffix(ext, "so") {
		return false
	}
	return slices.Contains(runnerModules, stem) && !slices.Contains(root, stem) && !slices.Contains(root, stem+".py")
}

var runnerModules = []string{
	"pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "exceptiongroup", "tomli", "unittest", "nose", "trial",
	"xdist", "pytest_cov", "coverage", "hypothesis", "atexit", "argparse", "ast", "collections", "contextlib",
	"dataclasses", "enum", "functools", "importlib", "inspect", "io", "json", "logging", "os", "pathlib", "posixpath",
	"re", "shutil", "site", "sys", "sysconfig", "tempfile", "traceback", "types", "typing", "warnings", "builtins",
	"encodings",
}

// controlFiles reads the files by which the patch could control the tests, as they are before it is applied.
func (t *trial) controlFiles(ctx context.Context) ([]file, error) {
	listing, err := t.sb.List(ctx, t.sb.Dir(), env.ListOptions{Hidden: true})
	if err != nil {
		return nil, fmt.Errorf("list the repository: %w", err)
	}
	var root []string
	for _, e := range listing.Entries {
		root = append(root, filepath.Base(e.Path))
	}
	names := controlPaths(t.task, t.patch, root)
	originals := make([]file, 0, len(names))
	for _, name := range names {
		f, err := readFile(ctx, t.sb, name)
		if err != nil {
			return nil, err
		}
		originals = append(originals, f)
	}
	return originals, nil
}
