package allowlist

import (
	"path"
	"slices"
	"strings"
)

// importRoots are the directories that Python may look for modules in before it comes to what is installed: the root,
// the usual places of sources, and every directory above a test or a word of the script that is no package itself
// (pytest puts the first such directory into sys.path).
func (l *List) importRoots(names []string) []string {
	roots := set(sourceRoots)
	for name := range l.expected {
		names = append(names, name)
	}
	for _, name := range names {
		if path.IsAbs(name) || strings.HasPrefix(name, "../") {
			continue
		}
		if path.Ext(name) == "" {
			roots[path.Clean(name)] = true // a directory of the script's: PYTHONPATH=lib, cd python
		}
		for dir := path.Dir(path.Clean(name)); dir != "." && dir != "/"; dir = path.Dir(dir) {
			roots[dir] = true
		}
	}
	var list []string
	for dir := range roots {
		if dir == "." || !l.files[path.Join(dir, "__init__.py")] {
			list = append(list, dir)
		}
	}
	slices.Sort(list)
	return list
}

// shadows reports whether a path makes a module that comes before one of the standard library or of a test runner. A
// repository that has such a module of its own is the one that it is installed from.
func (l *List) shadows(name string, link bool) bool {
	if ext := path.Ext(name); !link && ext != ".py" && ext != ".pyi" {
		return false
	}
	for _, root := range l.imports {
		rest := name
		if root != "." {
			var inside bool
			if rest, inside = strings.CutPrefix(name, root+"/"); !inside {
				continue
			}
		}
		top, _, _ := strings.Cut(rest, "/")
		module, _, _ := strings.Cut(top, ".")
		if !isRunnerModule(module) {
			continue
		}
		stem := path.Join(root, module)
		if !l.files[stem+".py"] && !l.files[path.Join(stem, "__init__.py")] {
			return true
		}
	}
	return false
}

func isRunnerModule(name string) bool {
	return standardModules[name] || runnerModules[name] || strings.HasPrefix(name, "pytest_")
}
