package repo

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"deepswe/env"
	"deepswe/env/disk"
)

// Pack writes the repository that a spec copies in as a tar stream below prefix, owned by uid and gid, without what a
// set-up has put into the image already. It returns the files that it wrote, with the versions of what was written,
// except for those of the git directory.
func Pack(ctx context.Context, tw *tar.Writer, s env.Spec, prefix string, uid, gid int) ([]env.KnownFile, error) {
	p := packing{tw: tw, root: s.CopyIn, prefix: prefix, uid: uid, gid: gid, live: s.Git != "", copied: s.Copied,
		hash: sha256.New(), buffer: make([]byte, 64<<10)}
	p.without = make(map[string]bool, len(s.Without))
	for _, name := range s.Without {
		p.without[name] = true
	}
	if s.Installed != nil {
		for _, name := range s.Installed.Replaced {
			p.without[name] = true
		}
	}
	if s.Git == "" {
		err := p.pack(ctx)
		return p.known, err
	}
	p.without[".git"] = true
	if err := p.pack(ctx); err != nil {
		return nil, err
	}
	git := packing{
		tw: tw, root: s.Git, prefix: filepath.ToSlash(filepath.Join(prefix, ".git")), uid: uid, gid: gid, buffer: p.buffer,
	}
	return p.known, git.pack(ctx)
}

// packing writes the content of a directory as a tar stream. Symbolic links are packed as links; sockets, pipes,
// devices and files that are removed meanwhile are left out.
type packing struct {
	tw       *tar.Writer
	root     string
	prefix   string
	uid, gid int
	// without are paths relative to root that are left out.
	without map[string]bool
	// live is set if somebody works in root: what cannot be read is left out, and the copy is writable.
	live   bool
	copied func(bytes int64)
	buffer []byte
	// hash is nil if nobody needs to know the files.
	hash  hash.Hash
	known []env.KnownFile
}

func (p *packing) pack(ctx context.Context) error {
	return filepath.WalkDir(p.root, func(path string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		name, rerr := filepath.Rel(p.root, path)
		if rerr == nil && p.without[filepath.ToSlash(name)] {
			if entry != nil && entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err == nil {
			err = p.entry(path, name, entry)
		}
		if path != p.root && (errors.Is(err, fs.ErrNotExist) || p.live && errors.Is(err, fs.ErrPermission)) {
			return nil
		}
		return err
	})
}

func (p *packing) entry(path, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	h := &tar.Header{
		Name: strings.TrimPrefix(filepath.ToSlash(filepath.Join(p.prefix, name)), "/"),
		Mode: int64(info.Mode().Perm()), ModTime: info.ModTime().Truncate(time.Second), Uid: p.uid, Gid: p.gid,
	}
	switch {
	case info.IsDir():
		if p.live {
			h.Mode |= 0o755
		}
		h.Typeflag = tar.TypeDir
		h.Name += "/"
		if h.Name == "/" || h.Name == "./" {
			return nil // leave the container's root directory as it is
		}
		return p.tw.WriteHeader(h)
	case info.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(path); err != nil {
			return err
		}
		return p.tw.WriteHeader(h)
	case info.Mode().IsRegular():
		if p.live {
			h.Mode |= 0o600
		}
		return p.file(h, path, filepath.ToSlash(name))
	}
	return nil
}

func (p *packing) file(h *tar.Header, path, name string) error {
	f, err := disk.OpenUntrusted(path) // it may have been replaced by now
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
	if err := p.tw.WriteHeader(h); err != nil {
		return err
	}
	to, versioned := io.Writer(p.tw), p.hash != nil && !strings.HasPrefix(name, ".git/")
	if versioned {
		p.hash.Reset()
		to = io.MultiWriter(p.tw, p.hash)
	}
	// CopyBuffer uses the buffer only if the source is an io.Reader and nothing else.
	n, err := io.CopyBuffer(to, struct{ io.Reader }{io.LimitReader(f, h.Size)}, p.buffer)
	if err == nil && n < h.Size {
		return fmt.Errorf("%s shrank from %d to %d bytes while it was copied", path, h.Size, n)
	}
	if err != nil {
		return err
	}
	if versioned {
		p.known = append(p.known, env.KnownFile{
			Path: name, Size: h.Size, Modified: h.ModTime.Unix(), Version: hex.EncodeToString(p.hash.Sum(nil)),
		})
	}
	if p.copied != nil {
		p.copied(h.Size)
	}
	return nil
}
