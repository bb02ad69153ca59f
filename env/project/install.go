package project

import (
	"path"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/disk"
)

// needs is how the projects with a manifest get what their tests need, beyond what [Due] knows: by a command that fills
// a tool's own cache, which a variable moves below the directory of all caches.
type needs struct{ language, manifest, command, variable string }

// cached returns the tools that keep what they install in caches of their own.
func cached() []needs {
	return []needs{
		{"go", "go.mod", "go mod download", "GOMODCACHE=%s/go"},
		{"go", "go.mod", "", "GOTOOLCHAIN=auto"}, // the toolchain that go.mod names is in that cache
		{"rust", "Cargo.toml", "cargo fetch", "CARGO_HOME=%s/cargo"},
		{"rust", "Cargo.toml", "", "CARGO_TARGET_DIR=" + cargoTarget},
		{"ruby", "Gemfile", "bundle install", "BUNDLE_PATH=%s/gems"},
		// Checks of licences and style would read the caches, too, which are below the project. The JVM compiles Maven and
		// the compiler with C1 alone: they end before C2 pays.
		{"java", "pom.xml", "", "MAVEN_OPTS=-Dmaven.repo.local=%s/m2 -Drat.skip=true -Dlicense.skip=true " +
			"-Dcheckstyle.skip=true -Dspotless.check.skip=true -Danimal.sniffer.skip=true -XX:TieredStopAtLevel=1"},
		{"java", gradleFiles, "", "GRADLE_USER_HOME=" + gradleHome},
		{"php", "composer.json", "composer install --no-interaction --no-scripts", "COMPOSER_HOME=%s/composer"},
	}
}

// Caches reports whether the tools of a language use packages from a cache, which may hold several versions of one.
func Caches(language string) bool {
	return slices.ContainsFunc(cached(), func(n needs) bool {
		return n.language == language && n.manifest != "composer.json" // Composer copies it into the project
	})
}

// Install returns the commands that install what the tests of the project in the directory need if nothing is
// installed yet, and the variables by which tools then find it, in caches below [env.Caches] of the directory at. It
// covers only the given language of a project in several.
func Install(dir, at, language string, m Machine) (commands, variables []string) {
	t := tree(dir)
	var step Step
	switch language {
	case "javascript", "typescript":
		step, _ = javaScript(t, Machine{Path: m.Path})
	case "python":
		var known bool
		if step, known = python(t, Machine{Path: m.Path}); !known {
			step.Command = t.pip()
		}
	case "java":
		if step, _ = java(t, Machine{Path: m.Path, Home: at}); step.Command == "" {
			step.Command = t.gradleSetUp()
		}
	}
	if step.Command != "" {
		commands = append(commands, step.Command)
	}
	for _, n := range cached() {
		if n.language != language || len(disk.Glob(dir, n.manifest)) == 0 || t.has("vendor/modules.txt") {
			continue
		}
		if n.command != "" {
			commands = append(commands, n.command)
		}
		variables = append(variables, strings.ReplaceAll(n.variable, "%s", path.Join(at, env.Caches)))
	}
	return commands, variables
}

// Prepare returns the command lines by which the tools of the project in the directory find what is installed there,
// where variables are not enough: they write into their own directories, so each run gets copies.
func Prepare(dir string) (lines []string) {
	for _, copied := range [][2]string{{gradleKept, gradleHome}, {cargoKept, cargoTarget}} {
		if kept, used := copied[0], copied[1]; tree(dir).has(kept) {
			lines = append(lines, "cp -rp "+kept+" "+path.Dir(used)+" && chmod -R a+rwX "+used)
		}
	}
	return lines
}
