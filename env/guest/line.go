package guest

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Line is a byte stream that survives the loss of its connection. Each end keeps what the other has not confirmed,
// and sends it again over a new connection, so that a [Client] and a [Server] never notice.
//
// On each connection, the guest's end first sends lineMagic and the number of bytes that it has received; the
// host's end replies with the line's key and its own number. Packets follow in both directions: the length of the
// payload (4 bytes, big endian), the number of bytes that the sender has consumed (8), and the payload.
type Line struct {
	heartbeat time.Duration // the host's interval; 0 on the guest's end
	writing   chan struct{} // a lock: held while writing to the connection
	acks      chan struct{} // requests a packet without payload
	done      chan struct{} // closed when the line has ended for good
	pump      sync.WaitGroup

	mu      sync.Mutex
	key     [keySize]byte
	keyed   bool
	current *connection // nil while there is no connection
	failure error       // set before done is closed
	heard   time.Time   // time of the last packet received

	sent, confirmed uint64        // bytes written, and confirmed by the other end
	held            [][]byte      // unconfirmed packets, with room for a header
	freed           chan struct{} // closed and replaced when held shrinks

	received, consumed uint64        // bytes received, and returned by Read
	told               uint64        // consumed, as last sent to the other end
	incoming           [][]byte      // received but not consumed; at most lineWindow bytes
	arrived            chan struct{} // signals new data in incoming
}

type connection struct {
	raw  io.ReadWriteCloser
	in   *bufio.Reader
	lost chan struct{} // closed when the line drops the connection
	why  chan error    // receives the reason before that

	// announced is the number of received bytes that this end sent in the handshake. The other end repeats
	// everything after them; skip is how many of those bytes arrived over the old connection in the meantime.
	announced, skip uint64
}

const (
	packetHeader = 12
	// lineWindow is the most bytes that may be unconfirmed.
	lineWindow = 512 << 10
	// Lengths with a special meaning: the other end closes the line, or asks for an answer.
	packetBye   = 1<<32 - 1
	packetProbe = 1<<32 - 2
)

// ErrHungUp reports that this end of the line was closed.
var ErrHungUp = errors.New("hung up")

// NewLine returns the host's end, without a connection. It probes the other end every heartbeat, and drops a
// connection on which nothing has arrived for three heartbeats.
func NewLine(heartbeat time.Duration) *Line {
	l := newLine(heartbeat)
	_, _ = rand.Read(l.key[:]) // never fails
	l.keyed = true
	l.pump.Go(l.beat)
	return l
}

// AcceptLine returns the guest's end. It accepts later connections only from the host that made the first.
func AcceptLine() *Line { return newLine(0) }

func newLine(heartbeat time.Duration) *Line {
	l := &Line{
		heartbeat: heartbeat, writing: make(chan struct{}, 1), acks: make(chan struct{}, 1), done: make(chan struct{}),
		freed: make(chan struct{}), arrived: make(chan struct{}, 1),
	}
	l.pump.Go(l.acknowledge)
	return l
}

// confirm drops the packets that the other end has received. The caller holds mu.
func (l *Line) confirm(count uint64) {
	if count <= l.confirmed || count > l.sent {
		return
	}
	drop := count - l.confirmed
	l.confirmed = count
	for drop > 0 {
		size := uint64(len(l.held[0]) - packetHeader)
		if drop < size {
			l.held[0] = append(make([]byte, packetHeader, packetHeader+size-drop), l.held[0][packetHeader+drop:]...)
			break
		}
		drop -= size
		l.held[0] = nil
		l.held = l.held[1:]
	}
	if len(l.held) == 0 {
		l.held = nil
	}
	close(l.freed)
	l.freed = make(chan struct{})
}

// put writes one packet. The caller holds the lock writing.
func (l *Line) put(c *connection, packet []byte, length uint32) error {
	l.mu.Lock()
	consumed := l.consumed
	l.told = consumed
	l.mu.Unlock()
	binary.BigEndian.PutUint32(packet, length)
	binary.BigEndian.PutUint64(packet[4:], consumed)
	_, err := c.raw.Write(packet)
	if err != nil {
		l.lose(c, err)
	}
	return err
}

// lose drops the current connection, provided that it is c or c is nil.
func (l *Line) lose(c *connection, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil || c != nil && l.current != c {
		return
	}
	l.drop(err)
}

// drop drops the current connection. The caller holds mu.
func (l *Line) drop(why error) {
	c := l.current
	l.current = nil
	c.why <- why
	close(c.lost)
	c.raw.Close()
}

// Write implements io.Writer. It blocks while lineWindow bytes are unconfirmed, and fails only if the line has
// ended.
func (l *Line) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		part := p[:min(len(p), chunk)]
		if err := l.write(part); err != nil {
			return n, err
		}
		n += len(part)
		p = p[len(part):]
	}
	return n, nil
}

