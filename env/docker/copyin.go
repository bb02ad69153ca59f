package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/moby/moby/client"

	"deepswe/env"
)

// makeDir makes the directory to work in, where the image does not have it.
func (s *Sandbox) makeDir(ctx context.Context) error {
	if _, err := s.List(ctx, s.spec.Dir, env.ListOptions{Limit: 1}); !errors.Is(err, fs.ErrNotExist) {
		return nil // it exists; if it cannot be used, the first call fails
	}
	// The guest acts with the command user's rights. Where they do not suffice, the daemon's do, but it is slower.
	var archive bytes.Buffer
	if err := pack(ctx, &archive, s.spec, s.user); err != nil {
		return err
	}
	if s.Unpack(ctx, "/", &archive) == nil {
		return nil
	}
	return s.d.copyIn(ctx, s)
}

// copyIn puts into a container what its spec asks for: the copied repository, or an empty directory to work in. The
// daemon writes, so that the files can belong to the command user though the guest may not change owners.
func (d *daemon) copyIn(ctx context.Context, s *Sandbox) error {
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(ctx, w, s.spec, s.user)
		w.CloseWithError(err)
		packed <- err
	}()
	_, err := d.cli.CopyToContainer(ctx, s.id, client.CopyToContainerOptions{
		DestinationPath: "/", Content: r, AllowOverwriteDirWithFile: true,
	})
	r.Close()
	if packErr := <-packed; packErr != nil && !errors.Is(packErr, io.ErrClosedPipe) {
		return fmt.Errorf("copy in: %w", packErr)
	}
	if err != nil {
		return fmt.Errorf("copy in: %w", err)
	}
	return nil
}

// pack writes the tar stream for copyIn, rooted at the container's root.
func pack(ctx context.Context, to io.Writer, s env.Spec, owner user) error {
	tw := tar.NewWriter(to)
	now := time.Now().Truncate(time.Second)
	inside := strings.TrimPrefix(s.Dir, "/")
	if s.CopyIn == "" {
		err := tw.WriteHeader(&tar.Header{
			Typeflag: tar.TypeDir, Name: inside + "/", Mode: 0o755, Uid: owner.uid, Gid: owner.gid, ModTime: now,
		})
		return errors.Join(err, tw.Close())
	}
	// /tmp is the home of a user missing from the image's passwd, and small images lack it.
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777, ModTime: now}); err != nil {
		return err
	}
	if err := packTree(ctx, tw, s.CopyIn, inside, owner); err != nil {
		return err
	}
	return tw.Close()
}

// packTree packs a directory's content below prefix. Symbolic links are packed as links; sockets, pipes and devices are
// left out, and so is what vanishes meanwhile.
func packTree(ctx context.Context, tw *tar.Writer, root, prefix string, owner user) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			err = packEntry(tw, root, path, prefix, entry, owner)
		}
		if errors.Is(err, fs.ErrNotExist) && path != root {
			return nil
		}
		return err
	})
}

func packEntry(tw *tar.Writer, root, path, prefix string, entry fs.DirEntry, owner user) error {
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
		Mode: int64(info.Mode().Perm()), ModTime: info.ModTime().Truncate(time.Second), Uid: owner.uid, Gid: owner.gid,
	}
	switch {
	case info.IsDir():
		h.Typeflag = tar.TypeDir
		h.Name += "/"
		if h.Name == "/" || h.Name == "./" {
			return nil // the container's own root stays as it is
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
	// The file may have been replaced meanwhile: a link is not followed, and a pipe is not waited for.
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
		return fmt.Errorf("%s was cut short while it was copied, from %d to %d bytes", path, h.Size, n)
	}
	return err
}
