package disk

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestWriteReplacesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	for _, data := range []string{"one", "", "three"} {
		if err := WriteFile(path, []byte(data)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != data {
			t.Errorf("file = %q, %v; want %q", got, err, data)
		}
	}
}

func TestAFailedWriteChangesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := WriteFile(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left")
	err := WriteStream(path, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half of the n")
		return full
	})
	if !errors.Is(err, full) {
		t.Errorf("error = %v", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "old" {
		t.Errorf("file = %q", got)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%d files are left, want 1", len(entries))
	}
}

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

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "LOCK")
	first, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(path); !errors.Is(err, ErrLocked) ||
		!strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("locked twice: %v", err)
	}
	if h, alive, err := ReadHolder(path); err != nil || alive == Dead || h.PID != os.Getpid() {
		t.Errorf("held by %v, %v, %v", h, alive, err)
	}
	taken := make(chan error)
	go func() {
		second, err := WaitLock(path)
		if err == nil {
			err = second.Close()
		}
		taken <- err
	}()
	select {
	case err := <-taken:
		t.Fatalf("the lock was taken while it was held: %v", err)
	default:
	}
	mustClose(t, first)
	if err := <-taken; err != nil {
		t.Error(err)
	}
	if h, _, err := ReadHolder(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("held by %v, %v, after it was given up", h, err)
	}
	third, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, third)
}

// A child process that has not reached exec yet holds every open file of this process.
func TestLockClosesWithACopyOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "LOCK")
	first, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	held, err := syscall.Dup(int(first.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(held)
	mustClose(t, first)
	second, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, second)
}

func TestSpaceCheck(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for _, c := range []struct {
		name  string
		space Space
		fails string
	}{
		{"plenty", Space{Free: 50 * gib, Total: 100 * gib, FreeFiles: 1 << 20, Files: 1 << 24}, ""},
		{"little on a large disk", Space{Free: gib, Total: 100 * gib}, "1.0 GiB left, and sandboxes need 2.0 GiB"},
		{"the same on a small one", Space{Free: gib, Total: 10 * gib}, ""},
		{"nothing on a small one", Space{Free: 1 << 20, Total: gib}, "1 MiB left, and sandboxes need 51 MiB"},
		{"no inodes", Space{Free: 50 * gib, Total: 100 * gib, FreeFiles: 100, Files: 1 << 24}, "room for 100 more files"},
		{"inodes that are not counted", Space{Free: 50 * gib, Total: 100 * gib}, ""},
		{"unknown", Space{}, ""},
	} {
		err := c.space.Check("/scratch")
		switch {
		case c.fails == "" && err == nil:
		case c.fails == "" || err == nil || !errors.Is(err, errNearlyFull) || !strings.Contains(err.Error(), c.fails) ||
			!strings.Contains(err.Error(), "/scratch"):
			t.Errorf("%s: %v, want %q", c.name, err, c.fails)
		}
	}
}

func TestSpaceOf(t *testing.T) {
	t.Parallel()
	if s, err := SpaceOf(t.TempDir()); err != nil || s.Free > s.Total || s.FreeFiles > s.Files {
		t.Errorf("%+v, %v", s, err)
	}
}

// Only the pattern has wildcards: those in the directory's name mean nothing.
func TestGlob(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a [*] b")
	for _, name := range []string{"x/1.txt", "x/2.txt", "y/3.txt", "y/4"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for pattern, want := range map[string]int{
		"x/*.txt": 2, "*/*.txt": 3, "y/4": 1, "./y/*": 2, "z/*": 0, "[": 0, "../*": 0,
	} {
		found := Glob(dir, pattern)
		if len(found) != want {
			t.Errorf("%s matches %q", pattern, found)
		}
		for _, file := range found {
			if _, err := os.Stat(file); err != nil {
				t.Error(err)
			}
		}
	}
}
