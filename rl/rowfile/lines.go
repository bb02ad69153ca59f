package rowfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"sync"

	"deepswe/rl"
)

// maxLine limits a line in bytes, and thus the memory that a file other than JSONL can take.
const maxLine = 1 << 30

// Read reads rollouts.jsonl line by line, and calls check, unless it is nil, for each rollout. Lines are decoded in
// parallel, with one or two in memory per processor, and yielded in order. The first error ends the sequence; it
// names the line, and the field if one is wrong.
func Read(r io.Reader, check func(*rl.Rollout) error) iter.Seq2[rl.Rollout, error] {
	return ordered(lines(r), func(l line) (rl.Rollout, error) {
		ro, err := DecodeRollout(l.text)
		if err == nil && check != nil {
			err = check(&ro)
		}
		if err != nil {
			return ro, l.locate(err)
		}
		return ro, nil
	})
}

// line is one line of a file, counted from 1.
type line struct {
	number int
	text   []byte
}

// locate adds the line number to an error.
func (l line) locate(err error) error {
	fe, ok := errors.AsType[*rl.FieldError](err)
	if !ok {
		return fmt.Errorf("line %d: %w", l.number, err)
	}
	fe.Line = l.number
	if len(fe.Field) > 0 && fe.Field[0] == '[' {
		fe.Field = "array" + fe.Field
	}
	return fe
}

// lines yields the non-blank lines of a file. Each is a new slice.
func lines(r io.Reader) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		br := bufio.NewReaderSize(r, 1<<20)
		for n := 1; ; n++ {
			text, err := readLine(br)
			if err != nil && err != io.EOF {
				yield(line{}, fmt.Errorf("line %d: %w", n, err))
				return
			}
			if len(bytes.TrimSpace(text)) > 0 && !yield(line{n, text}, nil) {
				return
			}
			if err == io.EOF {
				return
			}
		}
	}
}

// readLine reads up to and including the next line feed, which the last line may lack.
func readLine(br *bufio.Reader) ([]byte, error) {
	var text []byte
	for {
		part, err := br.ReadSlice('\n')
		text = append(text, part...)
		if err != bufio.ErrBufferFull {
			return text, err
		}
		if len(text) > maxLine {
			return nil, fmt.Errorf("longer than %d bytes: is this JSONL?", maxLine)
		}
	}
}

// ordered applies do to all elements in parallel and yields the results in order. Besides the element that the
// consumer has, at most two per processor are in memory. Its goroutines have ended when the loop over the results
// ends.
func ordered[T, U any](in iter.Seq2[T, error], do func(T) (U, error)) iter.Seq2[U, error] {
	type result struct {
		v   U
		err error
	}
	type job struct {
		v   T
		out chan result
	}
	return func(yield func(U, error) bool) {
		workers := runtime.GOMAXPROCS(0)
		jobs, queue, done := make(chan job), make(chan chan result, workers), make(chan struct{})
		var wg sync.WaitGroup
		defer wg.Wait()
		defer close(done)
		wg.Go(func() {
			defer close(queue)
			defer close(jobs)
			for v, err := range in {
				out := make(chan result, 1)
				select {
				case queue <- out:
				case <-done:
					return
				}
				if err != nil {
					out <- result{err: err}
					return
				}
				select {
				case jobs <- job{v, out}:
				case <-done:
					return
				}
			}
		})
		for range workers {
			wg.Go(func() {
				for j := range jobs {
					v, err := do(j.v)
					j.out <- result{v, err}
				}
			})
		}
		for out := range queue {
			r := <-out
			if !yield(r.v, r.err) || r.err != nil {
				return
			}
		}
	}
}
