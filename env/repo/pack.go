package repo

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Pack writes the content of a directory as a tar stream below prefix, owned by uid and gid. Symbolic links are
// packed as links; sockets, pipes, devices and files that are removed meanwhile are left out, and so are the
// paths in without, which are relative to root.
func Pack(ctx context.Context, tw *tar.Writer, root, prefix string, uid, gid int, without []string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		name, rerr := filepath.Rel(root, path)
		if rerr == nil && slices.Contains(without, filepath.ToSlash(name)) {
			if entry != nil && entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err == nil {
			err = packEntry(tw, root, path, prefix, entry, uid, gid)
		}
		if errors.Is(err, fs.ErrNotExist) && path != root {
			return nil
		}
		return err
	})
}

func packEntry(tw *tar.Writer, root, path, prefix string, entry fs.DirEntry, uid, gid int) error {
	name, err := filepath.Rel(root, path)
	if err != nil {
		return err
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	h := &tar.Header{
		Name: strings.TrimPrefix(filepath.ToSlash(filepath.Join(prefix, name)), "/"),
		Mode: int64(info.Mode().Perm()), ModTime: info.ModTime().Truncate(time.Second), Uid: uid, Gid: gid,
	}
	switch {
	case info.IsDir():
		h.Typeflag = tar.TypeDir
		h.Name += "/"
		if h.Name == "/" || h.Name == "./" {
			return nil // leave the container's root directory as it is
		}
		return tw.WriteHeader(h)
	case info.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(path); err != nil {
			return err
		}
		return tw.WriteHeader(h)
	case info.Mode().IsRegular():
		return packFile(tw, h, path)
	}
	return nil
}

func packFile(tw *tar.Writer, h *tar.Header, path string) error {
	// The file may have been replaced by now: do not follow a link, and do not block on a pipe.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyN(tw, f, h.Size)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s shrank from %d to %d bytes while it was copied", path, h.Size, n)
	}
	return err
}
