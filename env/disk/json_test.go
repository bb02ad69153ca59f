package disk

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestJSONIsNotEscaped(t *testing.T) {
	v := map[string]string{"a": "<b> & c"}
	const want = `{"a":"<b> & c"}`
	if got, err := MarshalJSON(v); err != nil || string(got) != want {
		t.Errorf("MarshalJSON = %s, %v; want %s", got, err, want)
	}
	var b bytes.Buffer
	if err := EncodeJSON(&b, v); err != nil || b.String() != want+"\n" {
		t.Errorf("EncodeJSON wrote %q, %v; want %q", b.String(), err, want+"\n")
	}
	path := filepath.Join(t.TempDir(), "a.json")
	if err := WriteJSON(path, v); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "{\n  \"a\": \"<b> & c\"\n}\n" {
		t.Errorf("WriteJSON wrote %q, %v", got, err)
	}
	var back map[string]string
	if err := ReadJSON(path, &back); err != nil || back["a"] != v["a"] {
		t.Errorf("ReadJSON = %v, %v", back, err)
	}
	if err := ReadJSON(path, &[]int{}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("ReadJSON of another type: %v, want an error that names the file", err)
	}
	if err := ReadJSON(path+"-none", &back); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadJSON of no file: %v", err)
	}
	if _, err := MarshalJSON(make(chan int)); err == nil {
		t.Error("a channel was encoded")
	}
}
