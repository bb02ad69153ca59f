package project

import (
	"path/filepath"
	"slices"

	"deepswe/env"
)

// TestCommand returns the command line that runs the tests of the project in the directory; empty in doubt. installed
// are paths below the directory that a set-up adds to it in the sandbox.
func TestCommand(dir string, m Machine, installed []string) string {
	t := tree(dir)
	if command := javaScriptTests(t); command != "" {
		return command
	}
	switch {
	case t.has("go.mod"):
		return "go test -v ./..."
	case t.has("Cargo.toml"):
		return "cargo test"
	case t.has("pom.xml"):
		return m.maven(t) + " -B " + t.mavenTest()
	case t.has("CMakeLists.txt"):
		return t.cmake()
	case t.usesGradle():
		return m.gradle(t) + " test"
	case t.has("Gemfile") && t.has("spec"):
		return "bundle exec rspec"
	case t.has("Rakefile") && t.has("test") && t.has("Gemfile"):
		return "bundle exec rake test"
	case t.has("Rakefile") && t.has("test"):
		return "rake test"
	}
	return pythonTests(t, t.python(m, installed))
}

var (
	// cmakeTests matches the options that a project of CMake has for its tests.
	cmakeTests = env.Pattern(`(?i)\boption\s*\(\s*(\w*TEST\w*)`)
	// withoutTests matches the names of those that leave out the tests, otherTests of those that say how they run.
	withoutTests = env.Pattern(`(?i)(^|_)(WITHOUT|NO|DISABLE|SKIP|EXCLUDE)_`)
	otherTests   = env.Pattern(`(?i)VALGRIND|COVERAGE|SANITI[SZ]|FUZZ|BENCH|PERF|INSTALL`)
)

// cmake returns the command line that builds a CMake project with its tests, outside of the directory, and runs them.
// If a program does not compile, make goes on with the others, and CTest reports it as missing.
func (t tree) cmake() string {
	options := " -DBUILD_TESTING=ON -DCMAKE_POLICY_VERSION_MINIMUM=3.5"
	for _, m := range cmakeTests().FindAllSubmatch(t.read("CMakeLists.txt"), -1) {
		switch name := string(m[1]); {
		case withoutTests().MatchString(name):
			options += " -D" + name + "=OFF"
		case !otherTests().MatchString(name):
			options += " -D" + name + "=ON"
		}
	}
	const build = "/tmp/build"
	return "cmake -S . -B " + build + options + " && { cmake --build " + build + " -j 4 $([ -e " + build +
		"/Makefile ] && echo -- -k); ctest --test-dir " + build + " --output-on-failure; }"
}

// python returns the Python with the project's dependencies; empty if that is the machine's own.
func (t tree) python(m Machine, installed []string) string {
	env := t.virtualEnv()
	if env != "" && !t.has(env+"/bin/python") {
		env = ""
	}
	if env == "" && slices.Contains(installed, ".venv") {
		env = ".venv"
	}
	if env == "" && m.VirtualEnv == "" {
		env = t.poetryEnv(m)
		if env != "" && !m.lacks("poetry") {
			return "poetry run python"
		}
	}
	if env == "" {
		return ""
	}
	return filepath.Join(env, "bin", "python")
}
