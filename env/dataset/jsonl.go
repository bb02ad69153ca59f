package dataset

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"deepswe/env/disk"
)

// maxLine is the longest record that is read, in bytes.
const maxLine = 256 << 20

var errTooLong = fmt.Errorf("is longer than %d MiB", maxLine>>20)

// records yields a file's records with the wanted fields. An error that is a *RecordError concerns one of them; any
// other error ends the sequence.
func records(file string, wanted []string) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		f, err := os.Open(file)
		if err != nil {
			yield(record{}, err)
			return
		}
		defer f.Close()
		if looksParquet(f) {
			if err := readParquet(file, f, wanted, yield); err != nil {
				yield(record{}, fmt.Errorf("%s: %w", file, err))
			}
			return
		}
		r, closer, err := unpacked(file, f)
		if err != nil {
			yield(record{}, fmt.Errorf("%s: %w", file, err))
			return
		}
		defer closer()
		b := bufio.NewReaderSize(r, 1<<20)
		if mark, _ := b.Peek(3); string(mark) == "\xef\xbb\xbf" {
			b.Discard(3) //nolint:errcheck // cannot fail after Peek
		}
		if startsList(b) {
			readList(file, b, wanted, yield)
		} else {
			readLines(file, b, wanted, yield)
		}
	}
}

// unpacked returns the decompressed content of a file, according to the file's extension.
func unpacked(file string, f io.Reader) (r io.Reader, closer func(), err error) {
	switch filepath.Ext(file) {
	case ".gz":
		z, err := gzip.NewReader(f)
		return z, func() {}, err
	case ".zst":
		z, err := zstd.NewReader(f)
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return f, func() {}, nil
}

// startsList reports whether a file's first character, after white space, is "[".
func startsList(b *bufio.Reader) bool {
	for n := 1; ; n++ {
		p, err := b.Peek(n)
		if err != nil || n > 4096 {
			return false
		}
		if c := p[n-1]; !strings.ContainsRune(" \t\r\n", rune(c)) {
			return c == '['
		}
	}
}

func readLines(file string, b *bufio.Reader, wanted []string, yield func(record, error) bool) {
	for n := 1; ; n++ {
		line, err := disk.ReadLine(b, nil, maxLine)
		switch {
		case errors.Is(err, disk.ErrLongLine):
			if !yield(record{}, &RecordError{File: file, Line: n, Err: errTooLong}) {
				return
			}
			continue
		case err != nil && !errors.Is(err, io.EOF):
			yield(record{}, fmt.Errorf("%s:%d: %w", file, n, err))
			return
		}
		if len(bytes.TrimSpace(line)) > 0 && !yield(parse(file, n, line, wanted)) || err != nil {
			return
		}
	}
}

// readList yields the elements of a JSON array; their "line" is their position in it.
func readList(file string, b *bufio.Reader, wanted []string, yield func(record, error) bool) {
	d := json.NewDecoder(b)
	_, err := d.Token()
	for n := 1; err == nil && d.More(); n++ {
		var element json.RawMessage
		if err = d.Decode(&element); err == nil && !yield(parse(file, n, element, wanted)) {
			return
		}
	}
	if err == nil {
		_, err = d.Token()
	}
	if err != nil {
		yield(record{}, fmt.Errorf("%s: byte %d: %w", file, d.InputOffset(), err))
	}
}

func parse(file string, line int, text []byte, wanted []string) (record, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return record{}, &RecordError{File: file, Line: line, Err: fmt.Errorf("not a JSON object: %w", err)}
	}
	r := record{file: file, line: line, fields: map[string]any{}, raw: text, names: slices.Sorted(maps.Keys(all))}
	for _, field := range wanted {
		value, ok := all[field]
		if !ok || string(value) == "null" {
			continue
		}
		var v any
		if err := json.Unmarshal(value, &v); err != nil {
			return record{}, &RecordError{File: file, Line: line, Field: field, Err: err}
		}
		r.fields[field] = v
	}
	return r, nil
}
