package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
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

	"github.com/moby/moby/client"

	"deepswe/env"
)

// makeDir makes the directory to work in, where the image does not have it.
func (s *Sandbox) makeDir(ctx context.Context) error {
	if _, err := s.List(ctx, s.spec.Dir, env.ListOptions{Limit: 1}); !errors.Is(err, fs.ErrNotExist) {
		return nil // it exists; if it cannot be used, the first call fails
	}
	// The guest acts with the command user's rights. Where they do not suffice, the daemon does it, which is slower.
	var archive bytes.Buffer
	if err := pack(ctx, &archive, s.spec, s.user); err != nil {
		return err
	}
	if s.Unpack(ctx, "/", &archive) == nil {
		return nil
	}
	return s.d.copyIn(ctx, s)
}

// copyIn copies the spec's repository into a container, or makes an empty directory to work in. The daemon writes, so
// that the files can belong to the command user although the guest may not change owners.
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
		err = packErr
	}
	if err != nil {
		return fmt.Errorf("copy in: %w", err)
	}
	return nil
}

// pack writes the tar stream for copyIn, rooted at the container's root.
func pack(ctx context.Context, to io.Writer, s env.Spec, owner user) error {
	tw := tar.NewWriter(to)
	inside := strings.TrimPrefix(s.Dir, "/")
	// /tmp is the home of a user missing from the image's passwd, and small images lack it.
	dir := tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777, ModTime: time.Now().Truncate(time.Second)}
	if s.CopyIn == "" {
		dir.Name, dir.Mode, dir.Uid, dir.Gid = inside+"/", 0o755, owner.uid, owner.gid
	}
	err := tw.WriteHeader(&dir)
	if err == nil && s.CopyIn != "" {
		err = packTree(ctx, tw, s.CopyIn, inside, owner)
	}
	if err != nil {
		return err
	}
	return tw.Close()
}

// packTree packs a directory's content below prefix. Symbolic links are packed as links; sockets, pipes and devices are
// left out, and so are files that are removed in the meantime.
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
	// The file may have been replaced by now: do not follow a link, and do not wait for a pipe.
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

// Where the guest's binary is found inside a container.
const (
	guestDir  = "/.deepswe"
	guestName = "deepswe"
	guestPath = guestDir + "/" + guestName
	// guestMark is written after the binary: a volume without it is not complete.
	guestMark = "complete"
)

// guestBinary is a program that can be a guest.
type guestBinary struct {
	path string
	size int64
	hash string // SHA-256, in hex
}

// findGuest returns the program that becomes the guest on daemons of an architecture.
func findGuest(executable, arch string) (guestBinary, error) {
	if executable != "" {
		return openGuest(executable, arch)
	}
	self, err := os.Executable()
	if err != nil {
		return guestBinary{}, fmt.Errorf("guest: %w", err)
	}
	own, err := openGuest(self, arch)
	if err == nil {
		return own, nil
	}
	beside := filepath.Join(filepath.Dir(self), "deepswe-linux-"+arch)
	other, otherErr := openGuest(beside, arch)
	if otherErr == nil {
		return other, nil
	}
	if !errors.Is(otherErr, os.ErrNotExist) {
		err = errors.Join(err, otherErr)
	}
	return guestBinary{}, fmt.Errorf(
		"%w; to fix: build one beside it: CGO_ENABLED=0 GOOS=linux GOARCH=%s go build -o %s deepswe", err, arch, beside)
}

// openGuest checks that a file runs in any Linux container of an architecture.
func openGuest(path, arch string) (guestBinary, error) {
	f, err := os.Open(path)
	if err != nil {
		return guestBinary{}, fmt.Errorf("guest: %w", err)
	}
	defer f.Close()
	program, err := elf.NewFile(f)
	if err != nil {
		return guestBinary{}, fmt.Errorf("guest: %s is not a Linux program", path)
	}
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	if want, known := machines[arch]; known && program.Machine != want {
		return guestBinary{}, fmt.Errorf("guest: %s is built for %v, the daemon runs %s", path, program.Machine, arch)
	}
	if slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return guestBinary{}, fmt.Errorf("guest: %s is not static, so it does not run in every image", path)
	}
	hash := sha256.New()
	size, err := io.Copy(hash, io.NewSectionReader(f, 0, 1<<62))
	if err != nil {
		return guestBinary{}, fmt.Errorf("guest: %w", err)
	}
	return guestBinary{path: path, size: size, hash: hex.EncodeToString(hash.Sum(nil))}, nil
}

// archive is the binary as a tar stream, below prefix, with more entries after it. All users may read and run it, none
// may write it.
func (g guestBinary) archive(prefix string, after ...tar.Header) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		w.CloseWithError(func() error {
			f, err := os.Open(g.path)
			if err != nil {
				return err
			}
			defer f.Close()
			tw := tar.NewWriter(w)
			if err := tw.WriteHeader(&tar.Header{
				Typeflag: tar.TypeReg, Name: prefix + guestName, Mode: 0o555, Size: g.size, ModTime: time.Unix(1, 0),
			}); err != nil {
				return err
			}
			// A binary that was replaced by now is noticed: by its size here, by its hash in the guest's greeting.
			if _, err := io.CopyN(tw, f, g.size); err != nil {
				return err
			}
			for _, h := range after {
				if err := tw.WriteHeader(&h); err != nil {
					return err
				}
			}
			return tw.Close()
		}())
	}()
	return r
}
