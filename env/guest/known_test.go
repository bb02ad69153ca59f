package guest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// readAllKnown reads a list to its end. The error is nil if the list is complete.
func readAllKnown(r io.Reader) (files []KnownFile, err error) {
	for in := bufio.NewReader(r); ; {
		f, err := readKnown(in)
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
}

// TestKnownFiles: a list of files arrives unchanged, and a part of it is not taken for the whole.
func TestKnownFiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })
		sent := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) KnownFile {
			return KnownFile{
				Path: name.Draw(t, "path"), Size: rapid.Int64().Draw(t, "size"),
				Modified: rapid.Int64().Draw(t, "modified"), Version: rapid.StringN(0, 64, 64).Draw(t, "version"),
			}
		}), 1, 20).Draw(t, "files")
		got, err := readAllKnown(iotest.OneByteReader(&list{files: slices.Clone(sent)}))
		if err != nil || !slices.Equal(sent, got) {
			t.Fatalf("sent %+v, got %+v and %v", sent, got, err)
		}
		whole, err := io.ReadAll(&list{files: slices.Clone(sent)})
		if err != nil {
			t.Fatal(err)
		}
		cut := rapid.IntRange(0, len(whole)-1).Draw(t, "cut")
		if got, err := readAllKnown(bytes.NewReader(whole[:cut])); err == nil && len(got) == len(sent) {
			t.Fatalf("%d of %d bytes are taken for the whole list", cut, len(whole))
		}
	})
}

// A length that no file needs is refused before anything more is read.
func TestKnownFileTooLong(t *testing.T) {
	if _, err := readAllKnown(strings.NewReader("\xff\xff\xff\xff\x0f")); !errors.Is(err, errFrame) {
		t.Errorf("got %v, want %v", err, errFrame)
	}
}
