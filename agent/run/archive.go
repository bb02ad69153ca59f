package run

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// ArchiveEnding is the end of the name of a file that [Pack] wrote.
const ArchiveEnding = ".tar.zst"

// Pack writes the files of a run's directory as a compressed archive. The same files always give the same bytes: their
// owners, times and permissions are left out, and so is the lock.
func Pack(w io.Writer, dir string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("pack %s: %w", dir, err)
		}
	}()
	if _, err := ReadManifest(dir); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir) // a link that leads out of the run is not followed
	if err != nil {
		return err
	}
	defer root.Close()
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	err = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || path == lockFile {
			return err
		}
		return packFile(t, root, path)
	})
	return errors.Join(err, t.Close(), z.Close())
}

func packFile(t *tar.Writer, root *os.Root, path string) error {
	f, err := root.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Name: filepath.ToSlash(path), Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.CopyN(t, f, info.Size()) // a log may have grown since
	return err
}

// mostUnpacked is the maximum unpacked size of an archive in bytes: a small archive may unpack to a huge one.
const mostUnpacked = 64 << 30

// Unpack reads an archive into a directory, and writes nothing outside of it.
func Unpack(r io.Reader, dir string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("unpack: %w", err)
		}
	}()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	z, err := zstd.NewReader(r)
	if err != nil {
		return err
	}
	defer z.Close()
	t := tar.NewReader(io.LimitReader(z, mostUnpacked))
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(h.Name) || strings.Contains(h.Name, "\\") {
			return fmt.Errorf("%q is not a file of a run", h.Name)
		}
		if err := unpackFile(root, h.Name, t); err != nil {
			return err
		}
	}
}

func unpackFile(root *os.Root, name string, r io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
