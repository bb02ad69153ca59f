package project

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"deepswe/env"
	"deepswe/env/disk"
)

// Step is a command that installs dependencies.
type Step struct {
	// Command is the command line, Lock the file that lists what it installs, Missing what was not found.
	Command string
	Lock    string
	Missing string
	// Local is set if what is missing can only be in the repository.
	Local bool
	// Check is a command of the tool itself that fails if something is missing, and changes nothing; empty if there is
	// none.
	Check string
	// Doubt is set where what is missing may not be needed, and no tool can be asked.
	Doubt bool
}

// Due returns the steps that install the missing dependencies of the project in the directory. In doubt, there are
// none: because a lock file also lists packages for other systems, not all of them need to be there. The few that are
// there may be another project's, or come with the language.
func Due(dir string, m Machine) []Step {
	var due []Step
	for _, look := range []func(tree, Machine) (Step, bool){javaScript, python, golang, rust, java, ruby} {
		if s, ok := look(tree(dir), m); ok {
			due = append(due, s)
		}
	}
	return due
}

type tree string

func (t tree) path(name string) string { return filepath.Join(string(t), filepath.FromSlash(name)) }

func (t tree) has(name string) bool { return exists(t.path(name)) }

// largestFile is how much of a file of the repository is read.
const largestFile = 8 << 20

func (t tree) read(name string) []byte {
	info, err := os.Stat(t.path(name))
	if err != nil || !info.Mode().IsRegular() || info.Size() > largestFile {
		return nil
	}
	data, err := os.ReadFile(t.path(name))
	if err != nil {
		return nil
	}
	return data
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// required matches a module in go.mod that the project itself imports.
var required = env.Pattern(`(?m)^\s*(?:require\s+)?([\w.~-]+\.[\w./~-]+)\s+(v\d[\w.+-]*)\s*$`)

func golang(t tree, m Machine) (Step, bool) {
	if m.GoModCache == "" || t.has("vendor/modules.txt") {
		return Step{}, false
	}
	data := t.read("go.mod")
	replaced := bytes.Contains(data, []byte("=>"))
	missing, found, all := "", 0, 0
	for _, match := range required().FindAllSubmatch(data, -1) {
		module, version := string(match[1]), string(match[2])
		if replaced && bytes.Contains(data, []byte(module+" =>")) {
			continue
		}
		all++
		if exists(filepath.Join(m.GoModCache, escaped(module)+"@"+escaped(version))) {
			found++
			continue
		}
		missing = cmp.Or(missing, module+"@"+version)
	}
	step := Step{
		Command: "go mod download", Lock: "go.mod", Missing: missing, Check: "GOPROXY=off go list -deps -test ./...",
	}
	return step, 2*found < all
}

// escaped returns a module path as it is written in the module cache, with "!a" for each capital letter A.
func escaped(path string) string {
	var b strings.Builder
	for _, c := range path {
		if unicode.IsUpper(c) {
			b.WriteByte('!')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

// crate matches a package of a registry in Cargo.lock.
var crate = env.Pattern(`(?m)^name = "([\w-]+)"\r?\nversion = "([\w.+-]+)"\r?\nsource = "registry\+`)

func rust(t tree, m Machine) (Step, bool) {
	if m.CargoHome == "" || t.has("vendor") || t.has(".cargo/config.toml") {
		return Step{}, false
	}
	step := Step{ // a lock file names packages for other systems, too
		Command: "cargo fetch --locked", Lock: "Cargo.lock", Check: "cargo metadata --offline --locked --format-version 1 " +
			`--filter-platform "$(rustc -vV | sed -n 's/^host: //p')"`,
	}
	var packages []string // patterns
	for _, match := range crate().FindAllSubmatch(t.read("Cargo.lock"), -1) {
		packages = append(packages, string(match[1])+"-"+string(match[2]))
	}
	if !t.has("Cargo.lock") { // as in many libraries
		step = Step{Command: "cargo fetch", Lock: "Cargo.toml", Doubt: true}
		for _, name := range crates(t.read("Cargo.toml")) {
			packages = append(packages, name+"-[0-9]*")
		}
	}
	found := 0
	for _, name := range packages {
		sources := disk.Glob(m.CargoHome, "registry/src/*/"+name)
		archives := disk.Glob(m.CargoHome, "registry/cache/*/"+name+".crate")
		if len(sources)+len(archives) > 0 {
			found++
			continue
		}
		step.Missing = cmp.Or(step.Missing, strings.TrimSuffix(name, "-[0-9]*"))
	}
	return step, 3*found < len(packages) // those for Windows alone can be half of them
}

// tomlTable matches the first line of a table, and dependency a line that names a package of a registry.
var (
	tomlTable  = env.Pattern(`^\s*\[+\s*([^\]]*?)\s*\]`)
	dependency = env.Pattern(`^\s*([\w-]+)\s*=\s*(?:"|\{.*\bversion\s*=)`)
)

// crates returns the packages of a registry that a manifest of Cargo depends on, of those with a line of their own.
func crates(manifest []byte) []string {
	var names []string
	dependencies := false
	for line := range bytes.Lines(manifest) {
		if table := tomlTable().FindSubmatch(line); table != nil {
			dependencies = bytes.HasSuffix(table[1], []byte("dependencies"))
			continue
		}
		found := dependency().FindSubmatch(line)
		if dependencies && found != nil && !bytes.Contains(line, []byte("path")) {
			names = append(names, string(found[1]))
		}
	}
	return names
}
