package repo

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"deepswe/env"
	"deepswe/env/disk"
)

// Snapshot is a private copy of a directory at one moment, including uncommitted changes. A sandbox works on a copy
// of it, and patches are computed against it. It implements env.Origin.
//
// If the source is a git work tree, the copy is a repository of its own: the source's last commits, plus a commit
// of what was uncommitted, so that an agent's "git checkout -- file" cannot lose the user's work. It contains
// nothing of the source's configuration: no remotes, credentials or hooks.
//
// If a sandbox can show the source itself, or copy it in, only the repository is created, and no copy: see [Options].
type Snapshot struct {
	// Dir is the directory of the copy; empty if there is none.
	Dir string
	// Checkout is what a sandbox shows instead of a copy; nil if there is a copy.
	Checkout *env.Checkout
	// Source is the directory that was copied: the root of the work tree, if it is in one.
	Source string
	// Omitted lists files that this process may not read and that are therefore missing from the copy.
	Omitted []Omission
	// Aside lists paths that the sandbox has although the repository ignores them. They are never part of a patch.
	Aside []string

	parent    string
	git       string   // the git directory made by share
	links     []string // other paths by which the source can be reached
	streamed  bool     // sandboxes copy the source itself, except for the paths in without
	without   []string
	installed *env.Installed
	progress  progress
}

// progress counts what is copied.
type progress struct {
	report func(files int, bytes int64)
	mu     sync.Mutex // several sandboxes may copy at once
	files  int
	bytes  int64
	last   time.Time
}

func (p *progress) add(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files++
	p.bytes += bytes
	if p.report != nil && time.Since(p.last) > 100*time.Millisecond {
		p.last = time.Now()
		p.report(p.files, p.bytes)
	}
}

// Options control a snapshot. The zero value copies, without ignored files.
type Options struct {
	// Share makes no copy: the sandbox will show the source through an overlay (see [env.Overlayer]), including
	// ignored files, except for likely secrets.
	Share bool
	// Stream makes no copy either: a sandbox copies in the source itself when it starts, including ignored files,
	// except for likely secrets, up to a budget.
	Stream bool
	// Ignored also copies ignored files, except for likely secrets, up to a budget.
	Ignored bool
	// Include and Exclude are patterns of ignored paths that are always, or never, visible. A pattern is a shell
	// pattern; without a slash it matches names, otherwise paths from the repository's root.
	Include, Exclude []string
	// Progress is called now and then with how much has been copied; nil calls nothing.
	Progress func(files int, bytes int64)
}

// Take copies dir or, if dir is in a git work tree, the whole work tree. It leaves out ignored files, devices,
// sockets and pipes, and only reads the source.
func Take(ctx context.Context, dir string, o Options) (*Snapshot, error) {
	s, err := takeSnapshot(ctx, dir, o, true)
	if err != nil && !o.Share && ctx.Err() == nil { // for example because git objects are missing
		s, err = takeSnapshot(ctx, dir, o, false)
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", dir, err)
	}
	return s, nil
}

func takeSnapshot(ctx context.Context, dir string, o Options, history bool) (*Snapshot, error) {
	w, err := find(ctx, dir)
	if err != nil {
		return nil, err
	}
	parent, err := disk.MakeScratch("", "base")
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Source: w.root, parent: parent, links: w.links, progress: progress{report: o.Progress}}
	if err := s.fill(ctx, w.repository, history, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Place makes the snapshot the repository of the sandbox that spec describes.
func (s *Snapshot) Place(spec *env.Spec) {
	spec.Installed = s.installed
	spec.CopyIn, spec.Checkout = s.Dir, s.Checkout
	if s.streamed {
		spec.CopyIn, spec.Git, spec.Without, spec.Copied = s.Source, s.git, s.without, s.progress.add
	}
	if spec.CopyIn == "" {
		return
	}
	spec.Source = s.Source
	for _, name := range s.Aside {
		config := filepath.Join(spec.CopyIn, filepath.FromSlash(name), "pyvenv.cfg")
		if _, err := os.Lstat(config); err == nil && spec.Image != "" {
			spec.Prepare = append(spec.Prepare, mendEnvironment(name))
		}
	}
}

// Within returns a provider that places the snapshot in every sandbox that it starts, as [Snapshot.Place] does in one.
func (s *Snapshot) Within(p env.Provider) env.Provider { return within{p, s} }

type within struct {
	env.Provider
	snapshot *Snapshot
}

func (w within) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	s.Prepare = nil // only for images that contain the repository
	w.snapshot.Place(&s)
	sb, err := w.Provider.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	return placed{sb, w.snapshot}, nil
}

// placed is a sandbox whose original files are those of the snapshot.
type placed struct {
	env.Sandbox
	snapshot *Snapshot
}

func (p placed) Original(ctx context.Context, path string) ([]byte, error) {
	return p.snapshot.Original(ctx, path)
}

// Install adds the result of a set-up to the sandboxes of the snapshot. It does not become part of a patch.
func (s *Snapshot) Install(done env.Installed) {
	s.installed = &done
	s.Aside = append(slices.Clip(s.Aside), done.Added...)
}

// Installed reports whether a set-up's results are among what the sandboxes show.
func (s *Snapshot) Installed() bool { return s.installed != nil }

// fill makes the git directory and, unless a sandbox can do without, the copy. Without history, it has one commit.
func (s *Snapshot) fill(ctx context.Context, repository, history bool, o Options) error {
	files, err := list(ctx, s.Source, repository)
	if err != nil {
		return err
	}
	chosen, err := newChoice(s.Source, o)
	if err != nil {
		return err
	}
	if !o.Share {
		s.leaveOutUnreadable(files)
	}
	if repository && (o.Share || o.Stream || o.Ignored) {
		if err := s.setAside(ctx, files, chosen); err != nil {
			return err
		}
		if !o.Share {
			err = s.afford(ctx, files, chosen)
		}
	}
	if err == nil {
		err = s.share(ctx, repository && history, files)
	}
	if s.leaveOut(files); err != nil || o.Share {
		return err
	}
	if err := s.stream(ctx, files); err != nil || o.Stream {
		return err
	}
	return s.copyAll(ctx, files)
}

// Original implements env.Origin.
func (s *Snapshot) Original(_ context.Context, path string) ([]byte, error) {
	root, err := os.OpenRoot(cmp.Or(s.Dir, s.Source))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Lstat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := root.Readlink(path)
		return []byte(target), err
	}
	return root.ReadFile(path)
}

// Close removes the copy.
func (s *Snapshot) Close() error { return disk.RemoveScratch(s.parent) }

// adopt turns the files of submodules into ordinary files, because the copy has no submodules.
func (s *Snapshot) adopt(ctx context.Context, g git) error {
	staged, err := g.run(ctx, nil, "ls-files", "-z", "--stage")
	if err != nil {
		return err
	}
	var modules bytes.Buffer
	for entry := range bytes.SplitSeq(staged, []byte{0}) {
		if _, name, ok := bytes.Cut(entry, []byte{'\t'}); ok && bytes.HasPrefix(entry, []byte(ModeSubmodule+" ")) {
			modules.Write(append(name, 0))
		}
	}
	if modules.Len() > 0 {
		_, err = g.run(ctx, &modules, "update-index", "-z", "--force-remove", "--stdin")
	}
	return err
}

// identity is the author and committer of the commits in copies.
var identity = madeBy("deepswe", "deepswe@localhost")
