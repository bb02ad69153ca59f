package allowlist

import (
	"path"
	"slices"
	"strings"

	"deepswe/env"
)

// projectFiles configure a Python project. Tools read them only in directories above what they are run on.
var projectFiles = []string{"pyproject.toml", "setup.cfg", "tox.ini", "MANIFEST.in"}

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
	if slices.ContainsFunc(strings.Split(dir, "/"), func(name string) bool { return slices.Contains(templates, name) }) {
		return true
	}
	for name := range l.files {
		if strings.HasPrefix(name, dir+"/") && ByName(name) == Tests {
			return false
		}
	}
	return true
}

// isInPackage reports whether a directory is below that of a Python package which the repository has.
func (l *List) isInPackage(dir string) bool {
	for dir = path.Dir(dir); dir != "." && dir != "/"; dir = path.Dir(dir) {
		if l.files[path.Join(dir, "__init__.py")] {
			return true
		}
	}
	return false
}
