package project

import (
	"regexp"
	"slices"
	"strings"

	"deepswe/env"
)

// pip returns the command that installs a Python package that has neither a lock file nor requirements: in editable
// mode, with the extras for its tests. The extras for its features and the group for its developers, without which
// tests are skipped, are installed if possible.
func (t tree) pip() string {
	if !t.has("setup.py") && !t.has("pyproject.toml") && !t.has("setup.cfg") {
		return ""
	}
	manifest := string(t.read("pyproject.toml"))
	grouped := ""
	if _, after, found := strings.Cut(manifest, "[dependency-groups]"); found {
		grouped, _, _ = strings.Cut(after, "\n[")
		manifest = strings.Replace(manifest, grouped, "", 1)
	}
	groups, developers := "", ""
	extra := forTests(manifest + "\n" + string(t.read("setup.py")) + "\n" + string(t.read("setup.cfg")))
	if group := forTests(grouped); group != "" {
		groups = " --group " + group
		if forDevelopers().MatchString(grouped) && group != "dev" {
			developers = " --group dev"
		}
	}
	itself := t.has("setup.py") || strings.Contains(manifest, "[project]") || strings.Contains(manifest, "[build-system]")
	install := func(extras []string, groups string) string {
		command := PipInstall
		switch {
		case itself && len(extras) > 0:
			command += "-e " + env.ShellQuote(".["+strings.Join(extras, ",")+"]")
		case itself:
			command += "-e " + env.ShellQuote(".")
		}
		return command + groups + " pytest"
	}
	var extras []string
	if extra != "" {
		extras = []string{extra}
	}
	command := pipBegins + newestPip
	features := t.features()
	if !itself {
		features = nil
	}
	if len(features) > 0 || developers != "" {
		command += install(slices.Concat(extras, features), groups+developers) + " || "
	}
	return command + install(extras, groups)
}

// forDevelopers matches the definition of the group with all that a project's developers use.
var forDevelopers = env.Pattern(`(?m)^dev\s*=`)

// forTests returns the name of the extra or group for tests that manifests define; empty if there is none.
func forTests(manifests string) string {
	for _, name := range []string{"test", "tests", "testing", "dev", "develop"} { // the best first
		defined := regexp.MustCompile(`(?m)^\s*(?:extras_require\s*=\s*\{\s*)?["']?` + name +
			`["']?\s*[=:]\s*(?:[\[(]|$|EXTRA)`)
		if defined.MatchString(manifests) {
			return name
		}
	}
	return ""
}

var (
	optional  = env.Pattern(`(?m)^\[(?:project\.optional-dependencies|options\.extras_require)\]\s*\n`)
	extraName = env.Pattern(`(?m)^["']?([\w-]+)["']?\s*=`)
	// forOthers matches the names of extras for a project's developers, and of extras that include all others.
	forOthers = env.Pattern(`^(tests?|testing|ci|cov(erage)?|dev|devel(op(ment)?)?|docs?|documentation|examples?|` +
		`lint(ing|ers?)?|format(ting)?|style|check|types?|typing|mypy|build|release|publish|bench(marks?)?|benchmarking|` +
		`profil(e|ing)|pre-commit|tools|all|full|complete|gpu|cuda\d*)$`)
)

// mostFeatures is the largest number of extras that are installed; a project with more depends on too much.
const mostFeatures = 4

// features returns the names of the extras for what a package can do, or none if there are more than mostFeatures.
func (t tree) features() (names []string) {
	for _, manifest := range []string{"pyproject.toml", "setup.cfg"} {
		text := string(t.read(manifest))
		at := optional().FindStringIndex(text)
		if at == nil {
			continue
		}
		section, _, _ := strings.Cut(text[at[1]:], "\n[")
		for _, m := range extraName().FindAllStringSubmatch(section, -1) {
			if !forOthers().MatchString(m[1]) && !slices.Contains(names, m[1]) {
				names = append(names, m[1])
			}
		}
	}
	if len(names) > mostFeatures {
		return nil
	}
	return names
}
