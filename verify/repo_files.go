package verify

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepswe/env"
	"deepswe/env/guest"
)

// file is one path of the repository with its content. An empty kind means that the path does not exist. Paths that are
// neither files nor links are never changed.
type file struct {
	name   string // relative to the repository
	kind   env.Kind
	mode   fs.FileMode
	data   []byte
	target string // of a symbolic link
}

// maxFile is the maximum size of a file that grading copies. Patches contain no larger ones.
const maxFile = 64 << 20

// readFile reads a path of the repository in the sandbox. If it cannot be read, its kind is KindOther.
func readFile(ctx context.Context, sb env.Sandbox, name string) (file, error) {
	full := path.Join(sb.Dir(), name)
	data, info, err := sb.Read(ctx, full, env.ReadOptions{Limit: maxFile, NoFollow: true})
	switch {
	case err == nil && info.Size > int64(len(data)):
		return file{name: name, kind: env.KindOther}, nil
	case err == nil:
		return file{name: name, kind: env.KindFile, mode: info.Mode, data: data}, nil
	case env.IsInfrastructure(ctx, err):
		return file{}, fmt.Errorf("read %s: %w", name, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, guest.ErrNotDirectory):
		return file{name: name}, nil
	case !errors.Is(err, guest.ErrNotRegular):
		return file{name: name, kind: env.KindOther}, nil
	}
	beside, err := sb.List(ctx, path.Dir(full), env.ListOptions{Hidden: true})
	if err != nil {
		return file{}, fmt.Errorf("read %s: %w", name, err)
	}
	for _, e := range beside.Entries {
		if e.Path == full && e.Kind == env.KindSymlink {
			return file{name: name, kind: env.KindSymlink, target: e.Target}, nil
		}
	}
	return file{name: name, kind: env.KindOther}, nil
}

// writeFiles replaces paths of the repository in the sandbox by the given files, whatever is there.
func writeFiles(ctx context.Context, sb env.Sandbox, files []file) error {
	files = slices.DeleteFunc(slices.Clone(files), func(f file) bool {
		return f.kind == env.KindDir || f.kind == env.KindOther
	})
	if len(files) == 0 {
		return nil
	}
	if err := remove(ctx, sb, files); err != nil {
		return err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: int64(f.mode.Perm()), ModTime: time.Now()}
		switch f.kind {
		case env.KindFile:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(f.data))
		case env.KindSymlink:
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.target
		default:
			continue
		}
		if err := w.WriteHeader(h); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("write files: %w", err)
	}
	if err := sb.Unpack(ctx, sb.Dir(), &archive); err != nil {
		return fmt.Errorf("write files: %w", err)
	}
	return nil
}

// remove removes paths, a few thousand at a time, because the length of a command line is limited.
func remove(ctx context.Context, sb env.Sandbox, files []file) error {
	const most = 64 << 10
	for len(files) > 0 {
		var line strings.Builder
		line.WriteString("rm -rf --")
		n := 0
		for ; n < len(files) && (n == 0 || line.Len() < most); n++ {
			line.WriteString(" " + env.ShellQuote(files[n].name))
		}
		files = files[n:]
		r, err := sb.Run(ctx, env.Command{Line: line.String(), Timeout: applyTimeout})
		if err != nil {
			return fmt.Errorf("remove files: %w", err)
		}
		if r.ExitCode != 0 {
			return fmt.Errorf("remove files: %s", output(r))
		}
	}
	return nil
}

// store writes the file below a directory on the host.
func (f file) store(root *os.Root) error {
	switch f.kind {
	case "":
		return nil
	case env.KindDir:
		return root.MkdirAll(f.name, 0o755)
	}
	if err := root.MkdirAll(filepath.Dir(f.name), 0o755); err != nil {
		return err
	}
	if f.kind == env.KindSymlink {
		return root.Symlink(f.target, f.name)
	}
	return root.WriteFile(f.name, f.data, f.mode.Perm())
}

// stored reads a file that store has written.
func stored(root *os.Root, name string) (file, error) {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return file{name: name}, nil
	case err != nil:
		return file{}, err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(name)
		return file{name: name, kind: env.KindSymlink, target: target}, err
	case info.IsDir():
		return file{name: name, kind: env.KindDir}, nil
	}
	data, err := root.ReadFile(name)
	return file{name: name, kind: env.KindFile, mode: info.Mode(), data: data}, err
}

// equal reports whether two descriptions of a path are the same.
func (f file) equal(g file) bool {
	return f.kind == g.kind && f.target == g.target && f.mode.Perm() == g.mode.Perm() && bytes.Equal(f.data, g.data)
}

// output returns what a command printed, errors first.
func output(r env.Result) string {
	return strings.TrimSpace(string(slices.Concat(r.Stderr.Head, r.Stderr.Tail, r.Stdout.Head, r.Stdout.Tail)))
}
