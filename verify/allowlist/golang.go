package allowlist

import (
	"bytes"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"deepswe/env"
)

// steersModule matches lines of a go.mod that decide which code an import refers to, or which tools run.
var steersModule = env.Pattern(`=>|^\s*(replace|toolchain|tool|godebug|exclude|module|ignore)\b`)

var (
	replaceBlock = env.Pattern(`^\s*replace\s*\(\s*$`)
	replaceLocal = env.Pattern(`^\s*(?:replace\s+)?([\w./~-]+)(?:\s+v\S+)?\s+=>\s+(\./[\w./-]+)\s*$`)
	moduleLine   = env.Pattern(`^\s*module\s+\S+\s*$`)
	requiredName = env.Pattern(`(?m)^\s*(?:require\s+)?([\w./~-]+)\s+v\d`)
	goVersion    = env.Pattern(`(?m)^go\s+1\.(\d+)`)
)

// prunedGo is the first version of Go whose go.mod names all modules that the tests need: 1.17.
const prunedGo = 17

// harmlessModule reports whether only requirements, the Go version, and new modules in directories of the repository
// were changed in a go.mod.
func (l *List) harmlessModule(c Change) bool {
	harmless := func(line string) bool {
		isNew := c.Before.Kind == "" && l.modules[path.Dir(c.Path)]
		return !steersModule().MatchString(line) || isNew && moduleLine().MatchString(line)
	}
	if c.Path == "go.mod" {
		harmless = func(line string) bool { return !steersModule().MatchString(line) || l.isNewModule(c, line) }
	}
	return changedLines(c.Before.Data, c.After.Data, harmless) && !bytes.Contains(c.After.Data, []byte("/*"))
}

// isNewModule reports whether a changed line of the root's go.mod says that a module is in a directory of the
// repository. A module that the tests may import does not count, because it could replace what they check with.
func (l *List) isNewModule(c Change, line string) bool {
	found := replaceLocal().FindStringSubmatch(line)
	if found == nil {
		return replaceBlock().MatchString(line)
	}
	required := requiredName().FindAllSubmatch(c.Before.Data, -1)
	if version := goVersion().FindSubmatch(c.Before.Data); len(required) > 0 {
		if version == nil {
			return false
		}
		if n, err := strconv.Atoi(string(version[1])); err != nil || n < prunedGo {
			return false
		}
	}
	for _, one := range required {
		if name := string(one[1]) + "/"; strings.HasPrefix(name, found[1]+"/") || strings.HasPrefix(found[1]+"/", name) {
			return false
		}
	}
	dir := path.Clean(found[2])
	return !l.solution["go.mod"] && filepath.IsLocal(dir) && dir != "." && !l.run[dir] && ByName(dir+"/x.go") == "" &&
		!bytes.Contains(c.Before.Data, []byte(strings.TrimSpace(line)))
}

// addModules notes which directories become modules of the repository.
func (l *List) addModules(changes []Change) {
	l.modules = map[string]bool{}
	for _, c := range changes {
		if c.Path != "go.mod" || c.After.Kind != env.KindFile || !l.harmlessModule(c) {
			continue
		}
		for line := range bytes.Lines(c.After.Data) {
			text := string(bytes.TrimRight(line, "\r\n"))
			if found := replaceLocal().FindStringSubmatch(text); found != nil && l.isNewModule(c, text) {
				l.modules[path.Clean(found[2])] = true
			}
		}
	}
}
