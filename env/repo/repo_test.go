package repo

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/env"
)

// dirTree is a sandbox's repository in a directory of the test.
type dirTree struct{ dir string }

func (d dirTree) Dir() string { return d.dir }

func (d dirTree) Tree(_ context.Context, root string, _ env.TreeOptions) ([]env.FileInfo, error) {
	var files []env.FileInfo
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if e.Name() == ".git" {
				return fs.SkipDir
			}
			return nil
		}
		info, err := describe(path)
		if err != nil {
			return err
		}
		info.Path, err = filepath.Rel(root, path)
		files = append(files, info)
		return err
	})
	slices.SortFunc(files, func(a, b env.FileInfo) int { return strings.Compare(a.Path, b.Path) })
	return files, err
}

func (d dirTree) Read(_ context.Context, path string, o env.ReadOptions) ([]byte, env.FileInfo, error) {
	info, err := describe(path)
	if err != nil {
		return nil, info, err
	}
	data, err := os.ReadFile(path)
	if o.Limit > 0 && int64(len(data)) > o.Limit {
		data = data[:o.Limit]
	}
	return data, info, err
}

func describe(path string) (env.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return env.FileInfo{}, err
	}
	f := env.FileInfo{Path: path, Kind: env.KindFile, Mode: info.Mode().Perm(), Size: info.Size()}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		f.Kind = env.KindSymlink
		f.Target, err = os.Readlink(path)
	case !info.Mode().IsRegular():
		f.Kind = env.KindOther
	default:
		var data []byte
		data, err = os.ReadFile(path)
		f.Version = version(data)
	}
	return f, err
}

// write makes files below dir. A name that ends in "@" is a link to its content; one that ends in "*" is executable.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, data := range files {
		mode := fs.FileMode(0o644)
		if strings.HasSuffix(name, "*") {
			name, mode = strings.TrimSuffix(name, "*"), 0o755
		}
		link := strings.HasSuffix(name, "@")
		path := filepath.Join(dir, strings.TrimSuffix(name, "@"))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(path)
		var err error
		if link {
			err = os.Symlink(data, path)
		} else {
			err = errors.Join(os.WriteFile(path, []byte(data), mode), os.Chmod(path, mode))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// contents is the inverse of write.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := dirTree{dir}.Tree(t.Context(), dir, env.TreeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, f := range files {
		name := f.Path
		switch {
		case f.Kind == env.KindSymlink:
			out[name+"@"] = f.Target
			continue
		case f.Mode&0o100 != 0:
			name += "*"
		}
		data, err := os.ReadFile(filepath.Join(dir, f.Path))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(data)
	}
	return out
}

// commit makes dir a repository with all its files committed.
func commit(t *testing.T, dir string) {
	t.Helper()
	g := git{dir: dir, env: identity}
	for _, args := range [][]string{{"init", "-q", "-b", "main", "--template=", "."}, {"add", "-A"},
		{"commit", "-q", "--allow-empty", "-m", "start"}} {
		if _, err := g.run(t.Context(), nil, args...); err != nil {
			t.Fatal(err)
		}
	}
}

// start takes a snapshot of source, and gives an agent its own copy.
func start(t *testing.T, source string) (*Snapshot, *Base, dirTree) {
	t.Helper()
	s, err := Take(t.Context(), source, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	work := dirTree{filepath.Join(t.TempDir(), "testbed")}
	if err := os.CopyFS(work.dir, os.DirFS(s.Dir)); err != nil {
		t.Fatal(err)
	}
	b, err := Record(t.Context(), work, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, b, work
}

// shell runs a script in dir, and returns its output.
func shell(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_TEMPLATE_DIR=") // no sample hooks
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}
