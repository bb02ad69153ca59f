package disk

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sync"
)

// ErrDamaged marks a file that no longer holds what was written to it; in a log, a line other than the last that is
// not JSON.
var ErrDamaged = errors.New("the file was damaged")

// Log is an append-only file of JSON lines. Append hands a whole line to the operating system before it returns, so
// killing the process loses nothing; a crash of the machine can lose what was appended after the last Sync.
type Log struct {
	mu   sync.Mutex
	file *os.File
	err  error
	// written and synced count lines. Concurrent callers of Sync share one fsync.
	written, synced int64
	syncing         sync.Mutex
}

// CreateLog starts a log at path. It returns fs.ErrExist if the file exists.
func CreateLog(path string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	return &Log{file: f}, nil
}

// OpenLog opens the log at path, or creates it, and passes its lines to each, as [ReadLines] does. It cuts off a
// torn last line, and everything from the line for which each returned io.EOF.
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

// Append writes v as one line. After a failed write or Sync, every further Append returns the same error, so that a
// log never has a gap.
func (l *Log) Append(v any) error {
	line, err := MarshalJSON(v)
	if err != nil {
		return fmt.Errorf("append to log: %w", err)
	}
	return l.AppendLine(line)
}

// AppendLine appends a line that is already JSON, without a line break. It does not check the line.
func (l *Log) AppendLine(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	// One write for the line and its line break, so that a kill leaves whole lines.
	if _, err := l.file.Write(append(line[:len(line):len(line)], '\n')); err != nil {
		l.err = fmt.Errorf("append to log: %w", err)
	}
	l.written++
	return l.err
}

// Sync returns when everything appended before the call is on disk.
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
		err = fmt.Errorf("sync log: %w", err)
		l.mu.Lock()
		l.err = err // Linux reports lost data only once
		l.mu.Unlock()
		return err
	}
	l.synced = now
	return nil
}

// Close syncs and closes the file.
func (l *Log) Close() error {
	return errors.Join(l.Sync(), l.file.Close())
}

// ReadLog is ReadLines for the file at path. It takes no lock and changes nothing, so a process may be writing the
// log.
func ReadLog(path string, each func(line []byte) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	defer f.Close()
	if err := ReadLines(f, each); err != nil {
		return fmt.Errorf("read log %s: %w", path, err)
	}
	return nil
}

// ReadRecords returns what parse makes of each line of the log at path; nothing if there is no such file.
func ReadRecords[T any](path string, parse func(line []byte) (T, error)) ([]T, error) {
	var records []T
	err := ReadLog(path, func(line []byte) error {
		r, err := parse(line)
		records = append(records, r)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return records, nil
}

// ReadLines passes each line of a log to each, without its line break; the slice is valid only during the call. It
// skips a torn last line, which a killed writer leaves. Any other line that is not JSON is an error that wraps
// [ErrDamaged]. An error of each ends the reading and is returned, except for io.EOF, which only ends it. each may
// be nil.
func ReadLines(r io.Reader, each func(line []byte) error) error {
	_, err := readLines(r, each)
	return err
}

// readLines returns how many bytes at the start of the log hold the lines that were read.
func readLines(log io.Reader, each func([]byte) error) (good int64, err error) {
	r := bufio.NewReaderSize(log, 1<<16)
	var line []byte
	for n := 1; ; n++ {
		if line, err = ReadLine(r, line, math.MaxInt); errors.Is(err, io.EOF) {
			return good, nil // a line without a line break is torn, or a process is writing it just now
		}
		if err != nil {
			return good, err
		}
		body := line[:len(line)-1]
		if !json.Valid(body) {
			if _, err := r.Peek(1); errors.Is(err, io.EOF) {
				return good, nil
			}
			return good, fmt.Errorf("line %d is not JSON: %w", n, ErrDamaged)
		}
		if each != nil {
			err = each(body)
		}
		if errors.Is(err, io.EOF) {
			return good, nil
		}
		if err != nil {
			return good, fmt.Errorf("line %d: %w", n, err)
		}
		good += int64(len(line))
	}
}

// ErrLongLine reports a line that is longer than its reader wants.
var ErrLongLine = errors.New("the line is too long")

// ReadLine returns the next line with its line break, and io.EOF together with a last one that has none. The line is
// written over buf, which may be nil. A line of more than most bytes is skipped, and the error is [ErrLongLine].
func ReadLine(r *bufio.Reader, buf []byte, most int) ([]byte, error) {
	buf = buf[:0]
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if long = long || len(buf)+len(part) > most; !long {
			buf = append(buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case long && (err == nil || errors.Is(err, io.EOF)):
			return nil, ErrLongLine
		default:
			return buf, err
		}
	}
}
