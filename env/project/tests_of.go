package project

import (
	"bytes"
	"cmp"
	"path"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/disk"
)

// TestCommandsOf returns the command line that runs the tests in the files of a patch, which are paths below the
// directory, and one for those of them that are in the directory already; empty if there are none. The files may hold
// data of tests, too. Where the project's runner cannot run some files alone, it is the command for all tests. Both are
// empty in doubt. m and installed are those of [TestCommand].
func TestCommandsOf(dir string, m Machine, installed, files []string) (patched, base string) {
	python := tree(dir).python(m, installed)
	for _, home := range Homes(dir, files) {
		if home == "." {
			patched, base = tree(dir).testsOf(m, python, files)
		} else {
			patched, base = tree(dir).testsBelow(home, m, python, files)
		}
		if patched != "" {
			return patched, base
		}
	}
	if all := TestCommand(dir, m, installed); all != "" {
		return all, all
	}
	there := slices.DeleteFunc(slices.Clone(files), func(name string) bool { return !tree(dir).has(name) })
	return tree(dir).anyPythonTestsOf(python, files), tree(dir).anyPythonTestsOf(python, there)
}

// TestCommandsFromRoot is [TestCommandsOf] for files of a package below the directory, run in the directory itself: its
// configuration may work only there. Both are empty where the files are of no such package, or no runner is known.
func TestCommandsFromRoot(dir string, m Machine, files []string) (patched, base string) {
	if len(Homes(dir, files)) == 1 {
		return "", ""
	}
	return tree(dir).testsOf(m, tree(dir).python(m, nil), files)
}

// Homes returns the directories below a directory that all of the files are in and that have a manifest of a package,
// the nearest first, and the directory itself, ".", last.
func Homes(dir string, files []string) (homes []string) {
	for at := path.Dir(append(slices.Clone(files), ".")[0]); at != "."; at = path.Dir(at) {
		outside := slices.ContainsFunc(files, func(name string) bool { return !strings.HasPrefix(name, at+"/") })
		// Modules of Maven and Gradle are left to the project that they are modules of.
		if !outside && slices.ContainsFunc([]string{
			"go.mod", "package.json", "pyproject.toml", "setup.py", "setup.cfg", "manage.py", "Cargo.toml", "composer.json",
			"Gemfile", "*.gemspec",
		}, func(manifest string) bool { return len(disk.Glob(tree(dir).path(at), manifest)) > 0 }) {
			homes = append(homes, at)
		}
	}
	return append(homes, ".")
}

// testsBelow is testsOf for the package in a directory below.
func (t tree) testsBelow(home string, m Machine, python string, files []string) (patched, base string) {
	if strings.Contains(python, "/") && !path.IsAbs(python) {
		python = strings.Repeat("../", 1+strings.Count(home, "/")) + python
	}
	var inside []string
	for _, name := range files {
		inside = append(inside, strings.TrimPrefix(name, home+"/"))
	}
	patched, base = tree(t.path(home)).testsOf(m, python, inside)
	for _, command := range []*string{&patched, &base} {
		if *command != "" {
			*command = "(cd " + env.ShellQuote(home) + " && " + *command + ")"
		}
	}
	return patched, base
}

// testsOf returns the command lines of [TestCommandsOf] for the package in the directory; empty where no runner is
// known that runs some files alone.
func (t tree) testsOf(m Machine, python string, files []string) (patched, base string) {
	there := slices.DeleteFunc(slices.Clone(files), func(name string) bool { return !t.has(name) })
	for _, command := range []func([]string) string{
		func(files []string) string { return t.pythonTestsOf(python, files) },
		t.javaScriptTestsOf, t.rubyTestsOf,
		func(files []string) string { return t.mavenTestsOf(m, files) },
		func(files []string) string { return t.gradleTestsOf(m, files) },
		t.cargoTestsOf, t.phpTestsOf,
	} {
		if patched = command(files); patched != "" {
			return patched, command(there)
		}
	}
	if packages, ok := t.goPackages(files); ok {
		there := slices.DeleteFunc(slices.Clone(packages), func(name string) bool { return !t.has(name) })
		if base = "go test -v " + env.ShellQuote(there...); len(there) == 0 {
			base = ""
		}
		return "go test -v " + env.ShellQuote(packages...), base
	}
	return "", ""
}

