package disk

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func mustClose(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// However much of the last line is on disk, all complete lines are read, and the log continues after them.
func TestTornTail(t *testing.T) {
	lines := []string{`{"n":1}`, `{"n":2,"text":"<ü>"}`, `{"n":3}`}
	whole := strings.Join(lines, "\n") + "\n"
	for cut := range len(whole) + 1 {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(whole[:cut]), 0o644); err != nil {
			t.Fatal(err)
		}
		var got []string
		l, err := OpenLog(path, func(line []byte) error {
			got = append(got, string(line))
			return nil
		})
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		n := strings.Count(whole[:cut], "\n")
		if strings.Join(got, "\n") != strings.Join(lines[:n], "\n") {
			t.Errorf("cut at %d: read %q", cut, got)
		}
		if err := l.Append(map[string]string{"new": "<line>"}); err != nil {
			t.Fatal(err)
		}
		mustClose(t, l)
		after, err := os.ReadFile(path)
		want := strings.Join(append(lines[:n:n], `{"new":"<line>"}`), "\n") + "\n"
		if err != nil || string(after) != want {
			t.Errorf("cut at %d: the file holds %q, want %q", cut, after, want)
		}
	}
}

func TestDamagedLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("{\"n\":1}\n{\"n\":\n{\"n\":3}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLog(path, nil); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("OpenLog: %v", err)
	}
	if err := ReadLog(path, nil); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("ReadLog: %v", err)
	}
}

func TestLogOfManyWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := OpenLog(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 20 {
				if err := errors.Join(l.Append([]int{w, i}), l.Sync()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	mustClose(t, l)
	next := map[int]int{}
	l, err = OpenLog(path, func(line []byte) error {
		var v [2]int
		if err := json.Unmarshal(line, &v); err != nil {
			return err
		}
		if v[1] != next[v[0]] {
			t.Errorf("writer %d: line %d, want %d", v[0], v[1], next[v[0]])
		}
		next[v[0]]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
	for w := range 8 {
		if next[w] != 20 {
			t.Errorf("writer %d: %d lines", w, next[w])
		}
	}
}

func TestCreateLogReplacesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := CreateLog(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Append(1); err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
	if _, err := CreateLog(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("created twice: %v", err)
	}
}

// A log can be read while it is written. A line that is not complete yet is left out.
func TestReadLogOfALivingWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := CreateLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, l)
	if err := l.Append("whole"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.file.WriteString(`"tor`); err != nil {
		t.Fatal(err)
	}
	var got []string
	err = ReadLog(path, func(line []byte) error {
		got = append(got, string(line))
		return nil
	})
	if want := []string{`"whole"`}; err != nil || !slices.Equal(got, want) {
		t.Errorf("read %q, %v; want %q", got, err, want)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "\"whole\"\n\"tor" {
		t.Errorf("reading changed the file: %q, %v", data, err)
	}
	if err := ReadLog(path+"-none", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a log that does not exist: %v", err)
	}
}

// A log can be cut at the line where its owner wants to continue.
func TestOpenLogCuts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("1\n2\n3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := OpenLog(path, func(line []byte) error {
		if string(line) == "2" {
			return io.EOF
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Append(9); err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
	if data, err := os.ReadFile(path); err != nil || string(data) != "1\n9\n" {
		t.Errorf("the log holds %q, %v", data, err)
	}
}

func FuzzReadLines(f *testing.F) {
	f.Add([]byte("{}\n[1]\n\"torn"))
	f.Add([]byte("\n\n"))
	f.Add([]byte("{}{}\n1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var again bytes.Buffer
		good, err := readLines(bytes.NewReader(data), func(line []byte) error {
			if !json.Valid(line) {
				t.Errorf("%q is not JSON", line)
			}
			again.Write(line)
			again.WriteByte('\n')
			return nil
		})
		if !bytes.Equal(again.Bytes(), data[:good]) {
			t.Errorf("the good part of %q was read as %q", data, again.Bytes())
		}
		if err == nil && bytes.IndexByte(data[good:], '\n') >= 0 && bytes.IndexByte(data[good:], '\n') != len(data[good:])-1 {
			t.Errorf("complete lines were taken for an incomplete one: %q", data[good:])
		}
	})
}

// Lines that are too long are skipped.
func TestReadLine(t *testing.T) {
	b := bufio.NewReaderSize(strings.NewReader("short\n"+strings.Repeat("x", 100)+"\nnext\n"+strings.Repeat("y", 100)), 16)
	for _, want := range []struct {
		line string
		err  error
	}{{"short\n", nil}, {"", ErrLongLine}, {"next\n", nil}, {"", ErrLongLine}, {"", io.EOF}} {
		line, err := ReadLine(b, nil, 50)
		if string(line) != want.line || !errors.Is(err, want.err) {
			t.Errorf("line is %q, %v, want %q, %v", line, err, want.line, want.err)
		}
	}
}
