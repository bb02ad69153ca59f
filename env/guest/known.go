package guest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"iter"
)

// list is the body of a [RememberCall]: each file as a message, preceded by its length.
type list struct {
	files []KnownFile
	left  []byte
}

func (l *list) Read(p []byte) (int, error) {
	for len(l.left) < len(p) && len(l.files) > 0 {
		message := encode(&l.files[0])
		l.left = append(binary.AppendUvarint(l.left, uint64(len(message))), message...)
		l.files = l.files[1:]
	}
	if len(l.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, l.left)
	l.left = append(l.left[:0], l.left[n:]...)
	return n, nil
}

// Known reads the files that come with a [RememberCall].
func (c *Call) Known() iter.Seq2[KnownFile, error] {
	return func(yield func(KnownFile, error) bool) {
		in := bufio.NewReaderSize(c.body, chunk)
		for {
			f, err := readKnown(in)
			if errors.Is(err, io.EOF) || !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// readKnown returns io.EOF at the end of the list, and another error if it is incomplete or malformed.
func readKnown(in *bufio.Reader) (f KnownFile, err error) {
	size, err := binary.ReadUvarint(in)
	if err != nil {
		return f, err
	}
	if size > maxFrame {
		return f, errFrame
	}
	message := make([]byte, size)
	if _, err := io.ReadFull(in, message); err != nil || !decode(message, &f) {
		return f, errFrame
	}
	return f, nil
}
