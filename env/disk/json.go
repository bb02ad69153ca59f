package disk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

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

// ReadJSON reads a file that holds one JSON value.
func ReadJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
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
