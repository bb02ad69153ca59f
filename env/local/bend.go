//go:build linux

package local

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/repo"
)

// bend returns environment variables that make the host's programs use the copy of a repository instead of the
// user's own files, if the active virtual environment has the repository installed in editable mode. It returns
// env.ErrUnsupported if only the user's own files could be tested.
func (t *toolchain) bend(source, copied string) ([]string, error) {
	if source == "" {
		return nil, nil
	}
	for _, key := range []string{"GOFLAGS", "GOWORK"} {
		if strings.Contains(t.vars[key], source+"/") {
			return nil, fmt.Errorf("%s=%s names your own files, which commands would use in place of the copy's: %w: "+
				"unset it, or use --env bwrap", key, t.vars[key], env.ErrUnsupported)
		}
	}
	for _, name := range []string{"go.mod", "go.work"} {
		data, _ := os.ReadFile(filepath.Join(source, name)) // most have none
		if strings.Contains(string(data), source+"/") {
			return nil, fmt.Errorf("%s names your own files by their absolute paths, which commands would use in place of the "+
				"copy's: %w: write relative paths, or use --env bwrap", name, env.ErrUnsupported)
		}
	}
	paths := t.pythonPath(source, copied)
	add := func(dir string) {
		if !within(dir, source) {
			return
		}
		bent := filepath.Join(copied, strings.TrimPrefix(dir, source))
		if !slices.Contains(paths, bent) {
			paths = append(paths, bent)
		}
	}
	for _, site := range t.sitePackages() {
		editable(site, add)
	}
	if len(paths) == 0 {
		return nil, nil
	}
	return []string{"PYTHONPATH=" + strings.Join(paths, ":")}, nil
}

// pythonPath returns the part of the user's PYTHONPATH that is in the repository, with the paths that it has in the
// sandbox.
func (t *toolchain) pythonPath(root, at string) []string {
	var paths []string
	for _, dir := range filepath.SplitList(t.vars["PYTHONPATH"]) {
		switch {
		case dir == "":
		case !filepath.IsAbs(dir):
			paths = append(paths, dir)
		case within(filepath.Clean(dir), root):
			paths = append(paths, filepath.Join(at, strings.TrimPrefix(filepath.Clean(dir), root)))
		}
	}
	return paths
}

// settings returns the user's own Go and Python settings that apply to a repository shown in place.
func (t *toolchain) settings(root string) ([]string, error) {
	for flag := range strings.FieldsSeq(t.vars["GOFLAGS"]) {
		_, path, ok := strings.Cut(flag, "=")
		if ok && filepath.IsAbs(path) && !within(path, root) {
			return nil, fmt.Errorf("GOFLAGS names %s, which the sandbox does not have: %w: unset it (go env -u GOFLAGS), or "+
				"move the file into the repository", path, env.ErrUnsupported)
		}
	}
	var settings []string
	switch work := t.vars["GOWORK"]; {
	case work == "":
	case work == "off" || within(work, root):
		settings = append(settings, "GOWORK="+work)
	default:
		return nil, fmt.Errorf("GOWORK names %s, which the sandbox does not have: %w: unset it, or set it to off", work,
			env.ErrUnsupported)
	}
	if paths := t.pythonPath(root, root); len(paths) > 0 {
		settings = append(settings, "PYTHONPATH="+strings.Join(paths, ":"))
	}
	return settings, nil
}

// sitePackages returns the directories from which the Python in PATH imports installed packages.
func (t *toolchain) sitePackages() []string {
	roots := []string{t.vars["VIRTUAL_ENV"], t.vars["CONDA_PREFIX"]}
	for _, dir := range t.path {
		if real, err := filepath.EvalSymlinks(filepath.Join(dir, "python3")); err == nil {
			roots = append(roots, filepath.Dir(dir), filepath.Dir(filepath.Dir(real)))
			break
		}
	}
	var all []string
	for _, root := range roots {
		if root == "" {
			continue
		}
		for _, pattern := range []string{"lib/python3*/site-packages", "lib/python3*/dist-packages"} {
			all = append(all, disk.Glob(root, pattern)...)
		}
	}
	return all
}

// quoted matches the absolute paths in the modules that setuptools writes for projects installed in editable mode.
var quoted = regexp.MustCompile(`'(/[^']+)'`)

// editable calls add with the directories of packages that are installed in editable mode.
func editable(site string, add func(dir string)) {
	repo.AddedPaths(site, ".", add)
	for _, file := range disk.Glob(site, "__editable__*.py") {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, m := range quoted.FindAllSubmatch(data, -1) {
			add(filepath.Dir(filepath.Clean(string(m[1])))) // a package is imported from its parent directory
		}
	}
}
