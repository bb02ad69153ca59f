package sandboxtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strings"
	"sync"

	"deepswe/env"
	"deepswe/env/guest"
)

// FakeFile is a file of a [Fake]: a symbolic link when Target is set.
type FakeFile struct {
	Data   []byte
	Mode   fs.FileMode
	Target string
}

// Fake is a sandbox in memory, for tests of what stands on top of one. Its files lie in a map, directories are there as
// soon as something is in them, and commands are answered by OnRun. It is safe for concurrent use.
type Fake struct {
	// OnRun answers commands; a nil one answers every command with an empty success.
	OnRun func(ctx context.Context, c env.Command) (env.Result, error)

	dir string

	mu     sync.Mutex
	files  map[string]FakeFile // by absolute path
	closed bool
}

var _ env.Sandbox = (*Fake)(nil)

// NewFake returns a sandbox over /testbed. The files' paths are relative to it, or absolute.
func NewFake(files map[string]string) *Fake {
	f := &Fake{dir: "/testbed", files: map[string]FakeFile{}}
	for name, content := range files {
		f.files[f.path(name)] = FakeFile{Data: []byte(content), Mode: 0o644}
	}
	return f
}

// Put sets a file as it is, whatever there was.
func (f *Fake) Put(name string, file FakeFile) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[f.path(name)] = file
}

// Files returns what there is, by absolute path.
func (f *Fake) Files() map[string]FakeFile {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.files)
}

func (f *Fake) path(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(f.dir, name)
}

// enter locks the fake for one call, unless there is nothing to call any more.
func (f *Fake) enter(ctx context.Context, call string) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", call, err)
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, fmt.Errorf("%s: %w: %w", call, env.ErrInfrastructure, guest.ErrClosed)
	}
	return f.mu.Unlock, nil
}

// Dir is /testbed.
func (f *Fake) Dir() string { return f.dir }

// Run asks OnRun.
func (f *Fake) Run(ctx context.Context, c env.Command) (env.Result, error) {
	leave, err := f.enter(ctx, "run")
	if err != nil {
		return env.Result{}, err
	}
	leave()
	if f.OnRun == nil {
		return env.Result{}, nil
	}
	return f.OnRun(ctx, c)
}

// Original answers env.ErrUnsupported: a fake has no image.
func (f *Fake) Original(_ context.Context, path string) ([]byte, error) {
	return nil, fmt.Errorf("original %s: %w", path, env.ErrUnsupported)
}

// Ping fails when the fake is closed.
func (f *Fake) Ping(ctx context.Context) error {
	leave, err := f.enter(ctx, "ping")
	if err == nil {
		leave()
	}
	return err
}

// Close makes every later call fail.
func (f *Fake) Close(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// isDir reports whether something lies below a path.
func (f *Fake) isDir(p string) bool {
	if p == "/" || p == f.dir {
		return true
	}
	for name := range f.files {
		if strings.HasPrefix(name, p+"/") {
			return true
		}
	}
	return false
}

// underFile reports whether one of a path's parents is a file.
func (f *Fake) underFile(p string) bool {
	for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
		if _, ok := f.files[dir]; ok {
			return true
		}
	}
	return false
}

// find follows the links that a path ends in, and returns the file at their end.
func (f *Fake) find(p string, follow bool) (string, FakeFile, error) {
	for range 40 {
		file, ok := f.files[p]
		switch {
		case !ok && f.isDir(p):
			return p, file, fmt.Errorf("%s: %w", p, guest.ErrIsDirectory)
		case !ok && f.underFile(p):
			return p, file, fmt.Errorf("%s: %w", p, guest.ErrNotDirectory)
		case !ok:
			return p, file, fmt.Errorf("%s: %w", p, fs.ErrNotExist)
		case file.Target == "":
			return p, file, nil
		case !follow:
			return p, file, fmt.Errorf("%s: %w", p, guest.ErrNotRegular)
		}
		if p = path.Join(path.Dir(p), file.Target); path.IsAbs(file.Target) {
			p = path.Clean(file.Target)
		}
	}
	return p, FakeFile{}, fmt.Errorf("%s: too many links: %w", p, fs.ErrInvalid)
}

func describe(p string, file FakeFile) env.FileInfo {
	if file.Target != "" {
		return env.FileInfo{Path: p, Kind: guest.KindSymlink, Mode: 0o777, Size: int64(len(file.Target)), Target: file.Target}
	}
	h := sha256.Sum256(file.Data)
	return env.FileInfo{Path: p, Kind: guest.KindFile, Mode: file.Mode.Perm(), Size: int64(len(file.Data)), Version: hex.EncodeToString(h[:])}
}

// Read returns a file's bytes.
func (f *Fake) Read(ctx context.Context, name string, o env.ReadOptions) ([]byte, env.FileInfo, error) {
	leave, err := f.enter(ctx, "read")
	if err != nil {
		return nil, env.FileInfo{}, err
	}
	defer leave()
	asked := f.path(name)
	_, file, err := f.find(asked, !o.NoFollow)
	if err == nil && o.Offset < 0 {
		err = fmt.Errorf("offset %d: %w", o.Offset, fs.ErrInvalid)
	}
	if err != nil {
		return nil, env.FileInfo{}, fmt.Errorf("read %w", err)
	}
	if o.Limit <= 0 {
		o.Limit = 64 << 20
	}
	part := file.Data[min(o.Offset, int64(len(file.Data))):]
	return bytes.Clone(part[:min(o.Limit, int64(len(part)))]), describe(asked, file), nil
}

// Write replaces or creates a file.
func (f *Fake) Write(ctx context.Context, name string, data []byte, o env.WriteOptions) (env.FileInfo, error) {
	leave, err := f.enter(ctx, "write")
	if err != nil {
		return env.FileInfo{}, err
	}
	defer leave()
	asked := f.path(name)
	_, occupied := f.files[asked]
	target, old, err := f.find(asked, true)
	exists := err == nil
	switch {
	case o.Create && (exists || occupied || errors.Is(err, guest.ErrIsDirectory)):
		return env.FileInfo{}, fmt.Errorf("write %s: %w", asked, fs.ErrExist)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return env.FileInfo{}, fmt.Errorf("write %w", err)
	case o.IfVersion != "" && (!exists || describe(target, old).Version != o.IfVersion):
		return env.FileInfo{}, fmt.Errorf("write %s: %w", asked, guest.ErrChanged)
	case !exists && !o.Parents && !f.isDir(path.Dir(target)):
		return env.FileInfo{}, fmt.Errorf("write %s: %w", asked, fs.ErrNotExist)
	case exists && old.Mode&0o200 == 0:
		return env.FileInfo{}, fmt.Errorf("write %s: %w", asked, fs.ErrPermission)
	}
	mode := old.Mode
	if !exists {
		if mode = o.Mode; mode == 0 {
			mode = 0o644
		}
	}
	f.files[target] = FakeFile{Data: append([]byte{}, data...), Mode: mode}
	return describe(asked, f.files[target]), nil
}
