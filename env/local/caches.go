//go:build linux

package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"deepswe/env"
)

// cache is a directory below the user's home in which a build tool keeps what it downloads or installs.
type cache struct {
	name string
	// written is set if the tool cannot work without writing to it.
	written bool
}

// caches are visible to a checkout's commands below their own home too, where tools look for them. None of them
// contains credentials.
func caches() []cache {
	return []cache{
		{".m2/repository", true}, {".gradle/caches", true}, {".gradle/wrapper", true}, {".ivy2/cache", true},
		{".sbt/boot", true}, {".cache/coursier", true}, {".bundle/cache", false}, {".gem/ruby", false},
		{".local/share/gem", false}, {".local/lib", false}, {".local/share/uv", false}, {".local/share/pnpm", false},
		{".cache/node/corepack", false}, {".yarn/berry/cache", false}, {".cache/ms-playwright", false},
		{".cache/puppeteer", false}, {".cache/Cypress", false}, {".nuget/packages", true}, {".mix", true}, {".hex", true},
		{".pub-cache", true}, {".cpanm", false}, {".opam", false}, {".ghcup", false}, {".cabal/packages", false},
		{".stack", true}, {".cache/deno", true}, {".m2/wrapper", false}, {".cache/uv", true},
		{".cache/pypoetry/virtualenvs", true}, {".local/share/virtualenvs", true}, {".local/share/hatch/env", true},
		{".local/share/pipx", false}, {".local/pipx", false},
	}
}

type found struct {
	name    string // below the home
	dir     string // on the host; empty if there is none
	written bool
}

// found returns the caches on this machine. For a set-up, it includes those that do not exist yet.
func (t *toolchain) found(whole bool) []found {
	var all []found
	add := func(name, dir string, written bool) {
		if !isDir(dir) || os.Geteuid() != 0 && !opens(dir, os.O_RDONLY) {
			dir = ""
		}
		if dir != "" || whole {
			all = append(all, found{name, dir, written || whole})
		}
	}
	for _, c := range caches() {
		add(c.name, filepath.Join(t.home, filepath.FromSlash(c.name)), c.written)
	}
	if whole {
		add(goModules, t.goModCache, true)
		for _, name := range []string{"registry", "git"} {
			add(cargoHome+"/"+name, filepath.Join(t.vars["CARGO_HOME"], name), true)
		}
	}
	return all
}

// The directories in which Go and Rust keep downloads, below the sandbox's own home.
const (
	goModules = "go/pkg/mod"
	cargoHome = ".cargo"
)

// cache shows an overlay of a cache at another path, and reports whether there is anything to show. If the host does
// not have the cache, an earlier set-up may have filled it.
func (l *layout) cache(f found, to string) (bool, error) {
	name := "cache-" + strings.ReplaceAll(f.name, "/", "+")
	var from []string
	if below := filepath.Join(l.over, "home", filepath.FromSlash(f.name)); l.over != "" {
		// Host sandboxes have links there to the user's own caches.
		if info, err := os.Lstat(below); err == nil && info.IsDir() {
			from = append(from, below)
		}
	}
	if f.dir != "" {
		from = append(from, f.dir)
	}
	if f.dir == "" && (l.over == "" || !isDir(filepath.Join(l.over, name))) {
		return false, nil // the home already contains it
	}
	if err := os.Mkdir(to, 0o755); err != nil && !os.IsExist(err) {
		return false, err
	}
	return true, l.cover(name, from, to, nil)
}

// userCaches prepares the caches that exist, and returns the bwrap arguments that show them.
func (b *Bwrap) userCaches(l *layout, s env.Spec) ([]string, error) {
	home := b.toolchain.home
	if home == "" || home == "/" || s.Checkout == nil {
		return nil, nil
	}
	var args []string
	if l.whole() {
		own := filepath.Join(l.dir, "home")
		if err := os.Mkdir(own, 0o755); err != nil {
			return nil, err
		}
		if err := l.cover("home", nil, own, nil); err != nil {
			return nil, err
		}
		args = append(args, "--bind", own, homePath)
	}
	for i, f := range b.toolchain.found(l.whole()) {
		if f.dir != "" && within(s.Checkout.Root, f.dir) {
			continue
		}
		bind, from := "--ro-bind", f.dir
		if f.written {
			bind, from = "--bind", filepath.Join(l.dir, fmt.Sprintf("cache%d", i))
			switch any, err := l.cache(f, from); {
			case err != nil:
				return nil, err
			case !any:
				continue
			}
		}
		inside := filepath.Join(homePath, f.name)
		args = append(append(args, ownParents(inside)...), bind, from, inside)
		if f.dir != "" && !within(f.dir, s.Checkout.Root) && !within(f.dir, homePath) {
			args = append(append(args, parents(f.dir)...), bind, from, f.dir)
		}
	}
	return b.maven(l, s, args)
}

// maven makes Maven work offline if there is no network, which it does not detect itself.
func (b *Bwrap) maven(l *layout, s env.Spec, args []string) ([]string, error) {
	const repository = ".m2/repository"
	any := isDir(filepath.Join(b.toolchain.home, repository)) ||
		l.over != "" && isDir(filepath.Join(l.over, "home", repository))
	if s.Network || l.keep != "" || !any {
		return args, nil
	}
	settings := filepath.Join(l.dir, "maven.xml")
	if err := os.WriteFile(settings, []byte("<settings><offline>true</offline></settings>\n"), 0o644); err != nil {
		return nil, err
	}
	return append(args, "--ro-bind", settings, filepath.Join(homePath, ".m2", "settings.xml")), nil
}

// ownParents creates the directories above a path in the commands' home, writable for commands.
func ownParents(path string) []string {
	var args []string
	for i, c := range path {
		switch {
		case c != '/' || i == 0:
		case within(path[:i], homePath):
			args = append(args, "--perms", "0777", "--dir", path[:i])
		default:
			args = append(args, "--dir", path[:i])
		}
	}
	return args
}
