package project

import (
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"deepswe/env"
)

// pip returns the command that installs a Python package that has neither a lock file nor requirements: in editable
// mode, with the extras for its tests. The extras for its features and the group for its developers, without which
// tests are skipped, are installed if possible.
func (t tree) pip() string {
	if !t.has("setup.py") && !t.has("pyproject.toml") && !t.has("setup.cfg") {
		return ""
	}
	p := t.pyproject()
	defined := append(p.extras(), t.extras()...)
	groups, developers := "", ""
	if group := forTests(slices.Collect(maps.Keys(p.Groups))); group != "" {
		groups = " --group " + group
		if _, ok := p.Groups[allDevelopers]; ok && group != allDevelopers {
			developers = " --group " + allDevelopers
		}
	}
	itself := t.has("setup.py") || p.described
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
	if extra := forTests(defined); extra != "" {
		extras = []string{extra}
	}
	command := pipBegins + newestPip
	features := featuresOf(defined)
	if !itself {
		features = nil
	}
	if len(features) > 0 || developers != "" {
		command += install(slices.Concat(extras, features), groups+developers) + " || "
	}
	return command + install(extras, groups)
}

// allDevelopers is the usual name of the group with all that a project's developers use.
const allDevelopers = "dev"

// forTests returns the best of the names of extras or groups that are for tests; empty if none is.
func forTests(names []string) string {
	for _, name := range []string{"test", "tests", "testing", allDevelopers, "develop"} {
		if slices.Contains(names, name) {
			return name
		}
	}
	return ""
}

// pyproject is the part of a pyproject.toml that says what to install.
type pyproject struct {
	Project struct {
		Extras map[string]any `toml:"optional-dependencies"`
	} `toml:"project"`
	Groups map[string]any `toml:"dependency-groups"`
	Tool   struct {
		Poetry struct{ Extras map[string]any }
		Flit   struct {
			Metadata struct {
				Extras map[string]any `toml:"requires-extra"`
			}
		}
	}

	described bool // whether it describes a package
}

// extras returns the names of the extras that it defines, in the standard's way or those of older tools.
func (p pyproject) extras() (names []string) {
	for _, extras := range []map[string]any{p.Project.Extras, p.Tool.Poetry.Extras, p.Tool.Flit.Metadata.Extras} {
		names = slices.AppendSeq(names, maps.Keys(extras))
	}
	slices.Sort(names)
	return names
}

// pyproject reads the project's pyproject.toml. What it returns is empty if there is none, or it is invalid.
func (t tree) pyproject() (p pyproject) {
	meta, err := toml.Decode(string(t.read("pyproject.toml")), &p)
	if err != nil {
		return pyproject{}
	}
	p.described = meta.IsDefined("project") || meta.IsDefined("build-system")
	return p
}

var (
	// extrasSection matches the head of setup.cfg's section of extras, and extraName the name of one.
	extrasSection = env.Pattern(`(?m)^\[options\.extras_require\]\s*\n`)
	extraName     = env.Pattern(`(?m)^([\w-]+)\s*=`)
	// extraArgument matches an extra for tests in a setup.py.
	extraArgument = env.Pattern(`(?m)^\s*(?:extras_require\s*=\s*\{\s*)?["']?(tests?|testing|dev|develop)["']?` +
		`\s*[=:]\s*(?:[\[(]|$|EXTRA)`)
	// forOthers matches the names of extras for a project's developers, and of extras that include all others.
	forOthers = env.Pattern(`^(tests?|testing|ci|cov(erage)?|dev|devel(op(ment)?)?|docs?|documentation|examples?|` +
		`lint(ing|ers?)?|format(ting)?|style|check|types?|typing|mypy|build|release|publish|bench(marks?)?|benchmarking|` +
		`profil(e|ing)|pre-commit|tools|all|full|complete|gpu|cuda\d*)$`)
)

// extras returns the names of the extras in setup.cfg, and of those for tests in setup.py.
func (t tree) extras() (names []string) {
	config := string(t.read("setup.cfg"))
	if at := extrasSection().FindStringIndex(config); at != nil {
		section, _, _ := strings.Cut(config[at[1]:], "\n[")
		for _, m := range extraName().FindAllStringSubmatch(section, -1) {
			names = append(names, m[1])
		}
	}
	for _, m := range extraArgument().FindAllSubmatch(t.read("setup.py"), -1) {
		names = append(names, string(m[1]))
	}
	return names
}

// mostFeatures is the largest number of extras that are installed; a project with more depends on too much.
const mostFeatures = 4

// featuresOf returns those extras that are for what a package can do, or none if there are more than mostFeatures.
func featuresOf(extras []string) (names []string) {
	for _, name := range extras {
		if !forOthers().MatchString(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) > mostFeatures {
		return nil
	}
	return names
}
