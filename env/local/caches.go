//go:build linux

package local

import (
	"fmt"
	"os"
	"path/filepath"

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
		{".stack", true}, {".cache/deno", true},
	}
}

// userCaches prepares the caches that exist, and returns the bwrap arguments that show them.
func (b *Bwrap) userCaches(l *layout, s env.Spec) ([]string, error) {
	home := b.toolchain.home
	if home == "" || home == "/" || s.Checkout == nil {
		return nil, nil
	}
	var args []string
	for i, c := range caches() {
		dir := filepath.Join(home, filepath.FromSlash(c.name))
		if !isDir(dir) || !b.root && !opens(dir, os.O_RDONLY) || within(s.Checkout.Root, dir) {
			continue
		}
		bind, from := "--ro-bind", dir
		if c.written {
			bind, from = "--bind", filepath.Join(l.dir, fmt.Sprintf("cache%d", i))
			if err := os.Mkdir(from, 0o755); err != nil {
				return nil, err
			}
			if err := l.cover(dir, from, nil); err != nil {
				return nil, err
			}
		}
		inside := filepath.Join(homePath, c.name)
		args = append(append(args, ownParents(inside)...), bind, from, inside)
		if !within(dir, s.Checkout.Root) && !within(dir, homePath) {
			args = append(append(args, parents(dir)...), bind, from, dir)
		}
	}
	if !s.Network && isDir(filepath.Join(home, ".m2", "repository")) {
		settings := filepath.Join(l.dir, "maven.xml")
		if err := os.WriteFile(settings, []byte("<settings><offline>true</offline></settings>\n"), 0o644); err != nil {
			return nil, err
		}
		args = append(args, "--ro-bind", settings, filepath.Join(homePath, ".m2", "settings.xml"))
	}
	return args, nil
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
