//go:build linux

package local

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env/disk"
)

// longestChain is the maximum number of symbolic links between a name in PATH and its program, as in the kernel.
const longestChain = 40

// linked returns what is needed by programs that are only symbolic links in PATH, such as those of poetry, pipx and
// uv: what the links lead to, and the links in between.
func (t *toolchain) linked() []string {
	var all []string
	for _, dir := range t.path {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.Type() == fs.ModeSymlink {
				all = append(all, t.needs(filepath.Join(dir, e.Name()))...)
			}
		}
	}
	return all
}

// needs returns what is needed by a program that is a symbolic link in PATH.
func (t *toolchain) needs(link string) []string {
	hops, real := follow(link)
	info, err := os.Stat(real)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 || t.confidential(real) {
		return nil
	}
	hops = slices.DeleteFunc(hops, common)
	if common(real) {
		return hops
	}
	root := t.installation(real)
	hops = append(hops, root)
	if python := filepath.Join(root, "bin/python"); installed(root, "pyvenv.cfg") && python != link {
		hops = append(hops, t.needs(python)...)
	}
	return hops
}

// follow returns the symbolic links on the way to a file, and where they lead.
func follow(path string) (hops []string, real string) {
	at, todo := "/", strings.Split(path, "/")
	for len(todo) > 0 && len(hops) < longestChain {
		next := filepath.Join(at, todo[0])
		todo = todo[1:]
		target, err := os.Readlink(next)
		if err != nil { // no link
			at = next
			continue
		}
		hops = append(hops, next)
		if filepath.IsAbs(target) {
			at = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return hops, at
}

// common reports whether every sandbox can see a path.
func common(path string) bool {
	return withinAny(path, append(system(), "/etc/alternatives", "/nix/store")...)
}

// confidential reports whether a program is where no programs are kept, but secrets may be.
func (t *toolchain) confidential(path string) bool {
	places := []string{"/etc", "/proc", "/sys", "/dev"}
	for _, name := range []string{".ssh", ".gnupg", ".aws", ".docker", ".kube"} {
		places = append(places, filepath.Join(t.home, name))
	}
	return withinAny(path, places...)
}

// installation returns what a program was installed with: a virtual environment, packages of Node, an interpreter, a
// version manager. Anywhere else below the home, which may be one of the user's projects, it returns the file alone.
func (t *toolchain) installation(program string) string {
	if before, _, found := strings.Cut(program, "/node_modules/"); found {
		return before + "/node_modules"
	}
	dir := filepath.Dir(program)
	root := t.rootsOf(dir)[0]
	inHome := t.home != "" && within(program, t.home)
	switch {
	case t.manager(dir) != "", root != dir && !inHome, within(dir, "/opt") && dir != "/opt":
		return root
	case root != dir && (installed(root, "pyvenv.cfg") || installed(root, "lib/python3*/os.py") ||
		installed(root, "lib/node_modules")):
		return root
	}
	return program
}

// installed reports whether there is a file that a pattern below the directory matches.
func installed(dir, pattern string) bool {
	return len(disk.Glob(dir, pattern)) > 0
}