// goPackages returns the packages of the main module that the files belong to; ok is false if one is in another module.
func (t tree) goPackages(files []string) (packages []string, ok bool) {
	for _, name := range files {
		dir, _, _ := strings.Cut(path.Dir(name)+"/", "testdata/")
		dir = path.Clean(dir)
		for at := dir; at != "."; at = path.Dir(at) {
			if t.has(at + "/go.mod") {
				return nil, false
			}
		}
		if name := "./" + strings.TrimPrefix(dir, "."); !slices.Contains(packages, name) {
			packages = append(packages, name)
		}
	}
	return packages, t.has("go.mod") && len(packages) > 0
}

// named returns the files whose names have one of the endings, as words of a command line.
func named(files []string, endings ...string) string {
	return env.ShellQuote(slices.DeleteFunc(slices.Clone(files), func(name string) bool {
		return !slices.ContainsFunc(endings, func(ending string) bool { return strings.HasSuffix(name, ending) })
	})...)
}

// rubyTest matches the usual names of Ruby's test files. Other files beside them may be tests or helpers.
var rubyTest = env.Pattern(`^(test|spec)_|_(test|spec)\.rb$`)

// bundled precedes a command line in a project with a Gemfile. If gems are missing, "bundle exec" refuses to run
// anything, although tests seldom need all of them; so it is left out then.
const bundled = "$(bundle check >/dev/null 2>&1 && echo bundle exec) "

// testUnit reports whether tests of Ruby are those of test-unit instead of Minitest, which has other options.
func (t tree) testUnit(files []string) bool {
	for _, pattern := range []string{"Gemfile", "*.gemspec", "test/*helper*.rb", "test/*/*helper*.rb"} {
		for _, name := range disk.Glob(string(t), pattern) {
			files = append(files, strings.TrimPrefix(name, t.path("")+"/"))
		}
	}
	old := false
	for _, name := range files {
		text := t.read(name)
		if bytes.Contains(text, []byte("minitest")) {
			return false
		}
		old = old || bytes.Contains(text, []byte("test/unit")) || bytes.Contains(text, []byte("test-unit"))
	}
	return old
}

// rubyTestsOf returns the command line for some files of RSpec or, in the folder test, of Minitest or test-unit.
func (t tree) rubyTestsOf(files []string) string {
	prefix := ""
	if t.has("Gemfile") || len(disk.Glob(string(t), "*.gemspec")) > 0 { // whose Gemfile may be in a directory above
		prefix = bundled
	}
	if words := named(files, "_spec.rb"); words != "" && t.has("spec") {
		return prefix + "rspec " + words
	}
	files = slices.DeleteFunc(slices.Clone(files), func(name string) bool {
		base := path.Base(name)
		known := rubyTest().MatchString(base) && !strings.Contains(base, "helper")
		return !strings.HasPrefix(name, "test/") || !known &&
			(helps().MatchString(base) || !strings.Contains(base, "test") && !strings.Contains(base, "spec"))
	})
	if words := named(files, ".rb"); words != "" {
		options := " -v --seed=1"
		if t.testUnit(files) {
			options = " --verbose=verbose"
		}
		return prefix + `ruby -Ilib -Itest -e 'ARGV.grep(/rb$/) { |f| require "./" + f }' ` + words + options
	}
	return ""
}

// javaTest is a class of tests, as the path below the directory of its sources, and the directory of its module.
type javaTest struct{ module, class string }

