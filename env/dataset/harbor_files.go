package dataset

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// A task folder is untrusted data, which goes to a model and into containers. So only its own regular files are
// read: a link could point to any file of this machine, a device never ends, and a FIFO may block for ever.

const (
	// mostText is the largest text file that is read, in bytes.
	mostText = 4 << 20
	// harborBytes and harborCount limit the test files in total, which are stored in the task.
	harborBytes = 64 << 20
	harborCount = 10_000
	// environmentCount is the most entries in a folder that an image is built from.
	environmentCount = 500_000
)

var (
	errNotRegular   = errors.New("is not a regular file: links, devices and FIFOs in a task folder are not read")
	errNotDirectory = errors.New("is not a directory: links in a task folder are not followed")
)

// open opens the folder for reading and reports whether it could.
func (h *harborReader) open() bool {
	root, err := os.OpenRoot(h.folder)
	if err != nil {
		h.fail("", "", err)
		return false
	}
	h.root = root
	for _, dir := range []string{"environment", "tests"} {
		if info, err := root.Lstat(dir); err == nil && !info.IsDir() {
			h.fail(dir, "", errNotDirectory)
		}
	}
	return h.err == nil
}

// file returns the text of one of the folder's files.
func (h *harborReader) file(name string) string {
	data, err := readRegular(h.root, name, mostText)
	if err != nil {
		h.fail(name, "", err)
	}
	return string(data)
}

// readRegular returns the content of a regular file below root, following no links anywhere in its path.
func readRegular(root *os.Root, name string, limit int64) ([]byte, error) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		info, err := root.Lstat(dir)
		if err != nil {
			return nil, bare(err)
		}
		if !info.IsDir() {
			return nil, fmt.Errorf("%s %w", dir, errNotDirectory)
		}
	}
	info, err := root.Lstat(name)
	if err != nil {
		return nil, bare(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	// The file may have been replaced by now: do not follow a link, and do not block on a FIFO.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, bare(err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, bare(err)
	} else if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("is longer than %d MiB", limit>>20)
	}
	return data, err
}

// bare removes the path from an error, because RecordError already contains it.
func bare(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

func (h *harborReader) exists(name string) bool {
	_, err := h.root.Lstat(filepath.FromSlash(name))
	return !errors.Is(err, fs.ErrNotExist)
}

// tests returns the files of tests/, keyed by their paths in the grading sandbox.
func (h *harborReader) tests() map[string]string {
	if !h.exists("tests/test.sh") {
		h.fail("tests/test.sh", "", fs.ErrNotExist)
		return nil
	}
	files := map[string]string{}
	left := int64(harborBytes)
	h.walk("tests", harborCount, func(name string, kind fs.FileMode) error {
		if kind != 0 {
			return errNotRegular
		}
		data, err := readRegular(h.root, name, left)
		if left -= int64(len(data)); left < 0 {
			return fmt.Errorf("the test files are larger than %d MiB in total", harborBytes>>20)
		}
		files[path.Join(harborTests, strings.TrimPrefix(name, "tests/"))] = string(data)
		return err
	})
	return files
}

// environment checks the folder that an image is built from. Links in it are copied into the image as links.
func (h *harborReader) environment() {
	h.walk("environment", environmentCount, func(name string, kind fs.FileMode) error {
		if kind == 0 || kind == fs.ModeSymlink && name != "environment/.dockerignore" {
			return nil
		}
		return errNotRegular
	})
}

// walk calls visit for every entry below a directory that is not itself a directory, and keeps the first error.
func (h *harborReader) walk(dir string, most int, visit func(name string, kind fs.FileMode) error) {
	count := 0
	err := fs.WalkDir(h.root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if count++; count > most {
			return fmt.Errorf("there are more than %d entries", most)
		}
		if d.IsDir() {
			return nil
		}
		if err := visit(name, d.Type()); err != nil {
			h.fail(name, "", err)
			return fs.SkipAll
		}
		return nil
	})
	if err != nil {
		h.fail(dir, "", bare(err))
	}
}
