//go:build linux

package inside

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"deepswe/env/guest"
)

// writing is one write under way.
//
// The new content is complete on disk before the file changes. Then it takes the file's place in one step. Where that
// would lose what belongs to the file (other hard links to it, another owner) or where the directory does not allow it,
// the content is copied into the file instead, with the room for it allocated before. A file that its user may not
// write is refused, although its directory would let it be replaced: who made it read-only meant it.
type writing struct {
	call    *guest.Call
	options guest.WriteOptions
	path    string // as asked for
	target  string // where its symbolic links lead; the links stay

	old    fs.FileInfo // nil when there is no file yet
	staged *os.File
	nearby bool // the staged file lies where it can be renamed
}

func (s *server) write(c *guest.Call, path string, o guest.WriteOptions) (guest.Message, error) {
	w := &writing{call: c, options: o, path: path}
	if err := w.examine(); err != nil {
		return nil, err
	}
	if o.Parents {
		if err := os.MkdirAll(filepath.Dir(w.target), 0o755); err != nil {
			return nil, err
		}
	}
	if err := w.stage(); err != nil {
		return nil, err
	}
	defer w.discard()
	hash := sha256.New()
	size, err := io.Copy(io.MultiWriter(w.staged, hash), c.Body())
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	// Two writes that saw the same version must not both succeed.
	s.writes.Lock()
	defer s.writes.Unlock()
	if err := w.examine(); err != nil {
		return nil, err
	}
	mode, err := w.commit(size)
	if err != nil {
		return nil, err
	}
	return &guest.FileInfo{Path: path, Kind: guest.KindFile, Mode: mode, Size: size, Version: hex.EncodeToString(hash.Sum(nil))}, nil
}

// examine looks at what is there and refuses what the options or the kind of file forbid.
func (w *writing) examine() (err error) {
	if w.target, err = follow(w.path); err != nil {
		return err
	}
	w.old, err = os.Lstat(w.target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.old = nil
		if w.options.IfVersion != "" {
			return fmt.Errorf("write %s: it is gone: %w", w.path, guest.ErrChanged)
		}
		if w.options.Create && w.target != w.path {
			return fmt.Errorf("write %s: there is a symbolic link: %w", w.path, fs.ErrExist)
		}
		return nil
	case err != nil:
		return err
	case w.options.Create:
		return fmt.Errorf("write %s: %w", w.path, fs.ErrExist)
	}
	if err := regular(w.path, w.old); err != nil {
		return err
	}
	if synthetic(w.target) {
		return fmt.Errorf("write %s: the kernel's: %w", w.path, guest.ErrNotRegular)
	}
	if err := writable(w.target); err != nil {
		return err
	}
	return w.compare()
}

// writable asks the kernel, without changing anything. A program that is running is replaced like any other file.
func writable(path string) error {
	f, err := open(path, os.O_WRONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW)
	if errors.Is(err, syscall.ETXTBSY) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

func (w *writing) compare() error {
	if w.options.IfVersion == "" {
		return nil
	}
	f, info, err := openRegular(w.target, true)
	if err != nil {
		return err
	}
	defer f.Close()
	sum, _, err := version(w.call.Context(), f, buffer(info.Size()), mostHashed)
	if err != nil {
		return err
	}
	if sum != w.options.IfVersion {
		return fmt.Errorf("write %s: %w", w.path, guest.ErrChanged)
	}
	return nil
}

// stage opens a new file for the content: beside the target, or where temporary files go.
func (w *writing) stage() (err error) {
	const oPath = 0x200000
	dir, err := open(filepath.Dir(w.target), oPath|syscall.O_DIRECTORY)
	if err != nil {
		return err
	}
	dir.Close() // it is there, and not by way of a process
	w.staged, err = os.CreateTemp(filepath.Dir(w.target), ".deepswe-*")
	if err == nil {
		w.nearby = true
		return nil
	}
	if w.old == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return &fs.PathError{Op: "create", Path: w.path, Err: errors.Unwrap(err)}
	}
	w.staged, err = os.CreateTemp("", ".deepswe-*")
	return err
}

func (w *writing) discard() {
	w.staged.Close()
	os.Remove(w.staged.Name()) // gone already when it took the file's place
}

// commit puts the staged content into the file's place and returns its mode.
func (w *writing) commit(size int64) (fs.FileMode, error) {
	if w.old == nil {
		mode := w.options.Mode.Perm()
		if mode == 0 {
			mode = 0o644
		}
		return mode, w.create(mode)
	}
	mode := w.old.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	if w.nearby && w.replaceable() {
		if err := w.staged.Chmod(mode); err != nil {
			return 0, err
		}
		err := os.Rename(w.staged.Name(), w.target)
		if err == nil || !errors.Is(err, syscall.EBUSY) { // busy: something is mounted on the very file
			return mode.Perm(), err
		}
	}
	return mode.Perm(), w.overwrite(size)
}

// create gives the staged file its name, unless the name was taken meanwhile.
func (w *writing) create(mode fs.FileMode) error {
	if err := w.staged.Chmod(mode); err != nil {
		return err
	}
	err := os.Link(w.staged.Name(), w.target)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Rename(w.staged.Name(), w.target) // a file system without hard links
}

// replaceable reports whether a new file in the old one's place loses nothing but the old content.
func (w *writing) replaceable() bool {
	staged, err := w.staged.Stat()
	if err != nil {
		return false
	}
	is, was := staged.Sys().(*syscall.Stat_t), w.old.Sys().(*syscall.Stat_t)
	return was.Nlink == 1 && is.Uid == was.Uid && is.Gid == was.Gid
}

// overwrite copies the staged content into the file itself.
func (w *writing) overwrite(size int64) error {
	f, err := open(w.target, os.O_WRONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer f.Close()
	if grown := size - w.old.Size(); grown > 0 {
		err := syscall.Fallocate(int(f.Fd()), 0, w.old.Size(), grown)
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			_ = f.Truncate(w.old.Size())
			return &fs.PathError{Op: "write", Path: w.path, Err: err}
		}
	}
	if _, err := w.staged.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(f, w.staged); err != nil {
		return err
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	return f.Close()
}

// follow resolves the symbolic links that a path ends in, like a shell's redirection does: the last one may lead to a
// file that is not there yet.
func follow(path string) (string, error) {
	for range 40 {
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // no link, or the next step will say what is wrong
		}
		if !filepath.IsAbs(target) {
			// Not cleaned: ".." after a link to a directory is the kernel's business.
			target = filepath.Dir(path) + "/" + target
		}
		path = target
	}
	return "", &fs.PathError{Op: "write", Path: path, Err: syscall.ELOOP}
}
