package tools_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"deepswe/env"
	"deepswe/env/guest"
	"deepswe/tools"
)

// dirSandbox is a small sandbox over a real directory, which follows the contract of env.Sandbox as far as the tools
// rely on it.
type dirSandbox struct {
	dir string
	// before is called with the path before a write looks at the file, which it may change.
	before func(path string)
	// broken, if set, is the error of every call.
	broken error
	// result, if set, is the result of every command.
	result *env.Result
	ran    []env.Command
}

func newSandbox(t testing.TB, files map[string]string) *dirSandbox {
	t.Helper()
	s := &dirSandbox{dir: t.TempDir()}
	for name, content := range files {
		path := filepath.Join(s.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *dirSandbox) Dir() string { return s.dir }

func (s *dirSandbox) Run(ctx context.Context, c env.Command) (env.Result, error) {
	s.ran = append(s.ran, c)
	if s.broken != nil || s.result != nil {
		if s.result == nil {
			return env.Result{}, s.broken
		}
		return *s.result, s.broken
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", c.Line)
	cmd.Dir = s.dir
	cmd.Stdin = bytes.NewReader(c.Stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	r := env.Result{ExitCode: cmd.ProcessState.ExitCode(), Stdout: output(stdout.Bytes()), Stderr: output(stderr.Bytes())}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		r.TimedOut = true
	} else if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		return r, err
	}
	return r, nil
}

// output keeps 64 KiB of each end, as a sandbox does by default.
func output(b []byte) env.Output {
	const keep = 64 << 10
	o := env.Output{Head: b, Size: int64(len(b))}
	if len(b) > keep {
		o.Head, o.Tail = b[:keep], b[keep:]
	}
	if len(o.Tail) > keep {
		o.Tail = o.Tail[len(o.Tail)-keep:]
	}
	return o
}

func version(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// regular reads a whole regular file.
func (s *dirSandbox) regular(path string) ([]byte, error) {
	if s.broken != nil {
		return nil, s.broken
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		return nil, guest.ErrNotDirectory
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, guest.ErrIsDirectory
	case !info.Mode().IsRegular():
		return nil, guest.ErrNotRegular
	}
	return os.ReadFile(path)
}

func (s *dirSandbox) Read(_ context.Context, path string, o env.ReadOptions) ([]byte, env.FileInfo, error) {
	data, err := s.regular(path)
	if err != nil {
		return nil, env.FileInfo{}, err
	}
	info := env.FileInfo{Path: path, Kind: guest.KindFile, Size: int64(len(data)), Version: version(data)}
	if o.Limit > 0 && int64(len(data)) > o.Limit {
		data = data[:o.Limit]
	}
	return data, info, nil
}

func (s *dirSandbox) Write(_ context.Context, path string, data []byte, o env.WriteOptions) (env.FileInfo, error) {
	if s.before != nil {
		s.before(path)
	}
	old, err := s.regular(path)
	switch {
	case o.Create && err == nil:
		return env.FileInfo{}, fs.ErrExist
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return env.FileInfo{}, err
	case o.IfVersion != "" && version(old) != o.IfVersion:
		return env.FileInfo{}, guest.ErrChanged
	}
	if o.Parents {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return env.FileInfo{}, err
		}
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return env.FileInfo{}, err
	}
	return env.FileInfo{Path: path, Kind: guest.KindFile, Size: int64(len(data)), Version: version(data)}, nil
}

func (s *dirSandbox) List(_ context.Context, dir string, o env.ListOptions) (env.Listing, error) {
	var l env.Listing
	if s.broken != nil {
		return l, s.broken
	}
	if info, err := os.Stat(dir); err != nil {
		return l, err
	} else if !info.IsDir() {
		return l, guest.ErrNotDirectory
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if !o.Hidden && strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if o.Limit > 0 && len(l.Entries) == o.Limit {
			l.Truncated = true
			return fs.SkipAll
		}
		info := env.FileInfo{Path: path, Kind: guest.KindFile}
		switch {
		case d.IsDir():
			info.Kind = guest.KindDir
		case d.Type()&fs.ModeSymlink != 0:
			info.Kind = guest.KindSymlink
			info.Target, _ = os.Readlink(path)
		case !d.Type().IsRegular():
			info.Kind = guest.KindOther
		}
		l.Entries = append(l.Entries, info)
		if depth := strings.Count(strings.TrimPrefix(path, dir), "/"); d.IsDir() && depth >= max(1, o.Depth) {
			return fs.SkipDir
		}
		return nil
	})
	return l, err
}

func (s *dirSandbox) Search(_ context.Context, q env.Query) (env.Matches, error) {
	var m env.Matches
	if s.broken != nil {
		return m, s.broken
	}
	if _, err := os.Stat(q.Path); err != nil {
		return m, err
	}
	find := func(line []byte) int { return bytes.Index(line, []byte(q.Term)) }
	if q.Regexp {
		re, err := regexp.Compile(q.Term)
		if err != nil {
			return m, fs.ErrInvalid
		}
		find = func(line []byte) int {
			if at := re.FindIndex(line); at != nil {
				return at[0]
			}
			return -1
		}
	}
	err := filepath.WalkDir(q.Path, func(path string, d fs.DirEntry, err error) error {
		hidden := path != q.Path && strings.HasPrefix(d.Name(), ".")
		switch {
		case err != nil:
			return err
		case d.IsDir() && hidden:
			return fs.SkipDir
		case !d.Type().IsRegular() || hidden:
			return nil
		case len(q.Names) > 0 && !slices.ContainsFunc(q.Names,
			func(n string) bool { ok, _ := filepath.Match(n, d.Name()); return ok }):
			return nil
		}
		return searchFile(&m, q, path, find)
	})
	return m, err
}

func searchFile(m *env.Matches, q env.Query, path string, find func(line []byte) int) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if bytes.IndexByte(data[:min(len(data), 8<<10)], 0) >= 0 {
		m.Binary++
		return nil
	}
	found := false
	for i, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		at := find(line)
		if at < 0 {
			continue
		}
		found = true
		m.Total++
		if len(m.Matches) == q.MaxMatches {
			continue
		}
		match := env.Match{Path: path, Line: i + 1, Text: line}
		if len(line) > q.MaxLine {
			match.Cut = true
			begin := max(0, min(at, len(line)-q.MaxLine))
			match.Text = line[begin : begin+q.MaxLine]
		}
		m.Matches = append(m.Matches, match)
	}
	if found {
		m.Files++
	}
	return nil
}

// call runs a tool, and fails the test on an error.
func call(t testing.TB, set *tools.Set, sb tools.Sandbox, tool string, args map[string]string) tools.Result {
	t.Helper()
	r, err := set.Run(t.Context(), sb, tools.Call{Name: tool, Args: args})
	if err != nil {
		t.Fatalf("%s(%v): %v", tool, args, err)
	}
	return r
}

func (s *dirSandbox) read(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
