package allowlist

import (
	"bytes"
	"path"
	"regexp"
	"slices"
	"strings"

	"deepswe/env"
)

// Products have data that is named like tests or a build file: descriptions of interfaces in a directory called specs,
// settings.test.json, and the Makefile that a generator of projects copies. Such a file has no more power than the
// source that loads it, unless a runner, a tool or a test reads it by itself.

// testdata is the name of directories with data for tests, which products embed as well.
const testdata = "testdata"

// dataDirs are names of directories whose files no runner reads by itself, although they are named like tests.
var dataDirs = []string{"test", "spec", "specs", "__fixtures__", testdata}

// projectFiles configure a Python project. Tools read them only in directories above what they are run on.
var projectFiles = []string{"pyproject.toml", "setup.cfg", "tox.ini", "MANIFEST.in"}

// commandFiles are build files with commands, and lists are lists of dependencies. Tools read them only in the
// directory in which they start, or above.
var (
	commandFiles = []string{"Makefile", "GNUmakefile", "makefile", "Justfile", "justfile", "Taskfile.yml"}
	lists        = []string{
		"Pipfile", "Pipfile.lock", "poetry.lock", "uv.lock", "pdm.lock", "environment.yml", "environment.yaml",
		"package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "composer.lock", "Gemfile.lock",
		"Cargo.lock",
	}
)

func isListOfDependencies(base string) bool {
	_, stem, ext := splitName(base)
	return slices.Contains(lists, base) || isRequirements(stem) && isBuild(base, stem, ext)
}

// sources are patterns of files with code in some language, apart from native ones.
var sources = slices.Concat(pythonFiles, scriptFiles, strings.Fields(`
	*.go *.pyi *.pyx *.pxd *.rs *.rb *.rake *.java *.kt *.kts *.scala *.sc *.groovy *.gradle *.swift *.cs *.fs
	*.fsx *.vb *.php *.phpt *.pl *.pm *.t *.lua *.sh *.bash *.zsh *.fish *.bats *.ps1 *.bat *.cmd *.r *.R *.jl
	*.ex *.exs *.erl *.hs *.clj *.cljs *.cljc *.dart *.ml *.el *.lisp *.scm *.nim *.zig *.vue *.svelte *.astro
	*.coffee *.feature *.robot *.tcl *.cmake *.mk *.bzl`))

func isCode(name string) bool { return isNative(name) || matchesAny(sources, path.Base(name)) }

// isTestdata reports whether a file in a directory called testdata would be taken if the directory were called
// otherwise: then only tests that read it could be affected by it.
func isTestdata(name string) bool {
	elsewhere := strings.ReplaceAll("/"+name, "/"+testdata+"/", "/data/")[1:]
	return elsewhere != name && ByName(elsewhere) == ""
}

// MayBeData reports whether a file that is withheld because of its name may be data of a product: if it would be
// taken elsewhere, or under another name. A source may be data only in a directory called testdata, and a source of a
// build only in one for templates.
func MayBeData(name string) bool {
	base, stem, ext := splitName(name)
	if isCode(base) {
		return isTestdata(name) || isBuildTemplate(name)
	}
	parts, elsewhere := strings.Split(path.Dir(name), "/"), base
	switch {
	case isTest(base, stem, ext):
		written, isSnapshot := strings.CutSuffix(base, ".snap")
		if isBuild(base, stem, ext) || isConfiguration(name, base, stem, ext) ||
			isSnapshot && (path.Ext(written) != "" || parts[len(parts)-1] == "snapshots") { // a.test.js.snap
			return false
		}
		elsewhere = "data"
	case slices.Contains(projectFiles, base), slices.Contains(commandFiles, base), isListOfDependencies(base):
		elsewhere = "data"
	}
	for i, part := range parts {
		if slices.Contains(dataDirs, part) {
			parts[i] = "data"
		}
	}
	return ByName(name) != "" && ByName(path.Join(path.Join(parts...), elsewhere)) == ""
}

// isNewData reports whether a change adds a file that may be data of a product: where no runner starts, and where there
// are no tests that might read it. If the solution adds it as well, it may be for the tests.
func (l *List) isNewData(c Change) bool {
	dir := path.Dir(c.Path)
	if c.Before.Kind != "" || c.After.Kind != env.KindFile || dir == "." || !MayBeData(c.Path) || l.solution[c.Path] ||
		l.run[c.Path] || l.run[dir] || l.hasTests(dir) || bytes.HasPrefix(c.After.Data, []byte("#!")) {
		return false
	}
	base, stem, ext := splitName(c.Path)
	if ByName("data/"+base) != "" && !isTest(base, stem, ext) && !isTemplate(dir) &&
		(!isListOfDependencies(base) || l.testsBelow(dir)) {
		return false // other tools may find it: make includes */Makefile, and pip installs packages/*
	}
	for ; dir != "."; dir = path.Dir(dir) {
		if slices.Contains(dataDirs, path.Base(dir)) && (l.run[dir] || l.testsBelow(dir)) {
			return false
		}
	}
	return true
}

