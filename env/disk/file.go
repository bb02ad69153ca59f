package disk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// WriteFile replaces the file at the path with the data, under the mode 0644.
func WriteFile(path string, data []byte) error {
	return WriteStream(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// WriteStream is WriteFile for data that comes piece by piece. The data goes to a temporary name in the same directory,
// is synced, and takes the path's place by a rename; after an error of write, nothing has changed.
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
	// From here on the temporary name is gone, and the file in place.
	if serr := errors.Join(f.Close(), syncDir(dir)); serr != nil {
		return fmt.Errorf("write %s: %w", path, serr)
	}
	return nil
}

// syncDir makes a rename last.
func syncDir(dir string) error {
	if dir == "" {
		dir = "."
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// MarshalJSON is json.Marshal without escaping < > &: ids and texts are to be read by people and hashed by others.
func MarshalJSON(v any) ([]byte, error) {
	data, err := encodeJSON(v, "")
	return bytes.TrimSuffix(data, []byte("\n")), err
}

// EncodeJSON writes v as one line in the way of [MarshalJSON], in one call of w.
func EncodeJSON(w io.Writer, v any) error {
	data, err := encodeJSON(v, "")
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// WriteJSON replaces the file at the path with v, indented for people, in the way of [WriteFile] and [MarshalJSON].
func WriteJSON(path string, v any) error {
	data, err := encodeJSON(v, "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return WriteFile(path, data)
}

// ReadJSON reads a file that holds one JSON value. An error wraps ErrDamaged where it holds something else.
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
