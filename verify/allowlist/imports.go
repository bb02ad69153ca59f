package allowlist

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"deepswe/env"
)

// Many projects have product code that is named like tests: a template language defines its checks in tests.py, and a
// reporter is lib/spec.js. Such a file is a source if other sources load it.

var (
	pythonFiles = []string{"*.py"}
	scriptFiles = []string{"*.js", "*.mjs", "*.cjs", "*.jsx", "*.ts", "*.mts", "*.cts", "*.tsx"}
)

// Loaders returns a regular expression (RE2) and glob patterns of file names to search with: they match every line for
// which [Loads] may return true. ok is false for files of an unknown language, and for sources in test directories at
// the root, because examples and benchmarks load test helpers as well.
func Loaders(target string) (term string, names []string, ok bool) {
	top, _, _ := strings.Cut(target, "/")
	switch {
	case isTestdata(target) && !matchesAny(pythonFiles, target) && !matchesAny(scriptFiles, target):
		return `^//go:embed\s.*\b` + testdata + `\b`, []string{"*.go"}, true
	case holdsTests([]string{top}, path.Ext(target)):
		return "", nil, false
	case matchesAny(pythonFiles, path.Base(target)):
		names = pythonFiles
	case matchesAny(scriptFiles, path.Base(target)):
		names = scriptFiles
	default:
		return "", nil, false
	}
	return `\b(import|require|from)\b.*\b` + regexp.QuoteMeta(path.Base(moduleOf(target))) + `\b`, names, true
}

func matchesAny(patterns []string, base string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return strings.HasSuffix(base, p[1:]) })
}

// moduleOf returns a source's path without its extension, or that of its directory for files such as __init__.py.
func moduleOf(file string) string {
	stem := strings.TrimSuffix(file, path.Ext(file))
	if base := path.Base(stem); base == "__init__" || base == "index" {
		return path.Dir(stem)
	}
	return stem
}

// Loads reports whether a line of a source loads one of the targets, which are other sources of the repository. It is
// false for sources that are named like tests themselves.
func Loads(source, line string, targets ...string) bool {
	if ByName(source) != "" {
		return false
	}
	found := importsOf(source, line)
	return slices.ContainsFunc(targets, func(target string) bool {
		return source != target && (found.load(target) || embeds(source, line, target))
	})
}

// imports are the files of the repository that a source may load, as far as its text shows.
type imports struct {
	source   string
	modules  []string // Python modules, as paths without extension
	scripts  []string // paths in JavaScript and TypeScript, as written
	computed []string // lines that load modules whose names are computed
}

func importsOf(source, text string) imports {
	found := imports{source: source}
	computed := isComputedScript()
	if matchesAny(pythonFiles, source) {
		computed = isComputedPython()
	}
	for line := range strings.Lines(text) {
		if computed.MatchString(line) {
			found.computed = append(found.computed, line)
		}
		found.modules = append(found.modules, pythonImports(source, line)...)
		for _, match := range scriptImport().FindAllStringSubmatch(line, -1) {
			found.scripts = append(found.scripts, path.Join(path.Dir(source), match[1]))
		}
	}
	return found
}

// load reports whether the target is one of the imports.
func (i imports) load(target string) bool {
	module := moduleOf(target)
	if path.Ext(target) == ".py" {
		return slices.Contains(i.modules, module)
	}
	return slices.ContainsFunc(i.scripts, func(name string) bool {
		return name == target || name == module || moduleOf(name) == module && path.Ext(name) != ""
	})
}

var (
	scriptImport = env.Pattern(`(?:\brequire\s*\(|\bfrom|\bimport\s*\(?)\s*['"](\.\.?/[^'"]*)['"]`)
	fromImport   = env.Pattern(`^\s*from\s+(\.*)([\w.]*)\s+import\s+([^#]+)`)
	plainImport  = env.Pattern(`^\s*import\s+([\w.]+)`)
)

// pythonImports returns the modules that a line may import from the repository, as paths without extension.
func pythonImports(source, line string) (modules []string) {
	if found := plainImport().FindStringSubmatch(line); found != nil {
		return belowRoots(strings.ReplaceAll(found[1], ".", "/"))
	}
	found := fromImport().FindStringSubmatch(line)
	if found == nil {
		return nil
	}
	dots, module := len(found[1]), strings.ReplaceAll(found[2], ".", "/")
	bases := belowRoots(module)
	if dots > 0 {
		bases = []string{path.Join(path.Dir(source), strings.Repeat("../", dots-1), module)}
	}
	for _, base := range bases {
		modules = append(modules, base)
		for _, name := range strings.FieldsFunc(found[3], separates) {
			modules = append(modules, path.Join(base, name))
		}
	}
	return modules
}

// sourceRoots are the usual root directories of sources.
var sourceRoots = []string{".", "src", "lib", "python"}

func belowRoots(module string) (modules []string) {
	for _, root := range sourceRoots {
		modules = append(modules, path.Join(root, module))
	}
	return modules
}

// Programs often load all commands or plugins of a directory, by names that they compute.
const (
	computedPython = `\b(iter_modules|walk_packages|import_module|__import__)\s*\(`
	computedScript = `\b(readdir|readdirSync|import\.meta\.glob|require\.context)\s*\(|` +
		`\b(require|import)\s*\(\s*([\w$` + "`" + `]|['"][^'"]*['"]\s*\+)`
)

var isComputedPython, isComputedScript = env.Pattern(computedPython), env.Pattern(computedScript)

// MayBeListed reports whether a file is a source that is named like a test, and that a program may find by listing its
// directory.
func MayBeListed(name string) bool {
	_, _, known := Loaders(name)
	return known && ByName(name) == Tests && path.Dir(name) != "." && !MayBeData(name)
}