// adoptNamed reports whether the file of a change is loaded, after adding new data that sources of the repository
// name, and new sources that they find by listing a directory. Sources that are run as tests do not count.
func (l *List) adoptNamed(c Change) bool {
	byProduct := func(source string) bool { return !l.run[source] }
	if slices.ContainsFunc(l.named[c.Path], byProduct) && l.adoptable(c) {
		l.loaded[c.Path] = true
	}
	return l.loaded[c.Path]
}

// isAlone reports whether no other file of the repository or of a patch has the same base name as a new file.
func (l *List) isAlone(name string, changes []Change) bool {
	if l.bases == nil {
		l.bases = map[string]int{}
		for file := range l.files {
			l.bases[path.Base(file)]++
		}
		for _, c := range changes {
			if !l.files[c.Path] {
				l.bases[path.Base(c.Path)]++
			}
		}
	}
	return l.bases[path.Base(name)] == 1
}

// Mentions returns a regular expression (RE2) and glob patterns of file names to search with: they match every line for
// which [Names] may return true.
func Mentions(target string) (term string, names []string) {
	parts := strings.Split(target, "/")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	const mark = "[\"'`/]"
	return `^//go:embed\s|` + mark + `(` + strings.Join(parts, "|") + `)` + mark, sources
}

// Names reports whether the text of a source names a data file: in an embed directive of Go, or in strings, by its last
// directory and its name. The name is enough if it is unique, or if the file is beside the source. Except in Go, the
// name of a directory beside the source is enough as well, if it is one of dataDirs.
func Names(source, text, target string, unique bool) bool {
	if embeds(source, text, target) {
		return true
	}
	if !isCode(source) {
		return false
	}
	for dir := path.Dir(target); dir != "." && path.Ext(source) != ".go"; dir = path.Dir(dir) {
		base := path.Base(dir)
		if path.Dir(dir) == path.Dir(source) && slices.Contains(dataDirs, base) && quotes(text, base) {
			return true
		}
	}
	dir, base := path.Dir(target), path.Base(target)
	return (!isCode(target) || isBuildTemplate(target)) && (quotes(text, path.Join(path.Base(dir), base)) ||
		quotes(text, base) && (unique || path.Dir(source) == dir || quotes(text, path.Base(dir))))
}

// quotes reports whether a string in a text is a path with this name in it.
func quotes(text, name string) bool {
	for rest := text; ; {
		i := strings.Index(rest, name)
		if i < 0 {
			return false
		}
		end := i + len(name)
		const marks = "\"'`/"
		if i > 0 && end < len(rest) && strings.IndexByte(marks, rest[i-1]) >= 0 && strings.IndexByte(marks, rest[end]) >= 0 {
			return true
		}
		rest = rest[end:]
	}
}

var embedded = env.Pattern(`(?m)^//go:embed\s+(.+)$`)

// embeds reports whether a Go source embeds a file.
func embeds(source, text, target string) bool {
	if path.Ext(source) != ".go" {
		return false
	}
	for _, found := range embedded().FindAllStringSubmatch(text, -1) {
		for pattern := range strings.FieldsSeq(found[1]) {
			pattern = strings.Trim(strings.TrimPrefix(strings.Trim(pattern, "\"`"), "all:"), "\"`")
			pattern = path.Join(path.Dir(source), pattern)
			for name := target; name != "."; name = path.Dir(name) {
				if ok, err := path.Match(pattern, name); err == nil && ok {
					return true
				}
			}
		}
	}
	return false
}

// templates are names of directories with files for projects that a generator makes.
var templates = []string{"template", "templates", "scaffold", "scaffolds", "scaffolding", "skeleton", "skeletons"}

// isData reports whether a change is to a file that would configure a project but is data, such as one that a generator
// of projects copies. It must be inside of a Python package, without tests in its directory and without anything there
// that the script names: then no runner starts there, and none looks for its configuration there.
func (l *List) isData(c Change) bool {
	dir, base := path.Split(c.Path)
	dir = path.Clean(dir)
	if !slices.Contains(projectFiles, base) || c.After.Kind != env.KindFile && c.After.Kind != "" ||
		c.Before.Kind != env.KindFile && c.Before.Kind != "" || l.run[dir] || !l.isInPackage(dir) {
		return false
	}
	if isTemplate(dir) {
		return true
	}
	for name := range l.files {
		if strings.HasPrefix(name, dir+"/") && ByName(name) == Tests {
			return false
		}
	}
	return true
}

func isTemplate(dir string) bool {
	return slices.ContainsFunc(strings.Split(dir, "/"), func(name string) bool { return slices.Contains(templates, name) })
}

// isBuildTemplate reports whether a file would be a source of a build (x.cmake), but is among templates.
func isBuildTemplate(name string) bool {
	return isTemplate(path.Dir(name)) && ByName(name) == Build && isBuild(splitName(name))
}

// isInPackage reports whether a directory is below the directory of one of the repository's Python packages.
func (l *List) isInPackage(dir string) bool {
	for dir = path.Dir(dir); dir != "." && dir != "/"; dir = path.Dir(dir) {
		if l.files[path.Join(dir, "__init__.py")] {
			return true
		}
	}
	return false
}
