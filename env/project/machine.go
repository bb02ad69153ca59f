package project

import (
	"os"
	"path/filepath"
	"slices"
)

// Machine holds the directories in which tools keep what they install for all projects. Empty paths are not searched.
type Machine struct {
	Home string
	// Path are the directories with programs; nil where it is not known which programs there are.
	Path []string
	// VirtualEnv is the active Python environment; GoModCache, CargoHome and GemHomes are the tools' own directories.
	VirtualEnv string
	GoModCache string
	CargoHome  string
	GemHomes   []string
	// BundlePath is where the user lets Bundler install gems, which is below each project unless it is absolute.
	BundlePath string
	// SitePackages are the directories with the Python packages of all projects.
	SitePackages []string
}

// Container is a machine of which nothing is known: that on which an image is going to run.
func Container() Machine {
	return Machine{GoModCache: os.DevNull, CargoHome: os.DevNull, Home: os.DevNull, GemHomes: []string{os.DevNull}}
}

// FindMachine looks up the usual places.
func FindMachine(getenv func(string) string) Machine {
	m := Machine{Home: getenv("HOME"), VirtualEnv: getenv("VIRTUAL_ENV"), GoModCache: getenv("GOMODCACHE"),
		CargoHome: getenv("CARGO_HOME"), Path: filepath.SplitList(getenv("PATH"))}
	if name := getenv("CONDA_DEFAULT_ENV"); m.VirtualEnv == "" && name != "" && name != "base" {
		m.VirtualEnv = getenv("CONDA_PREFIX")
	}
	below := func(set *string, parts ...string) {
		if *set == "" && m.Home != "" {
			*set = filepath.Join(append([]string{m.Home}, parts...)...)
		}
	}
	if gopath := filepath.SplitList(getenv("GOPATH")); m.GoModCache == "" && len(gopath) > 0 {
		m.GoModCache = filepath.Join(gopath[0], "pkg", "mod")
	}
	below(&m.GoModCache, "go", "pkg", "mod")
	below(&m.CargoHome, ".cargo")
	m.GemHomes = directories(
		getenv("GEM_HOME"), "/var/lib/gems/*", "/usr/share/rubygems-integration/*", "/usr/lib/ruby/gems/*",
		"/usr/local/lib/ruby/gems/*", "/usr/local/bundle", "/usr/lib/*/rubygems-integration/*",
		filepath.Join(m.Home, ".local/share/gem/ruby/*"), filepath.Join(m.Home, ".gem/ruby/*"),
		filepath.Join(m.Home, ".rbenv/versions/*/lib/ruby/gems/*"), filepath.Join(m.Home, ".rvm/gems/*"))
	m.BundlePath = Bundler(m.Home, getenv)["BUNDLE_PATH"]
	m.SitePackages = directories(
		"/usr/lib/python3/dist-packages", "/usr/local/lib/python3*/*-packages",
		filepath.Join(m.Home, ".local/lib/python3*/site-packages"),
		filepath.Join(m.Home, ".pyenv/versions/*/lib/python3*/site-packages"))
	if prefix := getenv("CONDA_PREFIX"); prefix != "" {
		m.SitePackages = append(m.SitePackages, directories(filepath.Join(prefix, "lib/python3*/site-packages"))...)
	}
	return m
}

func directories(patterns ...string) []string {
	var all []string
	for _, pattern := range patterns {
		if pattern != "" {
			found, _ := filepath.Glob(pattern) // an invalid pattern matches nothing
			all = append(all, found...)
		}
	}
	return all
}

// lacks reports whether the machine is known not to have a program.
func (m Machine) lacks(program string) bool {
	return m.Path != nil && !slices.ContainsFunc(m.Path, func(dir string) bool {
		info, err := os.Stat(filepath.Join(dir, program))
		return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
	})
}
