package project

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"deepswe/env"
)

// gem matches a gem among the specs of a Gemfile.lock, with its version, but without the platform it is built for.
var gem = env.Pattern(`(?m)^    ([\w.-]+) \(([\w.]+)(?:-[\w.-]+)?\)\s*$`)

func ruby(t tree, m Machine) (Step, bool) {
	_, remote, _ := bytes.Cut(t.read("Gemfile.lock"), []byte("GEM\n"))
	section, _, _ := bytes.Cut(remote, []byte("\n\n"))
	installed := m.gems(t)
	missing, found := "", 0
	wanted := map[string]bool{}
	for _, match := range gem().FindAllSubmatch(section, -1) {
		name := string(match[1]) + "-" + string(match[2])
		switch {
		case wanted[name]: // for another platform
			continue
		case installed[name]:
			found++
		default:
			missing = cmp.Or(missing, name)
		}
		wanted[name] = true
	}
	step := Step{
		Command: "bundle config set --local path vendor/bundle && bundle install", Lock: "Gemfile.lock", Missing: missing,
		Check: "BUNDLE_FROZEN=true bundle check",
	}
	return step, 2*found < len(wanted)
}

// installedGem matches the directory or specification of a gem: its name, its version, and its platform if it has one.
var installedGem = env.Pattern(`^(.+-\d[\w.]*?)(?:-[\w.-]+?)?(?:\.gemspec)?$`)

// gems returns the gems, with their versions, that the project finds.
func (m Machine) gems(t tree) map[string]bool {
	homes := directories(t.path("vendor/bundle/*ruby/*"))
	switch path := t.bundler()["BUNDLE_PATH"]; {
	case path != "" && filepath.IsLocal(path):
		homes = append(homes, directories(t.path(path+"/*ruby/*"))...)
	case path != "": // a project's file does not decide what a sandbox can see
	case filepath.IsAbs(m.BundlePath):
		homes = append(homes, directories(filepath.Join(m.BundlePath, "*ruby/*"))...)
	case m.BundlePath != "":
		homes = append(homes, directories(t.path(m.BundlePath+"/*ruby/*"))...)
	default:
		homes = append(homes, m.GemHomes...)
	}
	all := map[string]bool{}
	for _, home := range homes {
		for _, dir := range []string{"gems", "specifications", "specifications/default"} {
			entries, _ := os.ReadDir(filepath.Join(home, dir)) // one that cannot be read is of no use to the project
			for _, e := range entries {
				if match := installedGem().FindStringSubmatch(e.Name()); match != nil {
					all[match[1]] = true
				}
			}
		}
	}
	return all
}

// bundlerSetting matches a line of Bundler's settings that has a value.
var bundlerSetting = env.Pattern(`(?m)^(BUNDLE_\w+):[ \t]*["']?([^"'\s][^"'\n]*?)["']?[ \t]*$`)

// bundler returns the settings that Bundler keeps in the directory.
func (t tree) bundler() map[string]string {
	settings := map[string]string{}
	for _, match := range bundlerSetting().FindAllSubmatch(t.read(".bundle/config"), -1) {
		settings[string(match[1])] = string(match[2])
	}
	return settings
}

// BundlerSettings are the names of Bundler's settings that say which gems are used, and where they are.
func BundlerSettings() []string {
	return []string{"BUNDLE_PATH", "BUNDLE_DEPLOYMENT", "BUNDLE_WITHOUT", "BUNDLE_WITH"}
}

// Bundler returns those settings as the user has made them for all projects, in the environment or below the home. The
// others may be credentials.
func Bundler(home string, getenv func(string) string) map[string]string {
	file := map[string]string{}
	if home != "" {
		file = tree(home).bundler()
	}
	settings := map[string]string{}
	for _, key := range BundlerSettings() {
		value := cmp.Or(getenv(key), file[key])
		if below, found := strings.CutPrefix(value, "~/"); found {
			value = filepath.Join(home, below)
		}
		if value != "" {
			settings[key] = value
		}
	}
	return settings
}
