package project

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/disk"
)

// inNodeModules begins the pattern of a package's copies below node_modules.
const inNodeModules = "*/" + env.NodeModules + "/"

// Copies returns patterns of paths below a project's directory at which an installation keeps copies of the project
// itself: a package that was not installed in place, or one that another package depends on.
func Copies(dir string) (patterns []string) {
	t := tree(dir)
	var manifest struct{ Name string }
	_ = json.Unmarshal(t.read("package.json"), &manifest) // without one there is no name
	if manifest.Name != "" {
		patterns = append(patterns, inNodeModules+manifest.Name)
	}
	for _, place := range []string{"*/__init__.py", "src/*/__init__.py"} {
		for _, name := range disk.Glob(dir, place) {
			patterns = append(patterns, "*/site-packages/"+filepath.Base(filepath.Dir(name)))
		}
	}
	return patterns
}

// NodeLocks returns the names of the files in which package managers of Node pin versions.
func NodeLocks() []string {
	return []string{"package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock"}
}

// Pinned returns the versions, sorted, to which the text of lock files of Node pins the package whose copies a pattern
// of [Copies] finds.
func Pinned(locks, pattern string) []string {
	name, ok := strings.CutPrefix(pattern, inNodeModules)
	if !ok {
		return nil
	}
	full, base := regexp.QuoteMeta(name), regexp.QuoteMeta(path.Base(name))
	pin := regexp.MustCompile(`(?m)(?:` +
		`^ +'?/?` + full + `[@/]|` + // pnpm
		`/[^@/"\s][^/"\s]*/` + full + `/-/` + base + `-|` + // an address, in those of npm and Yarn 1
		`resolution: "` + full + `@npm:` + // Yarn
		`)(\d[\dA-Za-z.+-]*?)(?:\.tgz|[^\dA-Za-z.+-]|$)`)
	var versions []string
	for _, m := range pin.FindAllStringSubmatch(locks, -1) {
		versions = append(versions, m[1])
	}
	slices.Sort(versions)
	return slices.Compact(versions)
}

// Tagged returns the versions of the package whose copies a pattern of [Copies] finds that tags of its repository
// name, one in a line.
func Tagged(tags, pattern string) (versions []string) {
	name, ok := strings.CutPrefix(pattern, inNodeModules)
	if !ok {
		return nil
	}
	release := regexp.MustCompile(`^(?:(?:` + regexp.QuoteMeta(name) + `|` + regexp.QuoteMeta(path.Base(name)) +
		`)[@/-])?v?(\d+\.\d+\.\d+(?:-[\w.-]+)?)$`)
	for tag := range strings.FieldsSeq(tags) {
		if m := release.FindStringSubmatch(tag); m != nil {
			versions = append(versions, m[1])
		}
	}
	return versions
}

// TakeOut returns a command line that removes the copies that a pattern of [Copies] finds; empty for packages of Node,
// of which [OtherCopies] finds those that must not be there.
func TakeOut(pattern string) string {
	if strings.HasPrefix(pattern, inNodeModules) {
		return ""
	}
	return "find . -path " + env.ShellQuote(pattern) + " -prune -exec rm -rf {} +"
}

// OtherCopies returns the paths of the copies that a pattern of [Copies] finds in node_modules of a directory, below
// that directory, without those of the given versions. It follows no links.
func OtherCopies(dir, pattern string, versions []string) (copies []string) {
	name, ok := strings.CutPrefix(pattern, inNodeModules)
	if !ok {
		return nil
	}
	t := tree(dir)
	var look func(at string)
	look = func(at string) {
		modules := path.Join(at, env.NodeModules)
		if one := path.Join(modules, name); t.has(path.Join(one, "package.json")) && t.real(one) {
			var manifest struct{ Version string }
			_ = json.Unmarshal(t.read(path.Join(one, "package.json")), &manifest) // without a version, it is none of them
			if !slices.Contains(versions, manifest.Version) {
				copies = append(copies, one)
			}
		}
		for _, below := range []string{"*", "@*/*", ".pnpm/*"} {
			for _, one := range disk.Glob(t.path(modules), below+"/"+env.NodeModules) {
				if within, err := filepath.Rel(dir, filepath.Dir(one)); err == nil && t.real(filepath.ToSlash(within)) {
					look(filepath.ToSlash(within))
				}
			}
		}
	}
	look(".")
	return copies
}

// real reports whether a path below the directory is neither a link nor absent.
func (t tree) real(name string) bool {
	info, err := os.Lstat(t.path(name))
	return err == nil && info.Mode()&os.ModeSymlink == 0
}
