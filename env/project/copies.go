package project

import (
	"encoding/json"
	"fmt"
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

// TakeOut returns a command line that removes the copies that a pattern of [Copies] finds, except packages of Node with
// one of the versions.
func TakeOut(pattern string, versions []string) string {
	spared := ""
	if len(versions) > 0 {
		list, _ := json.Marshal(versions) // strings always can be
		spared = " ! -exec node -e " + env.ShellQuote(fmt.Sprintf(
			`const { resolve } = require("path"), { version } = require(resolve(process.argv[1], "package.json")); `+
				`process.exit(%s.includes(version) ? 0 : 1)`, list)) + ` {} \;`
	}
	return "find . -path " + env.ShellQuote(pattern) + " -prune" + spared + " -exec rm -rf {} +"
}
