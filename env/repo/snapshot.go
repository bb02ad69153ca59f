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
	"strings"
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
	// Head is the source's current commit; empty outside a repository or before the first commit.
	Head string
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
	// except for likely secrets, up to a budget. If that is not possible, there is a copy.
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
	s, err := takeSnapshot(ctx, dir, o)
	if err != nil && o.Stream && ctx.Err() == nil { // for example because git objects are missing
		o.Stream, o.Ignored = false, true
		s, err = takeSnapshot(ctx, dir, o)
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", dir, err)
	}
	return s, nil
}

func takeSnapshot(ctx context.Context, dir string, o Options) (*Snapshot, error) {
	w, err := find(ctx, dir)
	if err != nil {
		return nil, err
	}
	parent, err := disk.MakeScratch("", "base")
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Source: w.root, parent: parent, links: w.links, progress: progress{report: o.Progress}}
	if err := s.fill(ctx, w.repository, o); err != nil {
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

// Install adds the result of a set-up to the sandboxes of the snapshot. It does not become part of a patch.
func (s *Snapshot) Install(done env.Installed) {
	s.installed = &done
	s.Aside = append(slices.Clip(s.Aside), done.Added...)
}

// Installed reports whether a set-up's results are among what the sandboxes show.
func (s *Snapshot) Installed() bool { return s.installed != nil }

func (s *Snapshot) fill(ctx context.Context, repository bool, o Options) error {
	files, err := list(ctx, s.Source, repository)
	if err != nil {
		return err
	}
	chosen, err := newChoice(s.Source, o)
	if err != nil {
		return err
	}
	if o.Stream {
		return s.stream(ctx, repository, files, chosen)
	}
	if o.Share {
		if repository {
			if err := s.setAside(ctx, files, chosen); err != nil {
				return err
			}
		}
		s.leaveOut(files)
		return s.share(ctx, repository, files)
	}
	s.Dir = filepath.Join(s.parent, "base")
	if err := os.Mkdir(s.Dir, 0o755); err != nil {
		return err
	}
	if err := s.copyAll(ctx, files); err != nil {
		return err
	}
	if err := s.commit(ctx, repository, files.absent); err != nil || !repository || !o.Ignored {
		return err
	}
	if err := s.setAside(ctx, files, chosen); err != nil {
		return err
	}
	defer s.leaveOut(files)
	return s.copyIgnored(ctx, files, chosen)
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

// commit turns the copy into a repository: the source's last commits, then a commit of everything uncommitted.
// absent lists files that are in the source's commit but that its sparse checkout leaves out of the work tree.
func (s *Snapshot) commit(ctx context.Context, repository bool, absent []string) error {
	g := git{dir: s.Dir, env: identity}
	if _, err := g.run(ctx, nil, "init", "-q", "-b", "main", "--template=", "."); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(s.Dir, ".git", "info"), 0o755); err != nil {
		return err
	}
	if err := s.configure(); err != nil {
		return err
	}
	if repository {
		if err := s.history(ctx, g); err != nil {
			return err
		}
		if err := s.adopt(ctx, g, absent); err != nil {
			return err
		}
	}
	// -f, because a tracked file may match an ignore rule. Large files are streamed.
	if _, err := g.run(ctx, nil, "-c", "core.bigFileThreshold=8m", "add", "-A", "-f", "--", "."); err != nil {
		return err
	}
	status, err := g.run(ctx, nil, "status", "--porcelain", "-z", "--untracked-files=no")
	if err != nil || len(status) == 0 && s.Head != "" {
		return err
	}
	_, err = g.run(ctx, nil, "commit", "-q", "--allow-empty", "--no-verify", "-m", "State of the work tree at the start")
	return err
}

// configure sets a committer identity, so that the agent can commit.
func (s *Snapshot) configure() error {
	f, err := os.OpenFile(filepath.Join(s.Dir, ".git", "config"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("[user]\n\tname = deepswe\n\temail = deepswe@localhost\n")
	return errors.Join(err, f.Close())
}

// adopt turns the files of submodules into ordinary files, because the copy has no submodules, and keeps absent
// files from looking deleted.
func (s *Snapshot) adopt(ctx context.Context, g git, absent []string) error {
	staged, err := g.run(ctx, nil, "ls-files", "-z", "--stage")
	if err != nil {
		return err
	}
	var modules bytes.Buffer
	for entry := range bytes.SplitSeq(staged, []byte{0}) {
		if _, name, ok := bytes.Cut(entry, []byte{'\t'}); ok && bytes.HasPrefix(entry, []byte("160000 ")) {
			modules.Write(append(name, 0))
		}
	}
	if modules.Len() > 0 {
		if _, err := g.run(ctx, &modules, "update-index", "-z", "--force-remove", "--stdin"); err != nil {
			return err
		}
	}
	if len(absent) == 0 || s.Head == "" {
		return nil
	}
	// This fails if a file was staged and then left out. Then all absent files look deleted, which is harmless.
	paths := strings.NewReader(strings.Join(absent, "\x00") + "\x00")
	_, err = g.run(ctx, paths, "update-index", "-z", "--skip-worktree", "--stdin")
	if ctx.Err() != nil {
		return err
	}
	return nil
}

// historyDepth is how many commits of the source the agent gets.
const historyDepth = "50"

// history fetches the source's last commits. If the source has none, or lacks their objects (a partial clone
// without its remote), the result is a repository without history rather than an error.
func (s *Snapshot) history(ctx context.Context, g git) error {
	head, err := git{dir: s.Source, user: true}.line(ctx, nil, "rev-parse", "--verify", "-q", "HEAD^{commit}")
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return nil
	}
	// The process at the other end of the fetch does not inherit our settings, and would refuse another user's
	// repository.
	const upload = "git -c safe.directory='*' -c core.fsmonitor=false upload-pack"
	_, err = g.run(ctx, nil, "fetch", "-q", "--no-tags", "--no-recurse-submodules", "--update-shallow",
		"--depth", historyDepth, "--upload-pack", upload, s.Source, "HEAD")
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if rerr := os.Remove(filepath.Join(s.Dir, ".git", "FETCH_HEAD")); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		return rerr
	}
	if err != nil {
		return nil
	}
	if _, err := g.run(ctx, nil, "update-ref", "HEAD", head); err != nil {
		return err
	}
	if _, err := g.run(ctx, nil, "read-tree", "HEAD"); err != nil {
		return err
	}
	s.Head = head
	return nil
}

// identity is the author and committer of the commits in copies.
var identity = []string{
	"GIT_AUTHOR_NAME=deepswe", "GIT_AUTHOR_EMAIL=deepswe@localhost",
	"GIT_COMMITTER_NAME=deepswe", "GIT_COMMITTER_EMAIL=deepswe@localhost",
}
