package repo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
)

// store is a bare repository with two commits, base and head, that contain only the changed files. Both are written
// by one fast-import process, which accepts any bytes in paths and never touches a work tree.
type store struct {
	git git
	// in keeps its first error until it is flushed.
	in     *bufio.Writer
	stderr bytes.Buffer
	// end ends the import and waits for it; abort kills it if it is still running.
	end   func() error
	abort func()
	mark  int
	// commits are the fast-import commands for the files of base and head.
	commits [2]bytes.Buffer
}

func newStore(ctx context.Context, dir string) (*store, error) {
	s := &store{git: git{dir: dir}}
	if _, err := s.git.run(ctx, nil, "init", "-q", "--template=", "--bare", "store.git"); err != nil {
		return nil, err
	}
	s.git.env = []string{"GIT_DIR=" + filepath.Join(dir, "store.git")}
	ctx, cancel := context.WithCancel(ctx)
	cmd, err := s.git.command(ctx, "-c", "pack.compression=0", "fast-import", "--quiet", "--done")
	if err != nil {
		cancel()
		return nil, err
	}
	cmd.Stderr = &s.stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	s.in = bufio.NewWriter(in)
	s.end = sync.OnceValue(func() error { return errors.Join(in.Close(), cmd.Wait()) })
	s.abort = func() {
		cancel()
		_ = s.end() // it fails if it was aborted, which does not matter
	}
	return s, nil
}

// add stores both sides of one file.
func (s *store) add(f content) {
	for i, side := range f.sides {
		if side == nil {
			continue
		}
		s.mark++
		fmt.Fprintf(s.in, "blob\nmark :%d\ndata %d\n", s.mark, len(side.data))
		_, _ = s.in.Write(side.data)
		fmt.Fprintln(s.in)
		fmt.Fprintf(&s.commits[i], "M %s :%d %s\n", side.mode, s.mark, quote(f.path))
	}
}

// diff ends the import and compares the two commits.
func (s *store) diff(ctx context.Context) ([]byte, error) {
	refs := []string{"refs/deepswe/base", "refs/deepswe/head"}
	for i, ref := range refs {
		const who = "deepswe <deepswe@localhost> 0 +0000"
		fmt.Fprintf(s.in, "commit %s\ncommitter %s\ndata 0\ndeleteall\n%s\n", ref, who, &s.commits[i])
	}
	fmt.Fprintln(s.in, "done")
	if err := errors.Join(s.in.Flush(), s.end()); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("git fast-import: %w: %s", err, firstLines(s.stderr.String(), 3))
	}
	return s.git.run(ctx, nil, "diff-tree", "-r", "-p", "--binary", "--no-ext-diff", "--no-textconv",
		"--no-renames", "--no-color", "--src-prefix=a/", "--dst-prefix=b/", refs[0], refs[1])
}

// quote quotes a path for fast-import, with octal escapes for control characters.
func quote(path string) string {
	b := []byte{'"'}
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20 || c == 0x7f:
			b = fmt.Appendf(b, "\\%03o", c)
		default:
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}
