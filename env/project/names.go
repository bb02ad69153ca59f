package project

import (
	"encoding/json"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/disk"
)

// manifestName finds the name of a package in its manifest.
type manifestName struct {
	manifest string
	pattern  func() *regexp.Regexp
}

var (
	nameField    = env.Pattern(`(?m)^\s*name\s*=\s*["']?([\w.-]+)`)
	nameArgument = env.Pattern(`\bname\s*=\s*["']([\w.-]+)["']`)
	nameModule   = env.Pattern(`(?m)^module\s+"?([^\s"]+?)(?:/v\d+)?"?\s*$`)
	nameGradle   = env.Pattern(`rootProject\.name\s*=\s*["']([^"']+)`)
	nameMaven    = env.Pattern(`(?s)^(?:.*</parent>)?.*?<artifactId>\s*([\w.-]+)`)
)

func manifestNames() []manifestName {
	return []manifestName{
		{"Cargo.toml", nameField}, {"pyproject.toml", nameField}, {"setup.cfg", nameField}, {"setup.py", nameArgument},
		{"go.mod", nameModule}, {"settings.gradle", nameGradle}, {"settings.gradle.kts", nameGradle}, {"pom.xml", nameMaven},
	}
}

// Names returns what package managers call the packages below a directory that some files belong to, without the names
// of owners and groups.
func Names(dir string, files []string) (names []string) {
	t := tree(dir)
	add := func(name string) {
		for _, name := range []string{path.Base(name), escaped(path.Base(name))} {
			if name != "." && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	var seen []string
	for _, file := range files {
		for at := path.Dir(file); !slices.Contains(seen, at); at = path.Dir(at) {
			seen = append(seen, at)
			for _, known := range []string{"package.json", "composer.json"} {
				var manifest struct{ Name string }
				_ = json.Unmarshal(t.read(path.Join(at, known)), &manifest) // without one there is no name
				add(manifest.Name)
			}
			for _, known := range manifestNames() {
				if m := known.pattern().FindSubmatch(t.read(path.Join(at, known.manifest))); m != nil {
					add(string(m[1]))
				}
			}
			for _, spec := range disk.Glob(t.path(at), "*.gemspec") {
				add(strings.TrimSuffix(filepath.Base(spec), ".gemspec"))
			}
		}
	}
	return names
}
