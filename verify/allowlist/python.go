package allowlist

import (
	"path"
	"slices"
	"strings"
)

// importRoots returns the directories in which Python may look for modules before it looks among the installed ones:
// the root, the usual directories of sources, directories that the script names, and those of its programs. pytest adds
// for each test and each conftest.py above it the first directory that is not a package.
func (l *List) importRoots() []string {
	roots := set(sourceRoots)
	for name := range l.scripted {
		if path.Ext(name) == "" {
			roots[name] = true // PYTHONPATH=lib, cd python
		}
	}
	for name := range l.run {
		if path.IsAbs(name) || strings.HasPrefix(name, "../") {
			continue
		}
		if l.files[name] || path.Ext(name) != "" {
			l.addRoot(roots, path.Dir(name))
		} else if l.scripted[name] || l.files[path.Join(name, "conftest.py")] {
			l.addRoot(roots, name)
		}
	}
	delete(roots, "/")
	var list []string
	for dir := range roots {
		if dir == "." || !l.files[path.Join(dir, "__init__.py")] || l.packages[dir] {
			list = append(list, dir)
		}
	}
	slices.Sort(list)
	return list
}

// addRoot adds the first directory at or above dir that is not a package. If a patch adds or removes packages, it adds
// both the one before the patch and the one after it.
func (l *List) addRoot(roots map[string]bool, dir string) {
	for ; dir != "." && dir != "/"; dir = path.Dir(dir) {
		init := path.Join(dir, "__init__.py")
		ordinary := !l.files[init] && !l.hidden[init]
		if ordinary || l.packages[dir] {
			roots[dir] = true
		}
		if ordinary && !l.packages[dir] {
			return
		}
	}
}

// repack notes where a patch adds or removes __init__.py.
func (l *List) repack(changes []Change) {
	l.packages = map[string]bool{}
	for _, c := range changes {
		if dir, base := path.Split(c.Path); base == "__init__.py" && (c.Before.Kind == "" || c.After.Kind == "") {
			l.packages[path.Clean(dir)] = true
		}
	}
	if len(l.packages) > 0 {
		l.imports = l.importRoots()
	}
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
