package project

import (
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/disk"
)

var (
	// noModule matches Python's errors about a module that is not installed, and noPlugin those of pytest where a plugin
	// that the tests need is not.
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

// Lacking returns the packages of Python that are not installed, although tests that have printed log need them, and
// that a file of the project in the directory names. A package that none names could be anybody's.
func Lacking(dir, log string) (packages []string) {
	var modules []string
	for _, m := range noModule().FindAllStringSubmatch(log, -1) {
		switch module := m[1]; {
		case slices.Contains(modules, module) || tree(dir).hasModule(module):
		case module == "distutils" || module == "pkg_resources": // which came with Python once
			packages = append(packages, "setuptools<81")
		default:
			modules = append(modules, module)
		}
	}
	plugins := noPlugin().MatchString(log)
	if len(modules) > 0 || plugins {
		for _, pattern := range pythonSettings() {
			for _, name := range disk.Glob(dir, pattern) {
				for _, word := range packageName().FindAllString(string(tree("").read(name)), -1) {
					if plugins && pluginName().MatchString(word) ||
						slices.ContainsFunc(modules, func(module string) bool { return provides(word, module) }) {
						packages = append(packages, word)
					}
				}
			}
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages)
}

// hasModule reports whether the project has a module or a directory of that name itself, near its root.
func (t tree) hasModule(name string) bool {
	return slices.ContainsFunc([]string{"", "*/", "*/*/"}, func(above string) bool {
		return len(disk.Glob(string(t), above+name))+len(disk.Glob(string(t), above+name+".py")) > 0
	})
}

// provides reports whether a package is likely to have a module, judging by their names.
func provides(name, module string) bool {
	module = strings.ToLower(module)
	known := map[string]string{"attr": "attrs", "bs4": "beautifulsoup4", "git": "gitpython", "pil": "pillow"}
	return slices.Contains([]string{module, "py" + module, "python_" + module, known[module]}, distribution(name))
}

// With returns the commands of [Install] that install packages of Python as well, those that can be installed. ok is
// false if none of the commands installs any.
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
