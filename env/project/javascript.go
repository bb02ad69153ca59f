package project

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/disk"
)

func javaScript(t tree, m Machine) (Step, bool) {
	if !t.has("package.json") || t.nodeModules() {
		return Step{}, false
	}
	missing := "node_modules"
	if t.plugAndPlay() {
		missing = "the packages of .pnp.cjs"
		if t.has(".pnp.cjs") && (t.zipped(".yarn/cache") || tree(m.Home).zipped(".yarn/berry/cache")) {
			return Step{}, false
		}
	}
	for _, known := range []struct{ lock, program, arguments string }{
		{"package-lock.json", "npm", "ci"}, {"npm-shrinkwrap.json", "npm", "ci"},
		{"pnpm-lock.yaml", "pnpm", "install --frozen-lockfile"}, {"yarn.lock", "yarn", t.yarnInstall()},
	} {
		if t.has(known.lock) {
			command := t.manager(m, known.program) + " " + known.arguments
			return Step{Command: command, Lock: known.lock, Missing: missing, Local: true}, true
		}
	}
	return t.unlocked(m, missing)
}

// unlocked returns the step for a project without a lock file, as many libraries are.
func (t tree) unlocked(m Machine, missing string) (Step, bool) {
	var manifest struct {
		Dependencies    map[string]any `json:"dependencies"`
		DevDependencies map[string]any `json:"devDependencies"`
		PackageManager  string         `json:"packageManager"`
	}
	if json.Unmarshal(t.read("package.json"), &manifest) != nil || t.has("bun.lock") || t.has("bun.lockb") ||
		len(manifest.Dependencies)+len(manifest.DevDependencies) == 0 {
		return Step{}, false
	}
	program, _, _ := strings.Cut(cmp.Or(manifest.PackageManager, "npm"), "@")
	arguments, ok := map[string]string{
		"npm": strings.TrimPrefix(NpmInstall, "npm "), "pnpm": "install --no-lockfile", "yarn": "install --no-lockfile",
	}[program]
	if program == "yarn" && t.modernYarn() {
		arguments = "install"
	}
	return Step{Command: t.manager(m, program) + " " + arguments, Lock: "package.json", Missing: missing, Local: true}, ok
}

// manager returns the command that starts a package manager. If the machine does not have it, that is the project's
// own copy, Node's launcher of package managers, or npm.
func (t tree) manager(m Machine, program string) string {
	own := yarnPath().FindSubmatch(t.read(".yarnrc.yml"))
	switch {
	case program == "npm" || m.Path != nil && !m.lacks(program):
		return program
	case program == "yarn" && own != nil && t.has(string(own[1])):
		return "node " + string(own[1])
	case m.Path != nil && !m.lacks("corepack"):
		return "corepack " + program
	}
	return "npx --yes " + program
}

// The settings of Yarn 2 and later that say which copy of it to use, and where packages are put.
var (
	yarnPath = env.Pattern(`(?m)^yarnPath:\s*["']?([\w./-]+)`)
	linker   = env.Pattern(`(?m)^nodeLinker:\s*["']?(?:node-modules|pnpm)\b`)
)

// nodeModules reports whether packages are installed: other tools keep caches there, too, in hidden directories.
func (t tree) nodeModules() bool {
	entries, _ := os.ReadDir(t.path("node_modules")) // a missing one has none
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return !strings.HasPrefix(e.Name(), ".") || e.Name() == ".pnpm"
	})
}

// Limits of the search for packages below a directory.
const (
	deepestPackage = 3
	mostPackages   = 50
)

// NodeModules returns the paths of the directories node_modules of packages below a directory. Package managers fill
// those of a workspace.
func NodeModules(dir string) (names []string) {
	// An unreadable directory counts as having none.
	_ = filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, at) // at is below dir
		switch {
		case err != nil || !d.IsDir() || name == ".":
			return nil
		case len(names) == mostPackages:
			return fs.SkipAll
		case filepath.Base(name) == env.NodeModules:
			if name != env.NodeModules {
				names = append(names, filepath.ToSlash(name))
			}
			return fs.SkipDir
		case strings.HasPrefix(filepath.Base(name), ".") || strings.Count(name, string(filepath.Separator)) == deepestPackage:
			return fs.SkipDir
		}
		return nil
	})
	return names
}

// modernYarn reports whether the project uses Yarn 2 or later, which has settings and a lock file of another kind.
func (t tree) modernYarn() bool {
	return t.has(".yarnrc.yml") || bytes.Contains(t.read("yarn.lock"), []byte("\n__metadata:"))
}

func (t tree) yarnInstall() string {
	if t.modernYarn() {
		return "install --immutable"
	}
	return "install --frozen-lockfile"
}

// plugAndPlay reports whether packages are loaded from archives instead of node_modules, which Yarn 2 does unless its
// settings say otherwise.
func (t tree) plugAndPlay() bool {
	return t.has(".pnp.cjs") || t.has("yarn.lock") && t.modernYarn() && !linker().Match(t.read(".yarnrc.yml"))
}

// zipped reports whether there are archives in a directory.
func (t tree) zipped(dir string) bool {
	return len(disk.Glob(t.path(dir), "*.zip")) > 0
}

// javaScriptTests returns the command line that runs a package's tests; empty where it names none.
func javaScriptTests(t tree) string {
	switch test := t.scripts()["test"]; {
	case test == "" || strings.Contains(test, "no test specified"):
		return ""
	case t.plugAndPlay(): // npm does not find the programs of packages
		return "yarn test"
	}
	return "npm test"
}
