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
	var paths []string
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
			found, _ := filepath.Glob(filepath.Join(root, pattern)) // an unusual root matches nothing
			all = append(all, found...)
		}
	}
	return all
}

// quoted matches the absolute paths in the modules that setuptools writes for projects installed in editable mode.
var quoted = regexp.MustCompile(`'(/[^']+)'`)

// editable calls add with the directories of packages that are installed in editable mode.
func editable(site string, add func(dir string)) {
	files, _ := filepath.Glob(filepath.Join(site, "*.pth"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); filepath.IsAbs(line) {
				add(filepath.Clean(line))
			}
		}
	}
	files, _ = filepath.Glob(filepath.Join(site, "__editable__*.py"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, m := range quoted.FindAllSubmatch(data, -1) {
			add(filepath.Dir(filepath.Clean(string(m[1])))) // a package is imported from its parent directory
		}
	}
}
