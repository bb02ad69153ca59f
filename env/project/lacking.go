package project

import (
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/disk"
)

var (
	// noModule matches Python's error about a module that is not installed, and noPlugin pytest's about what a plugin
	// would have brought.
	noModule = env.Pattern(`ModuleNotFoundError: No module named '(\w+)`)
	noPlugin = env.Pattern(`fixture '\w+' not found|async def functions are not natively supported`)
	// packageName matches what may be the name of a package, and pluginName that of a plugin.
	packageName = env.Pattern(`[A-Za-z][\w.-]*\w`)
	pluginName  = env.Pattern(`^pytest[-_][a-z][\w-]*$`)
)

// pythonSettings returns patterns of the files in which Python projects say what their tests need: besides the
// manifests that [Install] reads, these are the settings of what starts the tests.
func pythonSettings() []string {
	return []string{
		"pyproject.toml", "setup.py", "setup.cfg", "Pipfile", "environment*.yml", "hatch.toml", "tox.ini", "noxfile.py",
		"tasks.py", "Makefile", "justfile", ".travis.yml", ".github/workflows/*.yml", ".github/workflows/*.yaml",
		".circleci/config.yml", "*requirements*.txt", "requirements/*.txt", "*/*requirements*.txt",
	}
}

// Lacking returns the packages of Python that tests lack, according to the log that they have printed. Only those are
// returned that a file of the project in the directory names: without that, a package could be anybody's.
func Lacking(dir, log string) (packages []string) {
	t, seen, wanted := tree(dir), map[string]bool{}, map[string]bool{}
	for _, m := range noModule().FindAllStringSubmatch(log, -1) {
		module := m[1]
		if seen[module] || t.hasModule(module) {
			continue
		}
		seen[module] = true
		if module == "distutils" || module == "pkg_resources" { // which came with Python once
			packages = append(packages, "setuptools<81")
			continue
		}
		for _, name := range providers(module) {
			wanted[name] = true
		}
	}
	plugins := noPlugin().MatchString(log)
	if len(wanted) > 0 || plugins {
		for _, name := range t.packageNames() {
			if wanted[distribution(name)] || plugins && pluginName().MatchString(name) {
				packages = append(packages, name)
			}
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages)
}

// packageNames returns the words in the files of [pythonSettings]. Some of them are names of packages.
func (t tree) packageNames() (words []string) {
	for _, pattern := range pythonSettings() {
		for _, file := range disk.Glob(string(t), pattern) {
			name, err := filepath.Rel(string(t), file)
			if err == nil {
				words = append(words, packageName().FindAllString(string(t.read(name)), -1)...)
			}
		}
	}
	return words
}

// hasModule reports whether the project has a module or a directory of that name itself, near its root.
func (t tree) hasModule(name string) bool {
	return slices.ContainsFunc([]string{"", "*/", "*/*/"}, func(above string) bool {
		return len(disk.Glob(string(t), above+name))+len(disk.Glob(string(t), above+name+".py")) > 0
	})
}

// providers returns the usual names of packages with a module, as [distribution] writes them.
func providers(module string) []string {
	module = strings.ToLower(module)
	names := []string{module, "py" + module, "python_" + module}
	known := map[string]string{"attr": "attrs", "bs4": "beautifulsoup4", "git": "gitpython", "pil": "pillow"}
	if name := known[module]; name != "" {
		names = append(names, name)
	}
	return names
}

// With returns the commands of [Install], extended to install more packages of Python. Those that cannot be installed
// are left out. ok is false if none of the commands is one of pip.
func With(commands, packages []string) (more []string, ok bool) {
	for _, line := range commands {
		if strings.HasPrefix(line, pipBegins) {
			line += " && for one in " + env.ShellQuote(packages...) + "; do " + PipInstall + `"$one" || :; done`
			ok = true
		}
		more = append(more, line)
	}
	return more, ok
}
