package disk

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// WriteFile replaces the file at path atomically, with mode 0644.
func WriteFile(path string, data []byte) error {
	return WriteStream(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// WriteStream is WriteFile for data that is produced in pieces. write receives a temporary file in the same
// directory, which is then synced and renamed to path. If write fails, nothing changes.
func WriteStream(path string, write func(io.Writer) error) (err error) {
	dir, name := filepath.Split(path)
	f, err := os.CreateTemp(dir, "."+name+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, errors.Join(err, f.Close(), os.Remove(f.Name())))
		}
	}()
	if err = write(f); err != nil {
		return err
	}
	if err = f.Chmod(0o644); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	// The temporary file has been renamed to path.
	if serr := errors.Join(f.Close(), syncDir(dir)); serr != nil {
		return fmt.Errorf("write %s: %w", path, serr)
	}
	return nil
}

// syncDir makes a rename in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(cmp.Or(dir, "."))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// MarshalJSON is json.Marshal without escaping < > &, because people read the output and hashes are taken of it.
func MarshalJSON(v any) ([]byte, error) {
	data, err := encodeJSON(v, "")
	return bytes.TrimSuffix(data, []byte("\n")), err
}

// Digest returns the SHA-256 of plain data, which can always be encoded, as [MarshalJSON] writes it.
func Digest(plain any) string {
	data, _ := MarshalJSON(plain)
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// EncodeJSON writes v as one line, like [MarshalJSON], in a single call of w.Write.
func EncodeJSON(w io.Writer, v any) error {
	data, err := encodeJSON(v, "")
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// WriteJSON replaces the file at path with v as indented JSON, like [WriteFile] and [MarshalJSON].
func WriteJSON(path string, v any) error {
	data, err := encodeJSON(v, "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return WriteFile(path, data)
}

// ReadJSON reads a file that holds one JSON value. The error wraps ErrDamaged if it holds anything else.
func ReadJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("read %s: %w: %w", path, ErrDamaged, err)
	}
	return nil
}

func encodeJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return b.Bytes(), err
}

// Glob returns the paths below a directory that match a pattern, whatever the directory is called. An invalid pattern
// matches nothing.
func Glob(dir, pattern string) []string {
	found, _ := fs.Glob(os.DirFS(dir), filepath.ToSlash(filepath.Clean(pattern)))
	for i, name := range found {
		found[i] = filepath.Join(dir, filepath.FromSlash(name))
	}
	return found
}

// OpenUntrusted opens a file for reading that another user or process may replace at any time. It fails with ELOOP for
// a symbolic link, and does not wait for the writer of a pipe. What was opened may still not be a regular file.
func OpenUntrusted(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}
