package repo

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// neighbours returns the files and directories outside the source that its build files refer to: the Go workspace
// around the source, the modules that its own workspaces use, the replacements of its modules, and the path
// dependencies of Rust. Because a repository may name any directory, only projects of the same kind outside of hidden
// directories are included.
func neighbours(source string, names []string) []string {
	n := &neighbourhood{source: source, found: map[string]bool{}}
	if work := workspaceAround(source); work != "" {
		n.found[work] = true
		if _, err := os.Stat(work + ".sum"); err == nil {
			n.found[work+".sum"] = true
		}
		n.golang(work, used)
	}
	for _, name := range names {
		switch filepath.Base(name) {
		case "go.work":
			n.golang(filepath.Join(source, name), used)
			n.golang(filepath.Join(source, name), replaced)
		case "go.mod":
			n.golang(filepath.Join(source, name), replaced)
		case "Cargo.toml":
			n.rust(filepath.Join(source, name))
		}
	}
	return slices.Sorted(maps.Keys(n.found))
}

// workspaceAround returns the go.work in a directory above the source, which Go uses; empty if there is none, or if the
// source has its own.
func workspaceAround(source string) string {
	if _, err := os.Stat(filepath.Join(source, "go.mod")); err != nil {
		return ""
	}
	for dir := source; ; dir = filepath.Dir(dir) {
		work := filepath.Join(dir, "go.work")
		if info, err := os.Stat(work); err == nil && info.Mode().IsRegular() {
			if dir == source {
				return ""
			}
			return work
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

type neighbourhood struct {
	source string
	found  map[string]bool
}

// add adds a directory that a file in another directory refers to.
func (n *neighbourhood) add(from, dir, manifest string) {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(from), dir)
	}
	dir, err := filepath.EvalSymlinks(filepath.Clean(dir))
	if err != nil || strings.Contains(dir, "/.") {
		return
	}
	if rel, err := filepath.Rel(n.source, dir); err != nil || filepath.IsLocal(rel) {
		return
	}
	if info, err := os.Stat(filepath.Join(dir, manifest)); err == nil && info.Mode().IsRegular() {
		n.found[dir] = true
	}
}

// The directories that a go.work uses, and those that replace modules in a go.mod or a go.work.
var (
	used     = regexp.MustCompile(`(?m)^\s*(?:use\s+)?"?((?:\.{1,2}|/)[^\s"()]*)"?\s*(?://.*)?$`)
	replaced = regexp.MustCompile(`(?m)=>\s*"?((?:\.{1,2}/|/)[^\s"]*)"?\s*(?://.*)?$`)
)

func (n *neighbourhood) golang(file string, pattern *regexp.Regexp) {
	for _, match := range pattern.FindAllSubmatch(readSmall(file), -1) {
		n.add(file, string(match[1]), "go.mod")
	}
}

func (n *neighbourhood) rust(file string) {
	var manifest map[string]any
	if toml.Unmarshal(readSmall(file), &manifest) != nil {
		return
	}
	n.paths(file, manifest)
}

// paths looks for path dependencies, wherever in a manifest they are.
func (n *neighbourhood) paths(file string, table map[string]any) {
	for key, value := range table {
		switch v := value.(type) {
		case string:
			if key == "path" {
				n.add(file, v, "Cargo.toml")
			}
		case map[string]any:
			n.paths(file, v)
		}
	}
}

// largestManifest is how much of a build file is read.
const largestManifest = 1 << 20

func readSmall(file string) []byte {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() > largestManifest {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return data
}
