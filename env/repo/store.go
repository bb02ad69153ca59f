package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// store is a bare repository with two commits, base and head, that hold the changed files only. They are written
// through one fast-import process, whose paths may be any bytes and which never touches a work tree.
type store struct {
	git    git
	cancel context.CancelFunc
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr *bytes.Buffer
	ended  bool
	mark   int
	// before and after are the file commands of the two commits.
	before, after bytes.Buffer
}

func newStore(ctx context.Context, dir string) (*store, error) {
	g := git{dir: dir}
	if _, err := g.run(ctx, nil, "init", "-q", "--template=", "--bare", "store.git"); err != nil {
		return nil, err
	}
	g.env = []string{"GIT_DIR=" + filepath.Join(dir, "store.git")}
	path, err := exec.LookPath("git")
	if err != nil {
		return nil, ErrNoGit
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &store{git: g, cancel: cancel, stderr: new(bytes.Buffer)}
	s.cmd = exec.CommandContext(ctx, path,
		append(append([]string{}, pins...), "-c", "pack.compression=0", "fast-import", "--quiet", "--done")...)
	s.cmd.Dir = dir
	s.cmd.Env = append(g.environ(), g.env...)
	s.cmd.Stderr = s.stderr
	OwnGroup(s.cmd)
	s.cmd.WaitDelay = 5 * time.Second
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		cancel()
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	return s, nil
}

// add stores both sides of one file.
func (s *store) add(ctx context.Context, f content) error {
	if err := s.put(f); err != nil {
		return s.failed(ctx, err)
	}
	return nil
}

func (s *store) put(f content) error {
	if f.before != nil {
		if err := s.blob(f.before); err != nil {
			return err
		}
		fmt.Fprintf(&s.before, "M %s :%d %s\n", f.modeBefore, s.mark, quote(f.path))
	}
	if f.after != nil {
		if err := s.blob(f.after); err != nil {
			return err
		}
		fmt.Fprintf(&s.after, "M %s :%d %s\n", f.modeAfter, s.mark, quote(f.path))
	}
	return nil
}

func (s *store) blob(data []byte) error {
	s.mark++
	if _, err := fmt.Fprintf(s.in, "blob\nmark :%d\ndata %d\n", s.mark, len(data)); err != nil {
		return err
	}
	if _, err := s.in.Write(data); err != nil {
		return err
	}
	_, err := io.WriteString(s.in, "\n")
	return err
}

// diff ends the import and compares the two commits.
func (s *store) diff(ctx context.Context) ([]byte, error) {
	const who = "deepswe <deepswe@localhost> 0 +0000"
	for _, c := range []struct {
		ref  string
		tree *bytes.Buffer
	}{{"refs/deepswe/base", &s.before}, {"refs/deepswe/head", &s.after}} {
		if _, err := fmt.Fprintf(s.in, "commit %s\ncommitter %s\ndata 0\ndeleteall\n%s\n", c.ref, who, c.tree); err != nil {
			return nil, s.failed(ctx, err)
		}
	}
	_, err := io.WriteString(s.in, "done\n")
	if err = errors.Join(err, s.end()); err != nil {
		return nil, s.failed(ctx, err)
	}
	return s.git.run(ctx, nil, "diff-tree", "-r", "-p", "--binary", "--no-ext-diff", "--no-textconv",
		"--no-renames", "--no-color", "--src-prefix=a/", "--dst-prefix=b/", "refs/deepswe/base", "refs/deepswe/head")
}

// failed explains why the import ended: its own message comes before the broken pipe that we see.
func (s *store) failed(ctx context.Context, err error) error {
	err = errors.Join(err, s.end())
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("git fast-import: %w: %s", err, firstLines(s.stderr.String(), 3))
}

// end waits for the import. Once is enough.
func (s *store) end() error {
	if s.ended {
		return nil
	}
	s.ended = true
	return errors.Join(s.in.Close(), s.cmd.Wait())
}

// abort ends the import without a result. The process's own complaint about that is of no interest.
func (s *store) abort() {
	s.cancel()
	_ = s.end()
}

// quote writes a path as fast-import reads it: in double quotes, with octal escapes for what would not survive.
func quote(path string) string {
	b := []byte{'"'}
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20 || c == 0x7f:
			b = append(b, '\\')
			octal := strconv.FormatUint(uint64(c), 8)
			b = append(b, "000"[len(octal):]...)
			b = append(b, octal...)
		default:
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}