// Listings returns a regular expression (RE2) and glob patterns of file names to search with: they match every line for
// which [MayList] may return true.
func Listings(target string) (term string, names []string) {
	if matchesAny(pythonFiles, target) {
		return computedPython, pythonFiles
	}
	return computedScript, scriptFiles
}

// MayList reports whether the text of a product's source may load a file that [MayBeListed] by a name that it computes.
func MayList(source, text, target string) bool {
	return ByName(source) == "" && importsOf(source, text).list(target)
}

// list reports whether the source may load the target by a computed name: because both are in one directory, or
// because the target is further down, and a line that computes a name mentions its directory.
func (i imports) list(target string) bool {
	sameLanguage := matchesAny(pythonFiles, target) == matchesAny(pythonFiles, i.source)
	if len(i.computed) == 0 || !MayBeListed(target) || !sameLanguage {
		return false
	}
	dir, above := path.Dir(target), path.Dir(i.source)
	if dir == above {
		return true
	}
	word := regexp.MustCompile(`\b` + regexp.QuoteMeta(path.Base(dir)) + `\b`)
	return (above == "." || strings.HasPrefix(dir, above+"/")) && slices.ContainsFunc(i.computed, word.MatchString)
}

// declaresTests matches sources that are tests even if other sources load them.
var declaresTests = env.Pattern(`TestCase\b|\b(unittest|pytest)\b|\bdescribe\(|['"]node:test['"]`)

// DeclaresTests reports whether a source contains tests.
func DeclaresTests(source []byte) bool { return declaresTests().Match(source) }

// Adopt finds new product code that is named like tests, and that other sources of the same patch load. Such a file
// has no more power than the sources that load it, unless a runner takes it for a test or there are tests in its
// directory. So a file with the name of a test must contain nothing that a runner would find, and the directory that is
// named like tests must be new or contain product code. It takes new data that they name, too; see [MayBeData].
//
// It also notes which directories the patch makes packages of, because that decides where Python looks for modules, and
// which become modules of Go.
func (l *List) Adopt(changes []Change) {
	l.repack(changes)
	l.addModules(changes)
	var loaders, candidates []Change
	for _, c := range changes {
		if !l.adoptNamed(c) && l.adoptable(c) {
			candidates = append(candidates, c)
		}
		if c.After.Kind == env.KindFile && l.reason(c) == "" {
			loaders = append(loaders, c)
		}
	}
	for ; len(loaders) > 0 && len(candidates) > 0; loaders = loaders[1:] {
		source, text := loaders[0].Path, string(loaders[0].After.Data)
		found := importsOf(source, text)
		candidates = slices.DeleteFunc(candidates, func(c Change) bool {
			named := MayBeData(c.Path) && Names(source, text, c.Path, l.isAlone(c.Path, changes))
			if !named && !found.load(c.Path) && !found.list(c.Path) {
				return false
			}
			l.loaded[c.Path] = true
			if l.reason(c) == "" {
				loaders = append(loaders, c)
			}
			return true
		})
	}
}

// adoptable reports whether a change adds a source that may be product code although it is named like a test.
func (l *List) adoptable(c Change) bool {
	switch {
	case c.Before.Kind != "" || c.After.Kind != env.KindFile || l.run[c.Path]:
		return false
	case MayBeData(c.Path):
		return l.isNewData(c)
	case DeclaresTests(c.After.Data):
		return false
	}
	if dir, ok := Product(c.Path); ok {
		return (l.products[dir] || !l.exists(dir)) && !l.run[dir]
	}
	dir, base := path.Split(c.Path)
	_, _, known := Loaders(c.Path)
	if !known || dir == "" || ByName(dir+"x"+path.Ext(base)) != "" || strings.Count(base, ".") != 1 {
		return false
	}
	stem, _, _ := strings.Cut(base, ".")
	return slices.Contains([]string{"tests", "test", "spec"}, stem) ||
		!collected().Match(c.After.Data) && !l.hasTests(path.Clean(dir))
}

// collected matches what a runner would find in a source that it takes for a test because of its name (ab_test.py).
var collected = env.Pattern(`(?m)^(async\s+)?def\s+test|^class\s+\w*Test|pytest_|__test__|\bload_tests\b`)

// hasTests reports whether there are tests directly in a directory.
func (l *List) hasTests(dir string) bool {
	if l.tested == nil {
		l.tested = map[string]bool{}
		for _, names := range []map[string]bool{l.files, l.expected, l.hidden} {
			for name := range names {
				if !l.loaded[name] && isTest(splitName(name)) {
					l.tested[path.Dir(name)] = true
				}
			}
		}
		l.testing = withParents(l.tested)
	}
	return l.tested[dir]
}

// testsBelow reports whether there are tests in a directory or in those below.
func (l *List) testsBelow(dir string) bool { return l.hasTests(dir) || l.testing[dir] }

// Product returns the directory because of which a source is withheld as a test, if there is no other reason and the
// directory may contain product code: lib/spec, but not spec. It contains product code if other sources load files in
// it.
func Product(name string) (dir string, ok bool) {
	_, _, known := Loaders(name)
	if ByName(name) != Tests || !known || ByName("lib/"+path.Base(name)) != "" {
		return "", false
	}
	parts := strings.Split(path.Dir(name), "/")
	for i, part := range parts {
		switch {
		case ByName(part+"/x"+path.Ext(name)) == "":
		case dir != "" || i == 0 || !slices.Contains([]string{"test", "spec", "specs"}, part):
			return "", false
		default:
			dir = path.Join(parts[:i+1]...)
		}
	}
	return dir, dir != ""
}

// exists reports whether the repository has a file or a directory with this path.
func (l *List) exists(name string) bool {
	if l.holders == nil {
		l.holders = withParents(l.files)
	}
	return l.holders[name]
}
