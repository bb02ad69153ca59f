//go:build linux

package inside

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"deepswe/env/guest"
)

// unpacking extracts a tar stream below one directory. [os.Root] resolves every name, so that neither ".." nor a
// symbolic link, whether it existed before or is part of the stream, leads outside.
type unpacking struct {
	root *os.Root
	made string // the last directory created, usually that of the next file too
	// dirs are directories whose modes and times are set at the end, when nothing more is written into them.
	dirs []*tar.Header
}

func unpack(c *guest.Call, dir string) (guest.Message, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	u := unpacking{root: root}
	content, err := inflated(c.Body())
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	archive := tar.NewReader(content)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		if err := u.extract(header, archive); err != nil {
			return nil, fmt.Errorf("unpack %q: %w", header.Name, err)
		}
	}
	if err := u.finish(); err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	_, err = io.Copy(io.Discard, content) // the archive's padding
	return nil, err
}

// inflated returns the stream decompressed, if it is compressed.
func inflated(r io.Reader) (io.Reader, error) {
	in := bufio.NewReaderSize(r, 32<<10)
	if start, _ := in.Peek(2); !bytes.Equal(start, []byte{0x1f, 0x8b}) {
		return in, nil // the next read will return the error
	}
	return gzip.NewReader(in)
}

func (u *unpacking) extract(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name := path.Clean(h.Name)
	if !filepath.IsLocal(name) {
		return fmt.Errorf("the name leads out of the directory: %w", fs.ErrInvalid)
	}
	if h.Typeflag == tar.TypeDir {
		return u.directory(name, h)
	}
	if name == "." {
		return fmt.Errorf("not a directory: %w", fs.ErrInvalid)
	}
	if err := u.parents(path.Dir(name)); err != nil {
		return err
	}
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	u.made = path.Dir(name)
	switch h.Typeflag {
	case tar.TypeReg:
		return u.file(name, h, content)
	case tar.TypeSymlink:
		return u.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		to := path.Clean(h.Linkname)
		if !filepath.IsLocal(to) {
			return fmt.Errorf("the link leads out of the directory, to %q: %w", h.Linkname, fs.ErrInvalid)
		}
		return u.root.Link(to, name)
	}
	return fmt.Errorf("unsupported entry type %q: %w", h.Typeflag, guest.ErrNotRegular)
}

func (u *unpacking) parents(dir string) error {
	if dir == u.made || dir == "." {
		return nil
	}
	return u.root.MkdirAll(dir, 0o755)
}

func (u *unpacking) directory(name string, h *tar.Header) error {
	if name != "." {
		info, err := u.root.Lstat(name)
		if err == nil && !info.IsDir() {
			err = u.root.Remove(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := u.root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		u.made = name
	}
	u.dirs = append(u.dirs, &tar.Header{Name: name, Mode: h.Mode, ModTime: h.ModTime})
	return nil
}

func (u *unpacking) file(name string, h *tar.Header, content io.Reader) error {
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Chmod(permissions(h))
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return u.root.Chtimes(name, time.Time{}, h.ModTime)
}

func (u *unpacking) finish() error {
	for _, h := range slices.Backward(u.dirs) { // a directory's own mode last, as it may deny access
		info, err := u.root.Lstat(h.Name)
		if err != nil || !info.IsDir() {
			continue // the archive has replaced it by something else
		}
		if h.Name != "." {
			if err := u.root.Chmod(h.Name, permissions(h)); err != nil {
				return err
			}
		}
		if err := u.root.Chtimes(h.Name, time.Time{}, h.ModTime); err != nil && h.Name != "." {
			return err
		}
	}
	return nil
}

// permissions leaves out the set-user-ID, set-group-ID and sticky bits.
func permissions(h *tar.Header) fs.FileMode { return fs.FileMode(h.Mode) & fs.ModePerm }
