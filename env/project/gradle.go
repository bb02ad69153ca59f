package project

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/disk"
)

const (
	// gradleFiles matches the names of Gradle's files for a project.
	gradleFiles = "[a-z]*.gradle*"
	// gradleHome is Gradle's own directory in sandboxes. Every run of Gradle writes into it, so downloads are kept
	// elsewhere, and copied.
	gradleHome = "/tmp/gradle"
	gradleKept = env.Caches + "/gradle"
	// KeepGradle is a command line that copies what Gradle has downloaded, if anything, into [env.Caches]. It leaves out
	// the rest of Gradle's directory, where the sources that were compiled may show.
	KeepGradle = "(at=$PWD/" + gradleKept + "; cd " + gradleHome + " 2>/dev/null || exit 0; mkdir -p $at; " +
		"for one in caches/modules-2 wrapper; do test ! -d $one || cp -r --parents $one $at; done)"
)

func (t tree) usesGradle() bool { return len(disk.Glob(string(t), gradleFiles)) > 0 }

// gradleSetUp returns the command that downloads what the tests need, by a run that stops before each test. It is empty
// for projects without Gradle.
func (t tree) gradleSetUp() string {
	if !t.usesGradle() {
		return ""
	}
	program := "gradle"
	if t.has("gradlew") {
		program = "./gradlew"
	}
	const untested = "allprojects { tasks.withType(Test) { doFirst { throw new StopExecutionException() } } }"
	return "mkdir -p " + gradleHome + " && echo " + env.ShellQuote(untested) + " >" + gradleHome + "/init.gradle && " +
		program + " --console=plain --no-daemon -Dorg.gradle.caching=false test"
}

// wrapped matches the version of Gradle that a project's own script downloads.
var wrapped = env.Pattern(`(?m)^distributionUrl=(?:\S*/)?(\S+)\.zip`)

// gradle returns the program that runs Gradle, with what makes its output readable: the project's own script where the
// version that it names is there, or where no set-up has failed to get it and the machine may have no other.
func (m Machine) gradle(t tree) string {
	home, tried := t.path(gradleKept), t.has(gradleKept)
	if !tried {
		home = filepath.Join(m.Home, ".gradle")
	}
	there := false
	if named := wrapped().FindSubmatch(t.read("gradle/wrapper/gradle-wrapper.properties")); named != nil {
		there = len(disk.Glob(home, "wrapper/dists/"+string(named[1])+"/*/*.ok")) > 0
	}
	program := "gradle"
	if t.has("gradlew") && (there || !tried && (m.Path == nil || m.lacks(program))) {
		program = "./gradlew"
	}
	return program + " --console=plain"
}

// gradleTestsOf returns the command line for some classes of tests, by the tasks of the projects that they are in.
func (t tree) gradleTestsOf(m Machine, files []string) string {
	tests := javaTests(files)
	if len(tests) == 0 || !t.usesGradle() {
		return ""
	}
	slices.SortStableFunc(tests, func(a, b javaTest) int { return cmp.Compare(a.module, b.module) })
	command := m.gradle(t)
	for i, test := range tests {
		if i == 0 || test.module != tests[i-1].module {
			project := strings.TrimSuffix(":"+strings.ReplaceAll(test.module, "/", ":"), ":")
			command += " " + env.ShellQuote(project+":test")
		}
		command += " --tests " + env.ShellQuote(strings.ReplaceAll(test.class, "/", "."))
	}
	return command
}
