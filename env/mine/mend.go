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
