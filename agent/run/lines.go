package run

import (
	"bufio"
	"errors"
	"io"
)

// lineReader reads lines of any length, with their newline, and knows whether there is more.
type lineReader struct {
	r   *bufio.Reader
	buf []byte
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 1<<16)}
}

// next returns a line that is valid until the next call. A last line without a newline comes without one, then io.EOF.
func (l *lineReader) next() ([]byte, error) {
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		l.buf = append(l.buf, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(l.buf) > 0:
			return l.buf, nil
		default:
			return l.buf, err
		}
	}
}

// last tells that nothing follows the line that next returned.
func (l *lineReader) last() bool {
	_, err := l.r.Peek(1)
	return errors.Is(err, io.EOF)
}
