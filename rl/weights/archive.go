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

// maxPadding is the most bytes that may follow the last file of an archive.
const maxPadding = 1 << 20

// contents says what an archive may contain. An adapter of rank 64 on all layers of a 32B model has 2 GB.
type contents struct {
	gigabytes, files int
	folders          bool
	needed           []string
	// foreign reports whether only the other kind of archive has a file with the name, and mistaken is the error then.
	foreign  func(name string) bool
	mistaken error
}

var (
	adapterContents = contents{
		gigabytes: 64, files: 64, needed: []string{adapterConfigFile, adapterFile}, foreign: isModelFile, mistaken: ErrMerged,
	}
	modelContents = contents{
		gigabytes: 8 << 10, files: 4 << 10, folders: true, needed: []string{configName},
		foreign: func(name string) bool { return name == adapterFile }, mistaken: ErrAdapter,
	}
)

// Errors that say why an archive does not give what was asked of it.
var (
	ErrArchive = errors.New("the archive cannot be used")
	ErrMerged  = errors.New("the archive has all weights of the model, and no adapter")
	ErrAdapter = errors.New("the archive has an adapter, and not all weights of the model")
)

func isModelFile(name string) bool {
	return strings.HasPrefix(name, "model") && strings.HasSuffix(name, ".safetensors")
}

// Unpack unpacks an adapter's archive, a tar file that may be compressed by gzip, into a new directory. It may contain
// regular files only, without directories in their names. Otherwise, the error wraps ErrArchive or ErrMerged, and
// nothing is left behind.
func Unpack(in io.Reader, dir string) error {
	return receive(dir, func(scratch string) error {
		if err := extract(in, scratch, adapterContents); err != nil {
			return err
		}
		return completeConfig(scratch)
	})
}

// UnpackModel unpacks an archive of all weights in the format of Hugging Face into a new directory, and adds its page.
// The weights must be complete and finite. Otherwise, the error wraps ErrArchive or ErrAdapter, and nothing is left
// behind.
func UnpackModel(in io.Reader, dir string, c Card) error {
	return receive(dir, func(scratch string) error {
		if err := extract(in, scratch, modelContents); err != nil {
			return err
		}
		m, err := openModel(scratch)
		if err == nil {
			err = m.finite()
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrArchive, err)
		}
		return c.writeWhole(scratch)
	})
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
		return completeConfig(scratch)
	})
}

// receive lets fill write the files into a scratch directory, and moves them to dir.
func receive(dir string, fill func(scratch string) error) (err error) {
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("unpack: %s: %w", dir, os.ErrExist)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	scratch, err := disk.MakeScratch(filepath.Dir(dir), "unpacked")
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("unpack: %w", err), disk.RemoveScratch(scratch))
		}
	}()
	if err := fill(scratch); err != nil {
		return err
	}
	// The server may run as another user.
	if err := os.Chmod(scratch, 0o755); err != nil {
		return err
	}
	return os.Rename(scratch, dir)
}

// extract writes the archive's files into a directory. It reads the archive to the end, where its checksum is.
func extract(in io.Reader, dir string, may contents) error {
	plain, err := unzipped(in)
	if err != nil {
		return fmt.Errorf("%w: it is truncated or damaged: %w", ErrArchive, err)
	}
	left := int64(may.gigabytes) << 30
	archive := tar.NewReader(plain)
	var seen []string
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: it is truncated or damaged: %w", ErrArchive, err)
		}
		if h.Typeflag == tar.TypeDir && (may.folders || strings.Trim(h.Name, "./") == "" && len(seen) == 0) {
			continue // made with the files in it
		}
		name := strings.TrimPrefix(h.Name, "./")
		switch {
		case h.Typeflag != tar.TypeReg:
			return fmt.Errorf("%w: %q is not a file but a link, a directory or a device", ErrArchive, h.Name)
		case !may.allows(name):
			return fmt.Errorf("%w: %q is outside its directory", ErrArchive, h.Name)
		case may.foreign(name):
			return may.mistaken
		case slices.Contains(seen, name):
			return fmt.Errorf("%w: it has %q twice", ErrArchive, name)
		case len(seen) == may.files || h.Size > left:
			return fmt.Errorf("%w: it is larger than %d files and %d GiB", ErrArchive, may.files, may.gigabytes)
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
	for _, name := range may.needed {
		if !slices.Contains(seen, name) {
			return fmt.Errorf("%w: it has no %s", ErrArchive, name)
		}
	}
	return nil
}

// allows reports whether a file may have a name: one below the directory, and not hidden.
func (c contents) allows(name string) bool {
	hidden := strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
	return filepath.IsLocal(name) && name == filepath.Clean(name) && !hidden && !strings.ContainsAny(name, "\\\x00") &&
		(c.folders || name == filepath.Base(name))
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
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
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
