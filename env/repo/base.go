package repo

import (
	"cmp"
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
	"time"

	"deepswe/env"
	"deepswe/env/disk"
)

// Tree is the part of env.Sandbox that computing a patch needs.
type Tree interface {
	Dir() string
	Tree(ctx context.Context, root string, o env.TreeOptions) ([]env.FileInfo, error)
	Read(ctx context.Context, path string, o env.ReadOptions) ([]byte, env.FileInfo, error)
}

// Base is the state of a sandbox's repository before the agent changed it, as the hash of every file, kept on the
// host. Computing a patch against it needs no git in the sandbox, and does not depend on anything that the agent
// could tamper with there.
type Base struct {
	files   map[string]env.FileInfo
	tracked map[string]bool
	origin  env.Origin
	aside   []string

	maxNew   int           // set by tests; 0 means the constant maxNew
	matching time.Duration // the same for longestMatch
	dirsOnce sync.Once
	dirs     map[string]bool // see hadDir
}

// Record records the repository's current state. Call it before the agent's first step. origin provides the
// original content of files from a place that the agent cannot reach; Base checks it against the recorded hashes.
// aside lists paths, relative to the repository, that a patch never contains.
func Record(ctx context.Context, sb Tree, origin env.Origin, aside []string) (*Base, error) {
	aside = bounded(aside)
	entries, err := sb.Tree(ctx, sb.Dir(), env.TreeOptions{Skip: aside, Remember: true})
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

// tracked returns the files that the sandbox's repository tracks, read from its index by the host's git. Without a
// repository, or if git cannot read the index, it returns nil, and every file in the base counts as tracked.
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

// Digest returns a hash over the paths, kinds, modes and contents of the tracked files.
func (b *Base) Digest() string {
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(b.files)) {
		if f := b.files[path]; b.isTracked(path) {
			fmt.Fprintf(h, "%q %s %s %q %s\n", path, f.Kind, gitMode(f), f.Target, f.Version)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (b *Base) isTracked(path string) bool {
	if _, ok := b.files[path]; !ok {
		return false
	}
	return b.tracked == nil || b.tracked[path]
}

// original returns a file's content in the base, checked against its hash.
func (b *Base) original(ctx context.Context, f env.FileInfo) ([]byte, error) {
	if f.Kind == env.KindSymlink {
		return []byte(f.Target), nil
	}
	data, err := b.origin.Original(ctx, f.Path)
	if s, ok := b.origin.(*Snapshot); ok && (err != nil || f.Version != "" && version(data) != f.Version) {
		// The user may have changed the file during the run; the snapshot's git objects still have it.
		if kept, keptErr := s.kept(ctx, f.Path); keptErr == nil {
			data, err = kept, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the original of %q no longer exists", env.ErrInfrastructure, f.Path)
	}
	if ctx.Err() != nil && err != nil {
		return nil, fmt.Errorf("original of %q: %w", f.Path, err)
	}
	if err != nil {
		// Only its text: if the origin has used up its limits, that is not what the agent's sandbox did.
		return nil, fmt.Errorf("%w: original of %q: %s", env.ErrInfrastructure, f.Path, err.Error())
	}
	if v := version(data); f.Version != "" && v != f.Version {
		return nil, fmt.Errorf("%w: the original of %q has changed since the start", env.ErrInfrastructure, f.Path)
	}
	return data, nil
}

//go:embed hygiene.sh
var hygiene string

// Hygiene returns a command line that replaces a sandbox's repository by one of the base commit, its ancestors and the
// tags on them, without any configuration. It belongs in Spec.Prepare of tasks whose image was built when the fix was
// already known. An empty base means the current commit. It needs git in the sandbox; without git, it removes the whole
// history.
func Hygiene(base string) string {
	return "set -- " + env.ShellQuote(cmp.Or(base, "HEAD")) + "\n" + hygiene
}
