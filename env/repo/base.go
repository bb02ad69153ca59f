package repo

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"deepswe/env"
	"deepswe/env/disk"
)

// Tree is the part of env.Sandbox that a patch is computed through.
type Tree interface {
	Dir() string
	Tree(ctx context.Context, root string, o env.TreeOptions) ([]env.FileInfo, error)
	Read(ctx context.Context, path string, o env.ReadOptions) ([]byte, env.FileInfo, error)
}

// Base is the state of a sandbox's repository before the agent changed it: every file's hash, kept on the host. A patch
// is computed against it, which requires no git in the sandbox and trusts nothing that git there says.
type Base struct {
	files   map[string]env.FileInfo
	tracked map[string]bool
	origin  env.Origin
	aside   []string

	maxNew   int // for tests: the constant of that name when 0
	dirsOnce sync.Once
	dirs     map[string]bool // see hadDir
}

// Record describes the repository in the sandbox as it is now. Call it before the agent's first step. The origin gives
// the same files from a place that the agent cannot reach; its content is checked against the hashes recorded here. The
// paths that are set aside, relative to the repository, are no part of a patch.
func Record(ctx context.Context, sb Tree, origin env.Origin, aside []string) (*Base, error) {
	aside = bounded(aside)
	entries, err := sb.Tree(ctx, sb.Dir(), env.TreeOptions{Skip: aside})
	if err != nil {
		return nil, fmt.Errorf("record base: %w", err)
	}
	b := &Base{files: make(map[string]env.FileInfo, len(entries)), origin: origin, aside: aside}
	for _, e := range entries {
		b.files[e.Path] = e
	}
	if b.tracked, err = tracked(ctx, sb); err != nil {
		return nil, fmt.Errorf("record base: %w", err)
	}
	return b, nil
}

// tracked names the files that the sandbox's repository tracks, read from its index with the host's git. Without a
// repository, or with an index that git cannot read, every file that was there counts as tracked: nil.
func tracked(ctx context.Context, sb Tree) (map[string]bool, error) {
	index, _, err := sb.Read(ctx, sb.Dir()+"/.git/index", env.ReadOptions{Limit: 1 << 30, NoFollow: true})
	if err != nil {
		if env.IsInfrastructure(ctx, err) {
			return nil, err
		}
		return nil, nil
	}
	dir, err := disk.MakeScratch("", "index")
	if err != nil {
		return nil, err
	}
	defer disk.RemoveScratch(dir)
	path := filepath.Join(dir, "index")
	if err := os.WriteFile(path, index, 0o600); err != nil {
		return nil, err
	}
	g := git{dir: dir}
	if _, err := g.run(ctx, nil, "init", "-q", "--template=", "--bare", "git"); err != nil {
		return nil, err
	}
	g.env = []string{"GIT_DIR=" + filepath.Join(dir, "git"), "GIT_INDEX_FILE=" + path}
	out, err := g.run(ctx, nil, "ls-files", "-z", "--cached")
	if ctx.Err() != nil || errors.Is(err, ErrNoGit) {
		return nil, err
	}
	if err != nil {
		return nil, nil
	}
	return nameSet(out), nil
}

// Digest identifies the state of the files that the repository tracks: paths, kinds, modes and contents.
func (b *Base) Digest() string {
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(b.files)) {
		if f := b.files[path]; b.isTracked(path) {
			fmt.Fprintf(h, "%q %s %s %q %s\n", path, f.Kind, gitMode(f), f.Target, f.Version)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// isTracked reports whether a file that was there at the start belongs to the repository.
func (b *Base) isTracked(path string) bool {
	if _, ok := b.files[path]; !ok {
		return false
	}
	return b.tracked == nil || b.tracked[path]
}

// original returns a file's content at the start, checked against its hash.
func (b *Base) original(ctx context.Context, f env.FileInfo) ([]byte, error) {
	if f.Kind == env.KindSymlink {
		return []byte(f.Target), nil
	}
	data, err := b.origin.Original(ctx, f.Path)
	if s, ok := b.origin.(*Snapshot); ok && (err != nil || f.Version != "" && version(data) != f.Version) {
		// The user has changed the file meanwhile.
		if kept, keptErr := s.kept(ctx, f.Path); keptErr == nil {
			data, err = kept, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the original of %q is gone", env.ErrInfrastructure, f.Path)
	}
	if err != nil {
		return nil, fmt.Errorf("original of %q: %w", f.Path, err)
	}
	if v := version(data); f.Version != "" && v != f.Version {
		return nil, fmt.Errorf("%w: the original of %q has changed since the start", env.ErrInfrastructure, f.Path)
	}
	return data, nil
}

//go:embed hygiene.sh
var hygiene string

// Hygiene returns the command line that removes the future from a repository in a sandbox: every commit, tag, branch,
// stash, reflog and packed object that is not an ancestor of the base commit, and every hook, filter and other
// configuration. It belongs among Spec.Prepare of tasks whose image was built after the fix was known. An empty base is
// the commit that is checked out. It needs git in the sandbox; without one, it removes the whole history.
func Hygiene(base string) string {
	if base == "" {
		base = "HEAD"
	}
	return "set -- " + env.ShellQuote(base) + "\n" + hygiene
}
