package repo

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env/disk"
)

// worktreeInclude is a file in a repository that lists ignored files that copies need, one pattern per line.
const worktreeInclude = ".worktreeinclude"

// choice selects which ignored paths a sandbox gets.
type choice struct{ include, exclude []string }

// newChoice combines the options with the repository's worktreeInclude.
func newChoice(source string, o Options) (choice, error) {
	c := choice{include: slices.Clone(o.Include), exclude: slices.Clone(o.Exclude)}
	for _, p := range slices.Concat(c.include, c.exclude) {
		if _, err := path.Match(trim(p), ""); err != nil || trim(p) == "" {
			return c, fmt.Errorf("%w: invalid pattern %q (for example 'data/*.csv' or .env)", ErrSource, p)
		}
	}
	root, err := os.OpenRoot(source)
	if err != nil {
		return c, err
	}
	defer root.Close()
	data, err := root.ReadFile(worktreeInclude)
	if err != nil {
		return c, nil // missing, or not a regular file in the repository
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if _, err := path.Match(trim(line), ""); err == nil && trim(line) != "" && line[0] != '#' && line[0] != '!' {
			c.include = append(c.include, line)
		}
	}
	return c, nil
}

func trim(pattern string) string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(pattern, "./"), "/"), "/")
}

// matches reports whether a pattern matches the path or a directory above it. A pattern without a slash is matched
// against each name in the path, another one against the path from the repository's root.
func matches(patterns []string, name string) bool {
	names := strings.Split(name, "/")
	for _, pattern := range patterns {
		anchored := strings.Contains(strings.TrimSuffix(pattern, "/"), "/")
		pattern = strings.TrimPrefix(trim(pattern), "**/")
		for i := range names {
			part := names[i]
			if anchored {
				part = strings.Join(names[:i+1], "/")
			}
			if ok, _ := path.Match(pattern, part); ok {
				return true
			}
		}
	}
	return false
}

// secret reports whether files of that name usually contain credentials.
func secret(name string) bool {
	base := strings.ToLower(path.Base(name))
	if slices.Contains([]string{".env.example", ".env.sample", ".env.template", ".env.test", ".env.dist"}, base) {
		return false
	}
	for _, pattern := range []string{
		".env", ".env.*", ".envrc", "*.pem", "*.key", "*.p12", "*.pfx", "*.keystore", "*.jks", "id_rsa*", "id_ed25519*",
		"id_ecdsa*", ".npmrc", ".pypirc", ".netrc", ".git-credentials", "credentials", "credentials.*", "secrets",
		"secrets.*", "*.tfstate", "*.tfstate.*", "*.tfvars", ".ssh", ".aws", ".gnupg", ".kube", ".docker", ".vault*",
		"service-account*.json",
	} {
		if ok, _ := path.Match(pattern, base); ok {
			return true
		}
	}
	return false
}

// ignored returns what the repository at source/prefix ignores: single files, and whole directories in which
// nothing is tracked.
func ignored(ctx context.Context, source, prefix string) ([]string, error) {
	g := git{dir: filepath.Join(source, prefix), user: true}
	out, err := g.run(ctx, nil, append([]string{"ls-files", "-z", "--ignored", "--directory"}, listUntracked()...)...)
	if err != nil {
		return nil, err
	}
	var names []string
	for entry := range bytes.SplitSeq(out, []byte{0}) {
		if name := strings.TrimSuffix(string(entry), "/"); name != "" {
			names = append(names, path.Join(filepath.ToSlash(prefix), name))
		}
	}
	return names, nil
}

// longestSkip limits the paths that one request to a sandbox can skip, in bytes. Paths beyond it are listed like
// any other, and still left out of the patch.
const longestSkip = 256 << 10

func bounded(paths []string) []string {
	size := 0
	for i, p := range paths {
		if size += len(p) + 2; size > longestSkip {
			return paths[:i]
		}
	}
	return paths
}

// setAside decides which ignored paths of a shared source are visible: all except excluded ones and likely secrets.
func (s *Snapshot) setAside(ctx context.Context, l *listing, c choice) error {
	for _, prefix := range append([]string{""}, l.inner...) {
		names, err := ignored(ctx, s.Source, prefix)
		if err != nil {
			return err
		}
		for _, name := range names {
			switch {
			case l.seen[filepath.FromSlash(name)] || slices.Contains(l.hidden, filepath.FromSlash(name)):
			case matches(c.exclude, name):
				l.hide(name, "excluded")
			case secret(name) && !matches(c.include, name):
				l.hide(name, "ignored by git and may hold secrets (--include "+path.Base(name)+" shows it)")
			default:
				s.Aside = append(s.Aside, name)
				s.hideSecrets(l, name, c)
			}
		}
	}
	return s.hideBelow(l, c.exclude)
}

