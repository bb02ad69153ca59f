package allowlist

import (
	"path"
	"slices"
	"strings"
)

// importRoots returns the directories in which Python may look for modules before it looks among the installed ones:
// the root, the usual directories of sources, and, above each test and each path in the script, the directories that
// are not packages (pytest puts the first of these into sys.path).
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
			roots[path.Clean(name)] = true // a directory that the script names: PYTHONPATH=lib, cd python
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

// shadows reports whether a path becomes a module that hides one of the standard library or of a test runner. A
// repository that already has the module is the project that the module comes from.
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
