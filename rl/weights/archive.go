package weights

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env/disk"
)

// Limits for archives. An adapter of rank 64 on all layers of a 32B model has 2 GB.
const (
	maxAdapter      = 64 << 30
	maxAdapterFiles = 64
	maxPadding      = 1 << 20 // after the last file
)

// ErrArchive reports an archive that does not contain a usable adapter.
var ErrArchive = errors.New("the adapter's archive cannot be used")

// ErrMerged reports an archive of all weights, in which the adapter's are merged.
var ErrMerged = errors.New("the archive has all weights of the model, and no adapter")

// Unpack unpacks an adapter's archive, a tar file that may be compressed by gzip, into a new directory. It may contain
// regular files only, without directories in their names. Otherwise, the error wraps ErrArchive or ErrMerged, and
// nothing is left behind.
func Unpack(in io.Reader, dir string) error {
	return receive(dir, func(scratch string) error { return extract(in, scratch) })
}

// Copy is Unpack for a directory of this machine that has the files of an adapter, itself or in one called adapter, as
// TuFT's checkpoints have them. All other files are left out.
func Copy(from, dir string) error {
	return receive(dir, func(scratch string) error {
		below := filepath.Join(from, "adapter")
		if _, err := os.Stat(below); err == nil {
			from = below
		}
		for _, name := range []string{adapterConfigFile, adapterFile} {
			if err := copyFile(filepath.Join(from, name), filepath.Join(scratch, name)); err != nil {
				return err
			}
		}
		return nil
	})
}

// receive lets fill write an adapter's files into a scratch directory, checks them, and moves them to dir.
func receive(dir string, fill func(scratch string) error) (err error) {
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("unpack the adapter: %s: %w", dir, os.ErrExist)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("unpack the adapter: %w", err)
	}
	scratch, err := disk.MakeScratch(filepath.Dir(dir), "adapter")
	if err != nil {
		return fmt.Errorf("unpack the adapter: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("unpack the adapter: %w", err), disk.RemoveScratch(scratch))
		}
	}()
	if err := fill(scratch); err != nil {
		return err
	}
	if err := completeConfig(scratch); err != nil {
		return err
	}
	// The server may run as another user.
	if err := os.Chmod(scratch, 0o755); err != nil {
		return err
	}
	return os.Rename(scratch, dir)
}

// extract writes the archive's files into a directory. It reads the archive to the end, where its checksum is.
func extract(in io.Reader, dir string) error {
	plain, err := unzipped(in)
	if err != nil {
		return fmt.Errorf("%w: it is truncated or damaged: %w", ErrArchive, err)
	}
	left := int64(maxAdapter)
	archive := tar.NewReader(plain)
	var seen []string
	for first := true; ; first = false {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: it is truncated or damaged: %w", ErrArchive, err)
		}
		if h.Typeflag == tar.TypeDir && strings.Trim(h.Name, "./") == "" && first {
			continue // the directory itself
		}
		name := strings.TrimPrefix(h.Name, "./")
		switch {
		case h.Typeflag != tar.TypeReg:
			return fmt.Errorf("%w: %q is not a file but a link, a directory or a device", ErrArchive, h.Name)
		case name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "\\\x00"):
			return fmt.Errorf("%w: %q is outside its directory", ErrArchive, h.Name)
		case strings.HasPrefix(name, "model") && strings.HasSuffix(name, ".safetensors"):
			return ErrMerged
		case slices.Contains(seen, name):
			return fmt.Errorf("%w: it has %q twice", ErrArchive, name)
		case len(seen) == maxAdapterFiles || h.Size > left:
			return fmt.Errorf("%w: it is larger than %d files and %d GiB", ErrArchive, maxAdapterFiles, maxAdapter>>30)
		}
		left -= h.Size
		seen = append(seen, name)
		if err := writeFile(filepath.Join(dir, name), archive); err != nil {
			return err
		}
	}
	switch n, err := io.Copy(io.Discard, io.LimitReader(plain, maxPadding+1)); {
	case err != nil:
		return fmt.Errorf("%w: it is truncated or damaged: %w", ErrArchive, err)
	case n > maxPadding:
		return fmt.Errorf("%w: there is data after its last file", ErrArchive)
	}
	for _, name := range []string{adapterConfigFile, adapterFile} {
		if !slices.Contains(seen, name) {
			return fmt.Errorf("%w: it has no %s", ErrArchive, name)
		}
	}
	return nil
}

// unzipped returns what in has, without its compression if it begins as a gzip file does.
func unzipped(in io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(in)
	if begin, err := buffered.Peek(2); err != nil || begin[0] != 0x1f || begin[1] != 0x8b {
		return buffered, err
	}
	return gzip.NewReader(buffered)
}

// torn marks errors of reading the archive, to distinguish them from errors of writing to the disk.
type torn struct{ in io.Reader }

func (t torn) Read(p []byte) (int, error) {
	n, err := t.in.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: it is truncated or damaged: %w", ErrArchive, err)
	}
	return n, err
}

func writeFile(name string, in io.Reader) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, torn{in})
	return errors.Join(err, f.Close())
}

func copyFile(from, to string) error {
	switch info, err := os.Stat(from); {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrArchive, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: %s is not a file", ErrArchive, from)
	}
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrArchive, err)
	}
	return errors.Join(writeFile(to, in), in.Close())
}

// completeConfig checks the weights. If the configuration does not name the modules that they belong to, which vLLM
// needs, it adds them.
func completeConfig(dir string) error {
	modules, err := adapterModules(filepath.Join(dir, adapterFile))
	if err != nil {
		return err
	}
	var config map[string]json.RawMessage
	data, err := os.ReadFile(filepath.Join(dir, adapterConfigFile))
	if err == nil {
		err = json.Unmarshal(data, &config)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrArchive, adapterConfigFile, err)
	}
	if named, ok := config["target_modules"]; ok && !bytes.Equal(bytes.TrimSpace(named), []byte("null")) {
		return nil
	}
	if config["target_modules"], err = json.Marshal(modules); err != nil {
		return err
	}
	return disk.WriteJSON(filepath.Join(dir, adapterConfigFile), config)
}

// adapterModules returns the names of the modules that a file of weights belongs to.
func adapterModules(name string) ([]string, error) {
	f, err := openFile(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrArchive, err)
	}
	defer f.Close()
	var modules []string
	for tensor := range f.tensors {
		before, _, ok := strings.Cut(tensor, ".lora_")
		if module := before[strings.LastIndex(before, ".")+1:]; ok && !slices.Contains(modules, module) {
			modules = append(modules, module)
		}
	}
	if len(modules) == 0 {
		return nil, fmt.Errorf("%w: %s has no tensors of an adapter", ErrArchive, adapterFile)
	}
	slices.Sort(modules)
	return modules, nil
}