// manyIgnored is the most files of one ignored directory to check for secrets.
const manyIgnored = 20_000

// hideSecrets hides likely secrets in an ignored directory that is the user's own.
func (s *Snapshot) hideSecrets(l *listing, dir string, c choice) {
	seen := 0
	top := filepath.Join(s.Source, filepath.FromSlash(dir))
	_ = filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
		if seen++; seen > manyIgnored {
			return fs.SkipAll
		}
		if err != nil {
			return fs.SkipDir
		}
		if d.IsDir() && installed(d.Name()) {
			return fs.SkipDir
		}
		name, err := filepath.Rel(s.Source, file)
		if name = filepath.ToSlash(name); err != nil || name == dir || !secret(name) || matches(c.include, name) {
			return nil
		}
		l.hide(name, "ignored by git and may hold secrets (--include "+path.Base(name)+" shows it)")
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
}

// installed reports whether directories of that name contain what a tool has installed, built or cached.
func installed(name string) bool {
	return slices.Contains([]string{
		"node_modules", "bower_components", ".yarn", ".pnpm-store", ".venv", "venv", "env", ".tox", ".nox", "site-packages",
		"__pycache__", ".eggs", ".mypy_cache", ".ruff_cache", ".pytest_cache", "target", "vendor", "bundle", ".bundle",
		".gradle", "build", "dist", "out", "_build", "deps", ".next", ".nuxt", ".cache", ".parcel-cache", ".turbo", "Pods",
		".dart_tool", "elm-stuff", ".stack-work", "dist-newstyle", "bin", "obj", ".terraform", ".cargo", ".m2",
	}, name) || strings.HasSuffix(name, ".egg-info")
}

func (l *listing) hide(name, why string) {
	l.hidden = append(l.hidden, filepath.FromSlash(name))
	l.omitted = append(l.omitted, Omission{Path: name, Reason: why})
}

// hideBelow hides excluded paths inside directories that are set aside.
func (s *Snapshot) hideBelow(l *listing, patterns []string) error {
	for _, pattern := range patterns {
		for _, file := range disk.Glob(s.Source, trim(pattern)) {
			name, err := filepath.Rel(s.Source, file)
			if err != nil {
				return err
			}
			name = filepath.ToSlash(name)
			within := func(dir string) bool { return strings.HasPrefix(name, dir+"/") }
			if slices.ContainsFunc(s.Aside, within) && !slices.Contains(l.hidden, filepath.FromSlash(name)) {
				l.hide(name, "excluded")
			}
		}
	}
	return nil
}

// references returns the host directories that installed dependencies refer to: a virtual environment's
// interpreter, projects installed in editable mode, and symbolic links to packages.
func references(source string, aside []string) []string {
	found := map[string]bool{}
	add := func(dir string) {
		dir = filepath.Clean(dir)
		if rel, err := filepath.Rel(source, dir); !filepath.IsAbs(dir) || err != nil || filepath.IsLocal(rel) {
			return
		}
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			found[dir] = true
			if real, err := filepath.EvalSymlinks(dir); err == nil {
				found[real] = true
			}
		}
	}
	for _, name := range aside {
		dir := filepath.Join(source, filepath.FromSlash(name))
		if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir {
			add(real)
		}
		environment(dir, add)
		if filepath.Base(dir) == "node_modules" {
			linked(dir, add)
			for _, scope := range disk.Glob(dir, "@*") {
				linked(scope, add)
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// environment adds the directories that a Python virtual environment refers to.
func environment(dir string, add func(string)) {
	config, err := os.ReadFile(filepath.Join(dir, "pyvenv.cfg"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(config)) {
		if key, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(key) == "home" {
			home := strings.TrimSpace(value)
			add(filepath.Dir(home))
			if real, err := filepath.EvalSymlinks(filepath.Join(home, "python3")); err == nil {
				add(filepath.Dir(filepath.Dir(real)))
			}
		}
	}
	AddedPaths(dir, "lib/python*/site-packages", add)
}

// AddedPaths calls add with each directory that a .pth file names. packages is a pattern of the directories below root
// in which Python's packages are installed.
func AddedPaths(root, packages string, add func(dir string)) {
	for _, file := range disk.Glob(root, packages+"/*.pth") {
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
}

// linked adds the targets of the symbolic links in a directory.
func linked(dir string, add func(string)) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		if real, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name())); err == nil {
			add(real)
		}
	}
}
