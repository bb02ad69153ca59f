package allowlist

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// Many projects have a module of the product whose name is that of tests: the checks of a template language are
// tests.py, and a reporter may be lib/spec.js. Such a file is a source if other sources load it.

var (
	pythonFiles = []string{"*.py"}
	scriptFiles = []string{"*.js", "*.mjs", "*.cjs", "*.jsx", "*.ts", "*.mts", "*.cts", "*.tsx"}
)

// Loaders returns a regular expression (RE2) and glob patterns of file names for a search: each line that [Loads] may
// hold for matches them. ok is false for files of a language that is not known here, and in the root's directories of
// tests, whose helpers are loaded by examples and benchmarks as well.
func Loaders(target string) (term string, names []string, ok bool) {
	top, _, _ := strings.Cut(target, "/")
	switch {
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

// moduleOf is a source's path without its ending, and that of its directory where it stands for that.
func moduleOf(file string) string {
	stem := strings.TrimSuffix(file, path.Ext(file))
	if base := path.Base(stem); base == "__init__" || base == "index" {
		return path.Dir(stem)
	}
	return stem
}

// Loads reports whether a line of a source loads the target, which is another source of the repository. Sources that
// have names of tests themselves do not count.
func Loads(source, line, target string) bool {
	if ByName(source) != "" || source == target {
		return false
	}
	if path.Ext(target) == ".py" {
		return slices.Contains(pythonImports(source, line), moduleOf(target))
	}
	for _, found := range scriptImport.FindAllStringSubmatch(line, -1) {
		name := path.Join(path.Dir(source), found[1])
		if name == target || name == moduleOf(target) || moduleOf(name) == moduleOf(target) && path.Ext(name) != "" {
			return true
		}
	}
	return false
}

var (
	scriptImport = regexp.MustCompile(`(?:\brequire\s*\(|\bfrom|\bimport\s*\(?)\s*['"](\.\.?/[^'"]*)['"]`)
	fromImport   = regexp.MustCompile(`^\s*from\s+(\.*)([\w.]*)\s+import\s+([^#]+)`)
	plainImport  = regexp.MustCompile(`^\s*import\s+([\w.]+)`)
)

// pythonImports are the modules that a line may import from the repository, by their paths without an ending.
func pythonImports(source, line string) (modules []string) {
	if found := plainImport.FindStringSubmatch(line); found != nil {
		return belowRoots(strings.ReplaceAll(found[1], ".", "/"))
	}
	found := fromImport.FindStringSubmatch(line)
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

// sourceRoots are the directories that sources usually are in.
var sourceRoots = []string{".", "src", "lib", "python"}

func belowRoots(module string) (modules []string) {
	for _, root := range sourceRoots {
		modules = append(modules, path.Join(root, module))
	}
	return modules
}