// javaTests returns the classes of tests among the files, which Maven and Gradle look for in src/test/java.
func javaTests(files []string) (tests []javaTest) {
	for _, name := range files {
		module, below, found := strings.Cut("/"+name, "/src/test/java/")
		if class, java := strings.CutSuffix(below, ".java"); found && java {
			tests = append(tests, javaTest{strings.TrimPrefix(module, "/"), class})
		}
	}
	return tests
}

// mavenTestsOf returns the command line for some classes of tests, and the modules that they are in.
func (t tree) mavenTestsOf(m Machine, files []string) string {
	var classes, modules []string
	for _, test := range javaTests(files) {
		classes = append(classes, path.Base(test.class))
		if test.module != "" && !slices.Contains(modules, test.module) {
			modules = append(modules, test.module)
		}
	}
	if len(classes) == 0 || !t.has("pom.xml") {
		return ""
	}
	command := m.maven(t) + " -B " + t.mavenTest() + " -Dtest=" + env.ShellQuote(strings.Join(classes, ",")) +
		" -DfailIfNoTests=false -Dsurefire.failIfNoSpecifiedTests=false"
	if len(modules) > 0 {
		command += " -am -pl " + env.ShellQuote(strings.Join(modules, ","))
	}
	return command
}

// phpTestsOf returns the command line of PHPUnit for one file, or for all tests where there are several.
func (t tree) phpTestsOf(files []string) string {
	words := named(files, "Test.php")
	runner := "vendor/bin/phpunit"
	if !t.has(runner) {
		runner = "phpunit" + t.phpunitLoads()
	}
	switch {
	case words == "" || !t.has("composer.json"):
		return ""
	case strings.Count(words, "Test.php") > 1:
		words = ""
	}
	return strings.TrimSpace(runner + " --colors=never " + words)
}

// phpunitLoads returns the option with which a PHPUnit other than the project's own finds the project's classes.
func (t tree) phpunitLoads() string {
	const loader = "vendor/autoload.php"
	for _, name := range []string{"phpunit.xml", "phpunit.dist.xml", "phpunit.xml.dist"} {
		if bytes.Contains(t.read(name), []byte("bootstrap=")) {
			return ""
		}
	}
	if !t.has(loader) {
		return ""
	}
	return " --bootstrap " + loader
}

// pythonTestsOf returns the command line for some files of a project's tests; empty where nothing is known of them.
func (t tree) pythonTestsOf(python string, files []string) string {
	files = pythonTestFiles(files)
	words := env.ShellQuote(files...)
	if words == "" {
		return ""
	}
	all := pythonTests(t, python)
	for command, below := range map[string]string{djangoProject: "", djangoItself: path.Dir(djangoRunner) + "/"} {
		if labels := djangoLabels(files, below); strings.HasSuffix(all, command) && labels != "" {
			return all + " " + labels
		}
	}
	if python, _, pytest := strings.Cut(all+" ", " -m pytest "); pytest {
		return python + " -m pytest " + words
	}
	if python, _, unittest := strings.Cut(all, " -m unittest "); unittest {
		return python + " -m unittest -v " + words
	}
	return ""
}

func pythonTestFiles(files []string) []string {
	return slices.DeleteFunc(slices.Clone(files), func(name string) bool {
		base := path.Base(name)
		return !strings.HasSuffix(base, ".py") || !strings.HasPrefix(base, "test") && !strings.HasSuffix(base, "_test.py")
	})
}

// anyPythonTestsOf returns the command line for some files of a project that has no tests where they usually are, such
// as one with tests in the folders of what they test.
func (t tree) anyPythonTestsOf(python string, files []string) string {
	files = pythonTestFiles(files)
	words := env.ShellQuote(files...)
	switch python = cmp.Or(python, "python3"); {
	case words == "":
		return ""
	case t.onlyUnittest(files) && !t.has("setup.py") && !t.has("pyproject.toml"):
		return python + " -m unittest -v " + words
	}
	return python + " -m pytest " + words
}
