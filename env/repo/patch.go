package repo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepswe/env"
	"deepswe/env/disk"
)

// Patch is what an agent changed, in git's format.
type Patch struct {
	// Diff is a unified diff with git's headers, including binary files; empty if nothing changed.
	Diff []byte
	// Files are the changed paths, sorted.
	Files []string
	// Omitted lists changes that are not in Diff, with reasons. If it is not empty, the patch is incomplete.
	Omitted []Omission
	// Ignored counts the new files that the repository's own ignore rules exclude.
	Ignored int
}

// Omission is a change that a patch does not contain.
type Omission struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// longestList limits listing and hashing all files.
const longestList = 4 * time.Minute

// change is a path that differs from the base.
type change struct {
	path string
	// before and after are nil if the file did not or does not exist.
	before, after *env.FileInfo
}

// Patch compares the sandbox's repository with the base. Everything added, changed or removed is part of the patch,
// whatever the agent did to the repository's git directory, except for ignored files that are not tracked. An error
// is never the agent's fault: if the agent made the repository unreadable or too large, or removed it, the patch
// omits "./". Conversely, nothing is omitted because the machinery failed or was slow.
func (b *Base) Patch(ctx context.Context, sb Tree) (Patch, error) {
	p, err := b.patch(ctx, sb)
	switch {
	case err == nil:
		return p, nil
	case ctx.Err() != nil, errors.Is(err, env.ErrInfrastructure), errors.Is(err, env.ErrExhausted):
		return Patch{}, fmt.Errorf("compute patch: %w", err)
	}
	return Patch{}, fmt.Errorf("compute patch: %w: %w", env.ErrInfrastructure, err)
}

func (b *Base) patch(ctx context.Context, sb Tree) (p Patch, err error) {
	listing, cancel := context.WithTimeoutCause(ctx, longestList,
		fmt.Errorf("%w: its files cannot be listed within %s", env.ErrInfrastructure, longestList))
	defer cancel()
	entries, err := sb.Tree(listing, sb.Dir(), env.TreeOptions{Skip: b.aside})
	switch {
	case err != nil && listing.Err() != nil:
		return p, context.Cause(listing)
	case env.IsInfrastructure(listing, err):
		return p, err
	case err != nil:
		return Patch{Omitted: []Omission{{Path: "./", Reason: err.Error()}}}, nil
	}
	changes, hidden := b.compare(entries)
	if s, ok := b.origin.(*Snapshot); ok {
		var meanwhile []Omission
		changes, meanwhile = s.dropUsers(changes)
		hidden = append(hidden, meanwhile...)
	}
	p.Omitted = hidden
	if len(changes) == 0 {
		return p, nil
	}
	dir, err := disk.MakeScratch("", "patch")
	if err != nil {
		return p, err
	}
	defer disk.RemoveScratch(dir)
	changes, p.Ignored, err = b.dropIgnored(ctx, sb, dir, entries, changes)
	if err != nil || len(changes) == 0 {
		return p, err
	}
	changes, crowds := b.bound(changes)
	d := differ{base: b, sb: sb, dir: dir, omitted: append(p.Omitted, crowds...)}
	p.Diff, err = d.diff(ctx, changes)
	p.Files, p.Omitted = d.files, condense(d.omitted)
	return p, err
}

// compare returns the differences, sorted by path, and the directories that cannot be read. The files in those
// count as unchanged.
func (b *Base) compare(entries []env.FileInfo) (changes []change, hidden []Omission) {
	seen := make(map[string]bool, len(entries))
	closed := make(map[string]bool)
	for _, now := range entries {
		seen[now.Path] = true
		if now.Kind == env.KindDir { // a tree lists only directories that cannot be read
			closed[now.Path] = true
			if b.files[now.Path].Kind != env.KindDir { // otherwise it was already unreadable in the base
				hidden = append(hidden, Omission{Path: now.Path + "/", Reason: "the directory cannot be read"})
			}
		}
		was, ok := b.files[now.Path]
		switch {
		case !ok && carried(now):
			changes = append(changes, change{path: now.Path, after: &now})
		case ok && differs(was, now) && (carried(was) || carried(now)):
			changes = append(changes, change{path: now.Path, before: present(was), after: present(now)})
		}
	}
	for path, was := range b.files {
		if !seen[path] && carried(was) && !below(closed, path) {
			changes = append(changes, change{path: path, before: &was})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return strings.Compare(a.path, b.path) })
	return changes, hidden
}

func below(dirs map[string]bool, path string) bool {
	if len(dirs) == 0 {
		return false
	}
	for i := range len(path) {
		if path[i] == '/' && dirs[path[:i]] {
			return true
		}
	}
	return false
}

// carried reports whether git can store files of this kind.
func carried(f env.FileInfo) bool { return f.Kind == env.KindFile || f.Kind == env.KindSymlink }

func present(f env.FileInfo) *env.FileInfo {
	if carried(f) {
		return &f
	}
	return nil
}

func differs(a, b env.FileInfo) bool {
	return a.Kind != b.Kind || a.Target != b.Target || a.Version != b.Version || a.Size != b.Size ||
		gitMode(a) != gitMode(b)
}

// gitMode returns the mode that git stores, which keeps only whether the owner may execute.
func gitMode(f env.FileInfo) string {
	switch {
	case f.Kind == env.KindSymlink:
		return ModeLink
	case f.Mode&0o100 != 0:
		return "100755"
	default:
		return "100644"
	}
}

func version(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// Hash returns the hex SHA-256 of the diff.
func (p Patch) Hash() string { return version(p.Diff) }

// Compare returns the difference between two texts as unified hunks without a header; empty if they are equal.
func Compare(ctx context.Context, before, after []byte) ([]byte, error) {
	dir, err := disk.MakeScratch("", "compare")
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	defer disk.RemoveScratch(dir)
	for name, data := range map[string][]byte{"before": before, "after": after} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, fmt.Errorf("compare: %w", err)
		}
	}
	out, err := git{dir: dir}.run(ctx, nil, "diff", "--no-index", "--no-ext-diff", "--no-textconv", "--no-color",
		"--text", "before", "after")
	if err != nil && !exitedOne(err) { // 1: they differ
		return nil, fmt.Errorf("compare: %w", err)
	}
	if i := bytes.Index(out, []byte("\n@@")); i >= 0 {
		return out[i+1:], nil
	}
	return nil, nil
}
