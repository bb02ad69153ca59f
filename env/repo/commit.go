package repo

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// commit makes the copy a repository: the source's last commits, then one with everything that was not committed. The
// absent files are in the source's commit, and not in its work tree because it does not want them there.
func (s *Snapshot) commit(ctx context.Context, repository bool, absent []string) error {
	g := git{dir: s.Dir, env: identity}
	if _, err := g.run(ctx, nil, "init", "-q", "-b", "main", "."); err != nil {
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
	// Forced: what was copied is what counts, and a tracked file may well match an ignore rule. Large files are streamed.
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

// configure sets a committer identity, so that an agent can commit.
func (s *Snapshot) configure() error {
	f, err := os.OpenFile(filepath.Join(s.Dir, ".git", "config"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("[user]\n\tname = deepswe\n\temail = deepswe@localhost\n")
	return errors.Join(err, f.Close())
}

// adopt makes the files of submodules files of the copy, which has no submodules, and keeps what a sparse checkout left
// out from looking deleted.
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
	// A file that was staged and then left out is not in the commit. Then all of them look deleted, which is no loss.
	paths := strings.NewReader(strings.Join(absent, "\x00") + "\x00")
	_, err = g.run(ctx, paths, "update-index", "-z", "--skip-worktree", "--stdin")
	if ctx.Err() != nil {
		return err
	}
	return nil
}

// historyDepth is how many commits the agent may look back on.
const historyDepth = "50"

// history brings the source's last commits. A source that has none, or whose objects cannot be had (a partial clone
// without its remote), gives a repository without history rather than an error.
func (s *Snapshot) history(ctx context.Context, g git) error {
	out, err := git{dir: s.Source, user: true}.run(ctx, nil, "rev-parse", "--verify", "-q", "HEAD^{commit}")
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return nil
	}
	head := strings.TrimSpace(string(out))
	// The other end of the fetch does not inherit our settings, and would refuse a repository of another user.
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

// identity signs the commits that we make in copies.
var identity = []string{
	"GIT_AUTHOR_NAME=deepswe", "GIT_AUTHOR_EMAIL=deepswe@localhost",
	"GIT_COMMITTER_NAME=deepswe", "GIT_COMMITTER_EMAIL=deepswe@localhost",
}
