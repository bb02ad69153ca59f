package docker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"deepswe/env"
	"deepswe/env/fleet"
)

// tidyTimeout is how long a guest may take to make its container removable.
const tidyTimeout = 20 * time.Second

// Sandbox is a running container. Its methods are calls to the guest.
type Sandbox struct {
	*env.GuestSandbox

	d      *daemon
	id     string
	image  image
	spec   env.Spec
	user   user
	stream *stream

	// closing ends when Close begins, because from then on the end of the stream is expected.
	closing context.Context
	leave   context.CancelFunc
	// ended ends when the daemon reports the end of the container's first process, with the reason as its cause.
	ended context.Context
	end   context.CancelCauseFunc

	original original

	mu     sync.Mutex
	closed bool
}

var _ env.Sandbox = (*Sandbox)(nil)

func newSandbox(d *daemon, b launch) *Sandbox {
	s := &Sandbox{d: d, image: b.image, spec: b.spec, user: b.user}
	s.closing, s.leave = context.WithCancel(context.Background())
	s.ended, s.end = context.WithCancelCause(context.Background())
	return s
}

// Close removes the container and waits until it no longer exists.
func (s *Sandbox) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if s.closing.Err() == nil && s.ended.Err() == nil {
		tidying, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
		if err := s.Tidy(tidying); err != nil {
			s.d.p.log.Debug("cannot tidy a sandbox", "error", err)
		}
		cancel()
	}
	s.leave()
	// Remove the container before closing the connection, which would make the guest end at the same time.
	err := errors.Join(s.d.remove(ctx, s.id), s.closeOriginal(ctx))
	s.d.unregister(s)
	s.closed = err == nil
	return errors.Join(err, s.GuestSandbox.Close(ctx))
}

// gone explains why the stream to the guest ended.
func (s *Sandbox) gone(err error) error {
	if _, up := s.d.known(); !up {
		return fmt.Errorf("the docker daemon at %s went away", s.d.host)
	}
	// The daemon reports the end of a container slightly later than its stream ends.
	select {
	case <-s.closing.Done():
		return errors.New("the sandbox was closed")
	case <-s.ended.Done():
	case <-time.After(300 * time.Millisecond):
		return fmt.Errorf("the connection to the container broke: %w", err)
	}
	why := context.Cause(s.ended)
	if said := strings.TrimSpace(s.stream.stderr.String()); said != "" {
		why = fmt.Errorf("%w: %s", why, said)
	}
	return why
}

// reportEnd processes the daemon's report that the container has ended.
func (s *Sandbox) reportEnd(exit string, outOfMemory bool) {
	why := errors.New("the container ended with exit code " + exit)
	if outOfMemory {
		why = fmt.Errorf("the container ran out of memory (limit %d MiB)", s.d.limits(s.spec.Limits).Memory>>20)
	}
	s.end(why)
}

// Claim assigns a sandbox that was started ahead of time to a spec's rollout. Labels cannot be changed, so the
// container is renamed.
func (s *Sandbox) Claim(ctx context.Context, spec env.Spec) {
	fleet.Assign(&s.spec, spec)
	ctx, cancel := context.WithTimeout(ctx, s.d.p.waits.ping)
	defer cancel()
	_, err := s.d.cli.ContainerRename(ctx, s.id, client.ContainerRenameOptions{NewName: sandboxName(spec)})
	if err != nil {
		s.d.p.log.Warn("cannot rename a container", "error", err)
	}
}

// stream is the guest's attached standard input and output. The output consists of frames: a header of eight bytes
// (stream number, three zeros, length in big endian) and a payload. Read returns standard output; the end of
// standard error is kept, because a guest that dies writes the reason there.
//
// Only one goroutine may read; several may close. Callers serialise their writes.
type stream struct {
	conn net.Conn
	in   *bufio.Reader
	left int // unread bytes of the current payload

	stderr tailBuffer
	// gone explains the error that ended the stream.
	gone func(error) error

	closeOnce func() error
}

// Stream numbers in a frame's header. The last one carries the daemon's own errors.
const (
	frameStdout = 1
	frameStderr = 2
	frameDaemon = 3
)

func newStream(h client.HijackedResponse, gone func(error) error) *stream {
	return &stream{
		conn: h.Conn, in: bufio.NewReaderSize(h.Reader, 16<<10), gone: gone, closeOnce: sync.OnceValue(h.Conn.Close),
	}
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
		if err := s.nextPayload(); err != nil {
			return 0, err
		}
	}
	// Large reads bypass bufio's buffer.
	n, err := s.in.Read(p[:min(len(p), s.left)])
	s.left -= n
	return n, within(err)
}

// within turns an EOF inside a frame into an error.
func within(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// nextPayload reads frames up to the next payload of standard output.
func (s *stream) nextPayload() error {
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

func (s *stream) Close() error { return s.closeOnce() }

// tailBuffer keeps the last 2 KiB written to it.
type tailBuffer struct {
	mu  sync.Mutex
	buf []byte
}

func (w *tailBuffer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = append(w.buf, p...)
	if over := len(w.buf) - 2048; over > 0 {
		w.buf = append(w.buf[:0], w.buf[over:]...)
	}
	return len(p), nil
}

func (w *tailBuffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.buf)
}
