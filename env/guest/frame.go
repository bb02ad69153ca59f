package guest

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// protocol is the number of the wire format; both ends must agree on it.
const protocol = 1

// A frame on the wire is the length of its payload (4 bytes, big endian), its kind (1), the call it belongs to (4), and
// the payload. Payloads are bounded, so that a broken peer costs an error and not the memory; what is larger travels in
// several frames, and calls take turns.
const (
	frameHeader = 9
	maxFrame    = 1 << 20
	// chunk is how much of a stream travels in one frame: small enough that a ping never waits long behind a file.
	chunk = 64 << 10
	// window is how many bytes of a body the receiver takes ahead of its reader.
	window = 4 * chunk
	// buffered is the size of the stream's buffers: hundreds of clients live in one host process.
	buffered = 16 << 10
)

// kind says what a frame means.
type kind byte

const (
	kindHello  kind = iota + 1 // guest: who it is; the first frame
	kindCall                   // host: verb and arguments
	kindData                   // host: a piece of the call's body; guest: a piece of its result
	kindEnd                    // host: the body is complete
	kindAbort                  // host: the body cannot be completed
	kindCancel                 // host: end the call
	kindCredit                 // guest: that many more bytes of body are welcome
	kindReply                  // guest: the call's result, or what remains of it
	kindError                  // guest: the call failed
	kindAlive                  // host: nothing to say, still here
)

type frame struct {
	kind    kind
	id      uint32
	payload []byte
	// more says that the next frame is about to be queued: both leave in one write. It does not travel.
	more bool
}

var errFrame = errors.New("malformed frame")

// readFrame reads one frame. The payload lies in buf where it fits, else in new memory.
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

// sender puts the frames of many goroutines on one stream. One goroutine writes, so that a caller who gives up leaves
// no half frame behind, and frames that are ready together leave in one write.
type sender struct {
	queue   chan frame
	closing sync.Once
	closed  chan struct{} // what is queued is written, and then nothing more
	done    chan struct{} // the writer has ended
}

func newSender() *sender {
	return &sender{queue: make(chan frame, 16), closed: make(chan struct{}), done: make(chan struct{})}
}

// run writes until stop is called or a write fails. It answers with the first error.
func (s *sender) run(w io.Writer) error {
	defer close(s.done)
	out := bufio.NewWriterSize(w, buffered)
	var f frame
	for {
		if len(s.queue) == 0 && !f.more {
			if err := out.Flush(); err != nil {
				return err
			}
		}
		select {
		case f = <-s.queue:
			if err := writeFrame(out, f); err != nil {
				return err
			}
		case <-s.closed:
			if len(s.queue) == 0 {
				return out.Flush()
			}
		}
	}
}

// stop lets run end once the queue is empty.
func (s *sender) stop() { s.closing.Do(func() { close(s.closed) }) }

// send queues a frame, whose payload belongs to the sender from then on.
func (s *sender) send(ctx context.Context, f frame) error {
	select {
	case s.queue <- f:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.done:
		return ErrClosed
	}
}
