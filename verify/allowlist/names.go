package allowlist

import (
	"path"
	"slices"
	"strings"
)

// ByName returns why a file with this path is withheld in every repository; empty if it is not.
func ByName(name string) Reason {
	base, stem, ext := splitName(name)
	dirs := strings.FieldsFunc(path.Dir(name), func(r rune) bool { return r == '/' })
	switch {
	case slices.ContainsFunc(dirs, isMetadata), isMetadata(base):
		return Metadata
	case slices.Contains(dirs, "__pycache__"), slices.Contains(compiledFiles, path.Ext(base)), isSharedObject(base):
		return Compiled
	case isInstalled(dirs), isVendored(dirs, base):
		return ThirdParty
	case isTest(base, stem, ext), holdsTests(dirs, ext):
		return Tests
	case isBuild(base, stem, ext):
		return Build
	case isConfiguration(name, base, stem, ext):
		return Configuration
	}
	return ""
}

// splitName returns the last element of a path, and its parts before and after the first dot.
func splitName(name string) (base, stem, ext string) {
	base = path.Base(name)
	stem, ext, _ = strings.Cut(base, ".")
	return base, stem, ext
}

// isMetadata reports whether a file or a directory describes an installed package. Python finds such directories
// wherever it finds modules; JUnit finds its settings and services among a program's resources.
func isMetadata(name string) bool {
	switch ext := path.Ext(name); {
	case ext == ".dist-info", ext == ".egg-info", ext == ".egg-link", ext == ".pth", name == "EGG-INFO":
		return true
	}
	return name == "entry_points.txt" || name == "junit-platform.properties" || name == "testng.xml" ||
		strings.HasPrefix(name, "org.junit.") || strings.HasPrefix(name, "org.testng.")
}

var compiledFiles = []string{
	".pyc", ".pyo", ".so", ".pyd", ".dll", ".dylib", ".a", ".o", ".lib", ".syso", ".node", ".class", ".jar", ".war",
	".egg", ".whl", ".pyz", ".phar", ".gch", ".pch",
}

// isSharedObject reports whether a file is a version of a library (libx.so.1). Other names have the language code of
// Somali (units.so.json).
func isSharedObject(base string) bool {
	_, version, ok := strings.Cut(base, ".so.")
	return ok && version != "" && '0' <= version[0] && version[0] <= '9'
}

// installed are directories of third-party code.
var installed = []string{
	".venv", ".tox", ".nox", "site-packages", "dist-packages", "node_modules", ".git", "__pypackages__", ".eggs",
	"bower_components",
}

// environments are directories of Python's virtual environments. Below the root, a directory called venv counts as one
// if it has one of them: packages have that name, too (pdm/models/venv).
var environments = []string{"bin", "lib", "lib64", "Scripts", "Lib", "include"}

// isInstalled reports whether one of the directories holds third-party code.
func isInstalled(dirs []string) bool {
	for i, dir := range dirs {
		venv := dir == "venv" && (i == 0 || i+1 < len(dirs) && slices.Contains(environments, dirs[i+1]))
		if venv || slices.Contains(installed, dir) {
			return true
		}
	}
	return false
}

// isVendored reports whether a file is in a directory of third-party code. In Python and JavaScript packages, a
// directory called vendor counts only at the root.
func isVendored(dirs []string, base string) bool {
	i := slices.Index(dirs, "vendor")
	return i == 0 || i > 0 && (base == "modules.txt" || isNative(base) ||
		slices.Contains([]string{".go", ".php", ".rb"}, path.Ext(base)))
}

// configurations are names of files that configure a test runner, or that an interpreter reads before the first line of
// a test.
var configurations = []string{
	"conftest.py", "pytest.ini", "pytest.toml", "tox.ini", "tox.toml", "setup.cfg", "pyproject.toml", "noxfile.py",
	"sitecustomize.py", "usercustomize.py", "pyvenv.cfg", "go.env", "phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml",
	"run_tests.sh", "runtests.py", "runtests.sh", "eval.sh", "tsconfig.json", "jsconfig.json", "bunfig.toml", "deno.json",
	"deno.jsonc", "mocha.opts", "unittest.cfg", "nose.cfg", "spec_helper.rb", "rails_helper.rb",
}

// tools are tools whose configuration files may be written in several languages (jest.config.mjs, karma.conf.js,
// vitest.workspace.ts, jest.setup.js).
var tools = []string{
	"jest", "vitest", "vite", "karma", "playwright", "cypress", "ava", "jasmine", "mocha", "babel", "webpack", "rollup",
	"swc", "nyc", "wdio", "nightwatch", "testcafe", "web-test-runner", "wtr", "tap", "c8",
}

