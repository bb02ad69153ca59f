package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Log is an append-only file of JSON lines. A line is handed to the operating system whole before Append returns, so a
// killed process loses none; what a machine that went down can lose is what was appended after the last Sync.
type Log struct {
	mu   sync.Mutex
	file *os.File
	err  error
	// written and synced count lines, so that callers who wait for the disk at the same time share one trip to it.
	written, synced int64
	syncing         sync.Mutex
}

// OpenLog opens the log at the path, or begins it, and hands each line that is there to each. A torn last line, which a
// killed writer leaves, is cut off; any other line that is not JSON is an error, and so is an error of each. The line
// is only valid during the call.
func OpenLog(path string, each func(line []byte) error) (*Log, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	good, err := readLines(f, each)
	if err == nil {
		err = f.Truncate(good)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open log %s: %w", path, err), f.Close())
	}
	return &Log{file: f}, nil
}

// readLines returns the length of the whole lines at the beginning of the file.
func readLines(f io.Reader, each func([]byte) error) (good int64, err error) {
	r := newLineReader(f)
	for n := 1; ; n++ {
		line, err := r.next()
		if errors.Is(err, io.EOF) {
			return good, nil
		}
		if err != nil {
			return good, err
		}
		body := bytes.TrimSuffix(line, []byte("\n"))
		whole := len(body) < len(line) && json.Valid(body)
		switch {
		case !whole && r.last():
			return good, nil
		case !whole:
			return good, fmt.Errorf("line %d is not JSON: the file was damaged", n)
		}
		if each != nil {
			if err := each(body); err != nil {
				return good, fmt.Errorf("line %d: %w", n, err)
			}
		}
		good += int64(len(line))
	}
}

// Append writes v as one line. After a failed write every further Append fails with the same error, so that a log never
// has a hole.
func (l *Log) Append(v any) error {
	line, err := marshal(v)
	if err != nil {
		return fmt.Errorf("append to log: %w", err)
	}
	return l.AppendJSON(line)
}

// AppendJSON is Append for a value that is JSON already, without line breaks; it is not looked at.
func (l *Log) AppendJSON(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	if _, err := l.file.Write(append(line[:len(line):len(line)], '\n')); err != nil {
		l.err = fmt.Errorf("append to log: %w", err)
	}
	l.written++
	return l.err
}

// Sync returns when everything appended before the call is on the disk.
func (l *Log) Sync() error {
	l.mu.Lock()
	want := l.written
	l.mu.Unlock()

	l.syncing.Lock()
	defer l.syncing.Unlock()
	if l.synced >= want {
		return nil
	}
	l.mu.Lock()
	now, err := l.written, l.err
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("sync log: %w", err)
	}
	l.synced = now
	return nil
}

// Close syncs and closes the file.
func (l *Log) Close() error {
	return errors.Join(l.Sync(), l.file.Close())
}

// marshal writes JSON without escaping < > &: ids and texts are to be read by people and hashed by others.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