func (l *Line) write(part []byte) error {
	packet := append(make([]byte, packetHeader, packetHeader+len(part)), part...)
	for {
		select {
		case l.writing <- struct{}{}:
		case <-l.done:
			return l.failure
		}
		l.mu.Lock()
		if l.failure != nil {
			l.mu.Unlock()
			<-l.writing
			return l.failure
		}
		if l.sent-l.confirmed+uint64(len(part)) > lineWindow {
			freed := l.freed
			l.mu.Unlock()
			<-l.writing
			select {
			case <-freed:
				continue
			case <-l.done:
				return l.failure
			}
		}
		l.sent += uint64(len(part))
		l.held = append(l.held, packet)
		c := l.current
		l.mu.Unlock()
		if c != nil {
			_ = l.put(c, packet, uint32(len(part))) // sent again over the next connection if this fails
		}
		<-l.writing
		return nil
	}
}

// Read implements io.Reader for one goroutine. It returns io.EOF when the other end has closed the line.
func (l *Line) Read(p []byte) (int, error) {
	for {
		l.mu.Lock()
		if len(l.incoming) > 0 {
			n := copy(p, l.incoming[0])
			if l.incoming[0] = l.incoming[0][n:]; len(l.incoming[0]) == 0 {
				l.incoming[0] = nil
				l.incoming = l.incoming[1:]
			}
			l.consumed += uint64(n)
			owed := l.consumed-l.told >= lineWindow/4
			l.mu.Unlock()
			if owed {
				l.ask()
			}
			return n, nil
		}
		failure := l.failure
		l.mu.Unlock()
		if failure != nil {
			return 0, failure
		}
		select {
		case <-l.arrived:
		case <-l.done:
		}
	}
}

// receive reads packets until the connection is lost. It never waits for Read, because packets also carry the
// confirmations that Write waits for.
func (l *Line) receive(c *connection) {
	for {
		if err := l.receivePacket(c); err != nil {
			l.lose(c, err)
			return
		}
	}
}

func (l *Line) receivePacket(c *connection) error {
	header, err := c.in.Peek(packetHeader)
	if err != nil {
		return err
	}
	length, count := binary.BigEndian.Uint32(header), binary.BigEndian.Uint64(header[4:])
	_, _ = c.in.Discard(packetHeader) // cannot fail after Peek
	l.mu.Lock()
	if l.current == c {
		l.confirm(count)
		l.heard = time.Now()
	}
	l.mu.Unlock()
	switch {
	case length == packetBye:
		l.Fail(io.EOF)
		return io.EOF
	case length == packetProbe:
		l.ask()
		return nil
	case length > chunk:
		return fmt.Errorf("%w: a packet of %d bytes", errFrame, length)
	case length == 0:
		return nil
	}
	payload := make([]byte, length)
	n, err := io.ReadFull(c.in, payload)
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > 0 && l.current == c { // otherwise they are sent again over the next connection
		known := min(c.skip, uint64(n))
		c.skip -= known
		if known == uint64(n) {
			return err
		}
		l.received += uint64(n) - known
		l.incoming = append(l.incoming, payload[known:n])
		select {
		case l.arrived <- struct{}{}:
		default:
		}
	}
	return err
}

// ask requests that acknowledge send a packet.
func (l *Line) ask() {
	select {
	case l.acks <- struct{}{}:
	default:
	}
}

// acknowledge sends requested packets without payload. It has a goroutine of its own because receive must never
// wait for a write.
func (l *Line) acknowledge() {
	for {
		select {
		case <-l.acks:
			l.signal(0)
		case <-l.done:
			return
		}
	}
}

// signal sends a packet without payload, of a length with a special meaning or 0.
func (l *Line) signal(length uint32) {
	select {
	case l.writing <- struct{}{}:
	case <-l.done:
		return
	}
	defer func() { <-l.writing }()
	l.mu.Lock()
	c := l.current
	l.mu.Unlock()
	if c != nil {
		_ = l.put(c, make([]byte, packetHeader), length)
	}
}

// beat probes the other end and drops connections that have fallen silent, because load balancers and crashed
// machines cut them without notice.
func (l *Line) beat() {
	ticker := time.NewTicker(l.heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-l.done:
			return
		}
		l.mu.Lock()
		c, silent := l.current, time.Since(l.heard)
		l.mu.Unlock()
		switch {
		case c == nil:
		case silent > 3*l.heartbeat:
			l.lose(c, fmt.Errorf("nothing was received for %v", silent.Round(time.Second)))
		default:
			l.pump.Go(func() { l.signal(packetProbe) }) // writing may block
		}
	}
}

// Done returns a channel that is closed when the line has ended for good.
func (l *Line) Done() <-chan struct{} { return l.done }

// Fail ends the line for good. Read and Write return err from then on.
func (l *Line) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		return
	}
	l.failure = err
	l.held = nil
	close(l.done)
	if l.current != nil {
		l.drop(err)
	}
}

// Close closes the line and tells the other end, if there is a connection. The host's end then waits up to 10 s for
// the guest to close its own, which it does when everything in the sandbox has ended.
func (l *Line) Close() error {
	const patience = 10 * time.Second
	l.mu.Lock()
	c := l.current
	l.mu.Unlock()
	if c != nil && l.heartbeat > 0 {
		said := make(chan struct{})
		go func() {
			defer close(said)
			l.signal(packetBye)
		}()
		select {
		case <-c.lost:
		case <-time.After(patience):
		}
		l.Fail(ErrHungUp)
		<-said
	}
	l.Fail(ErrHungUp)
	l.pump.Wait()
	return nil
}
