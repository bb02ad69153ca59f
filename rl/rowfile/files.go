package rowfile

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"

	"deepswe/env/disk"
	"deepswe/rl"
)

// Source is the rollouts of one batch: one or several files of rollouts.jsonl, compressed or not. It can be read
// several times, and yields the same rollouts in the same order each time.
type Source struct{ files []file }

// file is one file of a source.
type file struct {
	path string
	// name is the file's name as the user gave it.
	name string
	// spooled reports that the file is a temporary copy, which Close removes.
	spooled bool
}

// Open opens files for reading them more than once. "-" is stdin. Anything that cannot be read twice, such as a
// pipe, is first copied to a temporary file, which Close removes.
func Open(stdin io.Reader, paths ...string) (*Source, error) {
	s := &Source{}
	for _, path := range paths {
		f, err := open(stdin, path)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open rollouts: %w", err), s.Close())
		}
		s.files = append(s.files, f)
	}
	return s, nil
}

func open(stdin io.Reader, path string) (file, error) {
	if path == "-" {
		return spool(stdin, "stdin")
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return file{}, err
	case info.IsDir():
		return file{}, fmt.Errorf("%s is a directory; use --run for the directory of a run", path)
	case info.Mode().IsRegular():
		return file{path: path, name: path}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return file{}, err
	}
	defer f.Close()
	return spool(f, path)
}

func spool(r io.Reader, name string) (file, error) {
	f, err := os.CreateTemp("", "deepswe-rollouts-*")
	if err != nil {
		return file{}, fmt.Errorf("spool %s: %w", name, err)
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name())
		return file{}, fmt.Errorf("spool %s: %w", name, err)
	}
	return file{path: f.Name(), name: name, spooled: true}, nil
}

// Close removes temporary copies.
func (s *Source) Close() error {
	var errs []error
	for _, f := range s.files {
		if f.spooled {
			errs = append(errs, os.Remove(f.path))
		}
	}
	return errors.Join(errs...)
}

// Rollouts reads the files from the start. It calls check, unless it is nil, for each rollout; errors name the file and
// line. An error, or the end of ctx, ends the sequence.
func (s *Source) Rollouts(ctx context.Context, check func(*rl.Rollout) error) iter.Seq2[rl.Rollout, error] {
	return read(ctx, s, func(r io.Reader, _ string) iter.Seq2[rl.Rollout, error] { return Read(r, check) })
}

// read reads the files from the start, each with from, which gets its name as well. Errors name the file. An error, or
// the end of ctx, ends the sequence.
func read[T any](
	ctx context.Context, s *Source, from func(r io.Reader, name string) iter.Seq2[T, error],
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		one := func(f file) (more bool) {
			in, err := Decompressed(f.path)
			if err != nil {
				var none T
				yield(none, fmt.Errorf("%s: %w", f.name, err))
				return false
			}
			defer in.Close()
			for v, err := range from(in, f.name) {
				if err != nil {
					err = fmt.Errorf("%s: %w", f.name, err)
				} else {
					err = ctx.Err()
				}
				if !yield(v, err) || err != nil {
					return false
				}
			}
			return true
		}
		for _, f := range s.files {
			if !one(f) {
				return
			}
		}
	}
}

// Decompressed opens a file for reading, and decompresses it if it starts like zstd.
func Decompressed(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	br := bufio.NewReaderSize(f, 1<<16)
	if head, _ := br.Peek(4); !bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
		return opened{br, func() {}, f}, nil
	}
	d, err := zstd.NewReader(br)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read zstd: %w", err), f.Close())
	}
	return opened{d, d.Close, f}, nil
}

// opened is an open file with a reader of its content; end ends the decompression, if any.
type opened struct {
	io.Reader
	end  func()
	file *os.File
}

func (o opened) Close() error {
	o.end()
	return o.file.Close()
}

// Create writes a file, compressed if its name ends in .zst. The file replaces an existing one only after write has
// succeeded; a pipe or device is written to directly. An error of write is returned as it is.
func Create(path string, write func(io.Writer) error) error {
	var failed error
	do := func(w io.Writer) error {
		if strings.HasSuffix(path, ".zst") {
			failed = compressed(w, write)
		} else {
			failed = buffered(w, write)
		}
		return failed
	}
	if info, err := os.Stat(path); err != nil || info.Mode().IsRegular() {
		err = disk.WriteStream(path, do)
		return cmp.Or(failed, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return errors.Join(do(f), f.Close())
}

func buffered(w io.Writer, write func(io.Writer) error) error {
	b := bufio.NewWriterSize(w, 1<<16)
	if err := write(b); err != nil {
		return err
	}
	return b.Flush()
}

func compressed(w io.Writer, write func(io.Writer) error) error {
	z, err := zstd.NewWriter(w)
	if err != nil {
		return err
	}
	if err := buffered(z, write); err != nil {
		// Close ends the encoder's goroutines. What it still writes is discarded by the caller.
		_ = z.Close()
		return err
	}
	return z.Close()
}
