package docker

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/moby/moby/client"
)

// stream is the guest's standard input and output, as attached: the output comes in frames of an eight byte header
// (stream number, three zeros, big-endian length) and a payload. Frames of standard output are read; the end of
// standard error is kept, because it is what a guest that dies has to say.
//
// One goroutine reads, any number may close. Writes are not serialised here.
type stream struct {
	conn net.Conn
	in   *bufio.Reader
	left int // payload of standard output not read yet

	stderr lastWords
	// gone explains the error that ended the stream.
	gone func(error) error

	closing sync.Once
	err     error
}

// The stream numbers of a frame's header. A daemon reports its own errors on the last one.
const (
	frameStdout = 1
	frameStderr = 2
	frameDaemon = 3
)

func newStream(h client.HijackedResponse, gone func(error) error) *stream {
	return &stream{conn: h.Conn, in: bufio.NewReaderSize(h.Reader, 16<<10), gone: gone}
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.read(p)
	if err != nil {
		err = s.gone(err)
	}
	return n, err
}

func (s *stream) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for s.left == 0 {
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	// No copy of our own: the reader hands large reads straight to the connection.
	n, err := s.in.Read(p[:min(len(p), s.left)])
	s.left -= n
	return n, within(err)
}

// within is the error of reading inside a frame, where the stream must not end.
func within(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// next reads frames up to the beginning of standard output's next payload.
func (s *stream) next() error {
	var header [8]byte
	if _, err := io.ReadFull(s.in, header[:]); err != nil {
		return err
	}
	size := int64(binary.BigEndian.Uint32(header[4:]))
	switch header[0] {
	case frameStdout:
		s.left = int(size)
		return nil
	case frameStderr:
		_, err := io.CopyN(&s.stderr, s.in, size)
		return within(err)
	case frameDaemon:
		said, err := io.ReadAll(io.LimitReader(s.in, min(size, 4096)))
		if err != nil {
			return err
		}
		return fmt.Errorf("the daemon broke the stream: %s", said)
	}
	return fmt.Errorf("unknown frame %d on the attached stream", header[0])
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.conn.Write(p)
	if err != nil {
		err = s.gone(err)
	}
	return n, err
}

func (s *stream) Close() error {
	s.closing.Do(func() { s.err = s.conn.Close() })
	return s.err
}

// lastWords keeps the end of what is written to it.
type lastWords struct {
	mu  sync.Mutex
	buf []byte
}

func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = append(w.buf, p...)
	if over := len(w.buf) - 2048; over > 0 {
		w.buf = append(w.buf[:0], w.buf[over:]...)
	}
	return len(p), nil
}

func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.buf)
}