// isConfiguration reports whether a file configures a runner or an interpreter. At the root of a repository, all files
// and directories whose names begin with a dot count as settings of some tool.
func isConfiguration(name, base, stem, ext string) bool {
	first, _, _ := strings.Cut(name, "/")
	if strings.HasPrefix(first, ".") || slices.Contains(configurations, base) {
		return true
	}
	if strings.HasPrefix(base, ".") {
		first, _, _ := strings.Cut(base[1:], ".")
		return strings.HasSuffix(first, "rc") || strings.HasPrefix(base, ".env") || strings.HasPrefix(base, ".pytest") ||
			strings.HasPrefix(base, ".pnp") || slices.Contains([]string{".coveragerc", ".rspec", ".python-version"}, base)
	}
	if strings.HasPrefix(base, "tsconfig.") && path.Ext(base) == ".json" {
		return true
	}
	return slices.Contains(tools, stem) &&
		(strings.HasPrefix(ext, "conf") || strings.HasPrefix(ext, "workspace.") || strings.HasPrefix(ext, "setup."))
}

// builds are names of files that say how a project is built, what it depends on, and often how its tests run.
var builds = slices.Concat(lists, commandFiles, []string{
	"package.json", "pnpm-workspace.yaml", "lerna.json", "nx.json", "turbo.json", "bun.lockb", "bun.lock", "setup.py",
	"poetry.toml", "uv.toml", "pdm.toml", "hatch.toml", "MANIFEST.in", "go.mod", "go.work", "go.work.sum", "Makefile.am",
	"Makefile.in", "CMakeLists.txt", "CMakePresets.json", "meson.build", "meson_options.txt", "meson.options", "configure",
	"configure.ac", "Rakefile", "Gemfile", "composer.json", "pom.xml", "build.gradle", "build.gradle.kts",
	"settings.gradle", "settings.gradle.kts", "gradle.properties", "gradlew", "mvnw", "build.sbt", "build.rs",
	"Cargo.toml", "rust-toolchain", "rust-toolchain.toml", "BUILD", "BUILD.bazel", "WORKSPACE", "WORKSPACE.bazel",
	"MODULE.bazel", "SConstruct", "SConscript", "build.xml", "build.zig", "Package.swift", "mix.exs",
})

func isBuild(base, stem, ext string) bool {
	if slices.Contains(builds, base) {
		return true
	}
	switch path.Ext(base) {
	case ".cmake", ".mk", ".gemspec", ".bzl", ".csproj", ".gradle":
		return true
	case ".txt", ".in":
		return isRequirements(stem)
	}
	return (stem == "Gruntfile" || stem == "gulpfile") && ext != ""
}

func isRequirements(stem string) bool {
	return strings.HasPrefix(stem, "requirements") || strings.HasPrefix(stem, "constraints") ||
		strings.HasSuffix(stem, "-requirements") || strings.HasSuffix(stem, "_requirements")
}

// isTest reports whether a file is named like a test, by the conventions of common runners.
func isTest(base, stem, ext string) bool {
	switch ext {
	case "py", "pyx":
		return strings.HasPrefix(stem, "test_") || strings.HasSuffix(stem, "_test") || stem == "tests"
	case "go":
		return strings.HasSuffix(stem, "_test")
	case "spec.json", "spec.csv": // data that nothing runs
		return false
	case "rb", "cc", "cpp", "c", "rs":
		return strings.HasSuffix(stem, "_test") || strings.HasSuffix(stem, "_spec")
	case "java", "kt", "scala", "php", "cs", "groovy", "swift":
		return strings.HasSuffix(stem, "Test") || strings.HasSuffix(stem, "Tests")
	case "js", "mjs", "cjs", "ts", "mts", "cts", "jsx", "tsx":
		if stem == "test" || stem == "tests" || stem == "spec" {
			return true
		}
	}
	for _, infix := range []string{".test.", ".spec.", "-test.", "_test.", "-spec.", "_spec."} {
		if strings.Contains(base, infix) {
			return true
		}
	}
	return strings.HasSuffix(base, ".snap")
}

// holdsTests reports whether one of the directories is for tests and their data. In Python and Go, a directory called
// test or spec counts only at the root, because elsewhere it is often a part of the product (django/test).
func holdsTests(dirs []string, ext string) bool {
	for i, dir := range dirs {
		switch dir {
		case "tests", "__tests__", "__snapshots__", "__mocks__", "__fixtures__", "testdata", "r2e_tests":
			return true
		case "test", "spec", "specs":
			if i == 0 || ext != "py" && ext != "go" {
				return true
			}
		}
	}
	return false
}

// isNative reports whether a file is a source that becomes part of a program in another language: the Go compiler
// compiles the assembly and C files in a package's directory, and the build of a Python package those of extensions.
func isNative(name string) bool {
	switch path.Ext(name) {
	case ".s", ".S", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".m", ".mm", ".f", ".F", ".for", ".f90",
		".swig", ".swigcxx", ".asm":
		return true
	}
	return false
}
