package guest

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// protocol is the version of the wire format; both ends must have the same.
const protocol = 7

// A frame is the length of its payload (4 bytes, big endian), its kind (1), the number of its call (4), and the
// payload. Payloads are bounded, so that a broken peer causes an error rather than exhausting memory; longer data
// is split into several frames, and calls take turns.
const (
	frameHeader = 9
	maxFrame    = 1 << 20
	// chunk is the most bytes of a stream in one frame, small enough that a ping need not wait long behind a file.
	chunk = 64 << 10
	// window is how many bytes of a body the receiver buffers ahead of its reader.
	window = 4 * chunk
	// buffered is the size of each stream's buffers, small because one host process has hundreds of clients.
	buffered = 16 << 10
)

// kind is the type of a frame, and says which end sends it.
type kind byte

const (
	kindHello  kind = iota + 1 // guest: the first frame, a Hello
	kindCall                   // host: a call's verb and arguments
	kindData                   // host: a piece of the call's body; guest: a piece of its result
	kindEnd                    // host: the body is complete
	kindAbort                  // host: the body cannot be completed
	kindCancel                 // host: cancel the call
	kindCredit                 // guest: accepts that many more bytes of the call's body
	kindReply                  // guest: the call succeeded; the end of its result
	kindError                  // guest: the call failed
	kindAlive                  // host: a heartbeat
)

type frame struct {
	kind    kind
	id      uint32
	payload []byte
	// more is set if another frame follows at once, so that both go into one write. It is not transmitted.
	more bool
}

var errFrame = errors.New("malformed frame")

// readFrame reads one frame. The payload is in buf if it fits, and otherwise newly allocated.
func readFrame(r *bufio.Reader, buf []byte) (frame, error) {
	header, err := r.Peek(frameHeader)
	if err != nil {
		if err == io.EOF && len(header) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	size := binary.BigEndian.Uint32(header)
	f := frame{kind: kind(header[4]), id: binary.BigEndian.Uint32(header[5:])}
	if size > maxFrame {
		return frame{}, fmt.Errorf("%w: %d bytes announced, the limit is %d", errFrame, size, maxFrame)
	}
	if f.kind < kindHello || f.kind > kindAlive {
		return frame{}, fmt.Errorf("%w: unknown kind %d", errFrame, f.kind)
	}
	_, _ = r.Discard(frameHeader) // cannot fail: the bytes were peeked
	if int(size) <= cap(buf) {
		f.payload = buf[:size]
	} else {
		f.payload = make([]byte, size)
	}
	if _, err := io.ReadFull(r, f.payload); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	return f, nil
}

func writeFrame(w *bufio.Writer, f frame) error {
	var header [frameHeader]byte
	binary.BigEndian.PutUint32(header[:], uint32(len(f.payload)))
	header[4] = byte(f.kind)
	binary.BigEndian.PutUint32(header[5:], f.id)
	if _, err := w.Write(header[:]); err != nil {
		return err
	}
	_, err := w.Write(f.payload)
	return err
}

// sender writes the frames of many goroutines to one stream. If nothing is queued, the caller writes by itself,
// unless the sender is patient; otherwise one goroutine writes the queued frames, combining them into few writes.
type sender struct {
	// patient makes send only queue frames: a caller that gave up during its own write would leave half a frame in
	// the stream.
	patient bool
	queue   chan frame
	closing sync.Once
	closed  chan struct{} // closed by stop: run writes what is queued and returns
	done    chan struct{} // closed when run has returned
	broken  chan error    // the error of a failed write outside of run

	waiting atomic.Int32 // frames that are queued or being written by run
	mu      sync.Mutex   // held while a goroutine writes
	out     *bufio.Writer
}

func newSender(w io.Writer, patient bool) *sender {
	return &sender{
		patient: patient, queue: make(chan frame, 16), closed: make(chan struct{}), done: make(chan struct{}),
		broken: make(chan error, 1), out: bufio.NewWriterSize(w, buffered),
	}
}

// run writes queued frames until stop is called or a write fails. It returns the first error.
func (s *sender) run() error {
	defer close(s.done)
	for {
		select {
		case f := <-s.queue:
			s.mu.Lock()
			err := s.write(f)
			s.mu.Unlock()
			s.waiting.Add(-1)
			if err != nil {
				return err
			}
		case err := <-s.broken:
			return err
		case <-s.closed:
			if len(s.queue) == 0 {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.out.Flush()
			}
		}
	}
}

// write writes a frame, and flushes unless another frame follows at once. The caller holds mu.
func (s *sender) write(f frame) error {
	if err := writeFrame(s.out, f); err != nil {
		return err
	}
	if f.more || len(s.queue) > 0 {
		return nil
	}
	return s.out.Flush()
}

// writeNow is write for callers other than run; it reports errors to run.
func (s *sender) writeNow(f frame) error {
	err := s.write(f)
	if err == nil {
		return nil
	}
	select {
	case s.broken <- err:
	default:
	}
	return fmt.Errorf("%w: %w", ErrClosed, err)
}

// stop makes run return once the queue is empty.
func (s *sender) stop() { s.closing.Do(func() { close(s.closed) }) }

// send writes or queues a frame and takes ownership of its payload. Frames of one goroutine stay in order.
func (s *sender) send(ctx context.Context, f frame) error {
	if !s.patient && s.waiting.Load() == 0 && s.mu.TryLock() {
		if s.waiting.Load() == 0 {
			defer s.mu.Unlock()
			return s.writeNow(f)
		}
		s.mu.Unlock()
	}
	s.waiting.Add(1)
	select {
	case s.queue <- f:
		return nil
	case <-ctx.Done():
		s.waiting.Add(-1)
		return context.Cause(ctx)
	case <-s.done:
		s.waiting.Add(-1)
		return ErrClosed
	}
}
