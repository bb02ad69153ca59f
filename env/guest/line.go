package guest

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Line is a byte stream that outlives the connections it runs over. Both ends keep what the other has not confirmed; a
// new connection goes on where the last one broke, so that the calls of a [Client] and of a [Server] never notice.
//
// The wire of a connection: the guest's end says what it is and how many bytes it has received, the host's end answers
// with the key of the line and its own count; then come packets. A packet is the length of its payload (4 bytes, big
// endian), how many bytes its sender has taken in so far (8), and the payload.
type Line struct {
	heartbeat time.Duration // of the host's end; 0 on the guest's
	writing   chan struct{} // held by the one who writes to the connection
	acks      chan struct{} // asks for a packet without payload
	done      chan struct{} // the line is dead for good
	pump      sync.WaitGroup

	mu      sync.Mutex
	key     [keySize]byte
	keyed   bool
	current *connection // nil between two connections
	failure error       // set before done is closed
	heard   time.Time   // when something came last

	sent, confirmed uint64        // bytes given to Write, and those that the other end has
	held            [][]byte      // packets whose payload has not been confirmed, with room for the header
	freed           chan struct{} // closed and replaced when held shrinks

	received, consumed uint64        // bytes of the other end, and those that Read has returned
	told               uint64        // what the other end knows of consumed
	incoming           [][]byte      // received and not consumed: no more than the other end may send unconfirmed
	arrived            chan struct{} // there is something in incoming
}

// connection is one of the transports of a line.
type connection struct {
	raw  io.ReadWriteCloser
	in   *bufio.Reader
	lost chan struct{} // closed when the line has given it up
	why  chan error    // gets one error before that

	// announced is how many bytes this end said that it has. What still came over the former connection after that
	// comes again, and skip counts it.
	announced, skip uint64
}

const (
	keySize      = 16
	packetHeader = 12
	// lineWindow is how many bytes may be on their way without being confirmed.
	lineWindow = 512 << 10
	// The lengths that no packet has: the other end hangs up, or wants a sign of life.
	packetBye   = 1<<32 - 1
	packetProbe = 1<<32 - 2
	// lineMagic is what the guest's end says first. What comes before it on a connection is not the guest's.
	lineMagic = "\x00deepswe line 1\n"
	// HandshakeTimeout is how long either end may take to say what it has to on a new connection.
	HandshakeTimeout = 10 * time.Second
)

// ErrHungUp says that this end of a line was closed.
var ErrHungUp = errors.New("hung up")

// errLineKey refuses a connection that is not the host's.
var errLineKey = errors.New("another line's key")

// NewLine returns the host's end, which has no connection yet. It sends a sign of life every heartbeat, and gives a
// connection up after three that were not answered.
func NewLine(heartbeat time.Duration) *Line {
	l := newLine(heartbeat)
	_, _ = rand.Read(l.key[:]) // never fails
	l.keyed = true
	l.pump.Go(l.beat)
	return l
}

// AcceptLine returns the guest's end. It belongs to the host of the first connection.
func AcceptLine() *Line { return newLine(0) }

func newLine(heartbeat time.Duration) *Line {
	l := &Line{
		heartbeat: heartbeat, writing: make(chan struct{}, 1), acks: make(chan struct{}, 1), done: make(chan struct{}),
		freed: make(chan struct{}), arrived: make(chan struct{}, 1),
	}
	l.pump.Go(l.acknowledge)
	return l
}

// Attach makes conn, which the line owns from then on, its connection, in place of a former one. It returns a channel
// that gets the reason when that is lost. The caller closes conn when the handshake takes too long.
func (l *Line) Attach(conn io.ReadWriteCloser) (lost <-chan error, err error) {
	c := &connection{
		raw: conn, in: bufio.NewReaderSize(conn, buffered), lost: make(chan struct{}), why: make(chan error, 1),
	}
	var peer uint64
	if l.heartbeat > 0 {
		peer, err = l.greetGuest(c)
	} else {
		peer, err = l.greetHost(c)
	}
	if err == nil {
		err = l.install(c, peer)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c.why, nil
}

// greetGuest is the host's half of the handshake.
func (l *Line) greetGuest(c *connection) (peer uint64, err error) {
	if err := skipTo(c.in, lineMagic); err != nil {
		return 0, fmt.Errorf("no greeting: %w", err)
	}
	var count [8]byte
	if _, err := io.ReadFull(c.in, count[:]); err != nil {
		return 0, fmt.Errorf("greeting: %w", err)
	}
	l.mu.Lock()
	c.announced = l.received
	answer := binary.BigEndian.AppendUint64(bytes.Clone(l.key[:]), c.announced)
	l.mu.Unlock()
	_, err = c.raw.Write(answer)
	return binary.BigEndian.Uint64(count[:]), err
}

// skipTo reads up to the end of a text that has no second of its first byte.
func skipTo(in *bufio.Reader, text string) error {
	const most = 64 << 10
	matched := 0
	for range most {
		b, err := in.ReadByte()
		if err != nil {
			return err
		}
		switch b {
		case text[matched]:
			matched++
		case text[0]:
			matched = 1
		default:
			matched = 0
		}
		if matched == len(text) {
			return nil
		}
	}
	return errors.New("something else speaks there")
}

// greetHost is the guest's half. Only the host that made the first connection knows the key.
func (l *Line) greetHost(c *connection) (peer uint64, err error) {
	l.mu.Lock()
	c.announced = l.received
	greeting := binary.BigEndian.AppendUint64([]byte(lineMagic), c.announced)
	l.mu.Unlock()
	if _, err := c.raw.Write(greeting); err != nil {
		return 0, err
	}
	var answer [keySize + 8]byte
	if _, err := io.ReadFull(c.in, answer[:]); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.keyed {
		l.key, l.keyed = [keySize]byte(answer[:keySize]), true
	}
	if subtle.ConstantTimeCompare(l.key[:], answer[:keySize]) != 1 {
		return 0, errLineKey
	}
	return binary.BigEndian.Uint64(answer[keySize:]), nil
}

// install makes c the current connection and sends again what the other end has not received.
func (l *Line) install(c *connection, peer uint64) error {
	// Writers wait, so that what is sent again goes first; one that hangs on the former connection is freed.
	l.lose(nil, errors.New("replaced by a new connection"))
	select {
	case l.writing <- struct{}{}:
	case <-l.done:
		return l.failure
	}
	defer func() { <-l.writing }()
	l.lose(nil, errors.New("replaced by a new connection"))
	l.mu.Lock()
	if l.failure != nil {
		l.mu.Unlock()
		return l.failure
	}
	if peer < l.confirmed || peer > l.sent {
		l.mu.Unlock()
		return fmt.Errorf("the other end has %d bytes, which is not between %d and %d", peer, l.confirmed, l.sent)
	}
	l.confirm(peer)
	c.skip = l.received - c.announced
	l.current, l.heard = c, time.Now()
	l.pump.Go(func() { l.receive(c) })
	again := append([][]byte(nil), l.held...)
	l.mu.Unlock()
	for _, packet := range again {
		if err := l.put(c, packet, uint32(len(packet)-packetHeader)); err != nil {
			return nil // lost again: the caller learns it from the channel
		}
	}
	return nil
}

// confirm drops what the other end has received. The caller holds mu.
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

// put writes one packet. The caller holds writing.
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

// lose gives the current connection up, if it is still c or c is nil.
func (l *Line) lose(c *connection, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil || c != nil && l.current != c {
		return
	}
	l.drop(err)
}

// drop gives the current connection up. The caller holds mu.
func (l *Line) drop(why error) {
	c := l.current
	l.current = nil
	c.why <- why
	close(c.lost)
	c.raw.Close()
}

// Write implements io.Writer. It waits while too much is on its way, and fails only when the line has.
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
			_ = l.put(c, packet, uint32(len(part))) // what is lost with the connection is sent again
		}
		<-l.writing
		return nil
	}
}

// Read implements io.Reader, for one goroutine. It returns io.EOF when the other end has hung up.
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

// receive reads a connection for as long as it lasts. It never waits for a reader: what confirms our own bytes comes
// the same way as the other end's.
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
	_, _ = c.in.Discard(packetHeader) // cannot fail: the bytes were peeked
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
	if n > 0 && l.current == c { // else these bytes come again over the next connection
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

// ask lets the pump send what was received.
func (l *Line) ask() {
	select {
	case l.acks <- struct{}{}:
	default:
	}
}

// acknowledge sends packets without payload. It is a goroutine of its own: whoever reads must never wait for a write.
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

// signal sends a packet without payload.
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

// beat gives up connections that have fallen silent: balancers and dead machines cut them without a word.
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
			l.lose(c, fmt.Errorf("nothing was heard for %v", silent.Round(time.Second)))
		default:
			l.pump.Go(func() { l.signal(packetProbe) }) // a write may hang
		}
	}
}

// Done is closed when the line is dead for good.
func (l *Line) Done() <-chan struct{} { return l.done }

// Fail ends the line for good: Read and Write return err from then on.
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

// Close hangs up: the other end learns it where there is a connection, and the host's end waits a moment for it to hang
// up in turn, by which everything in the sandbox has ended.
func (l *Line) Close() error {
	const patience = 10 * time.Second
	l.mu.Lock()
	c := l.current
	l.mu.Unlock()
	if c != nil && l.heartbeat > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		said := make(chan struct{})
		go func() {
			defer close(said)
			l.signal(packetBye)
		}()
		select {
		case <-said:
			select {
			case <-c.lost:
			case <-timer.C:
			}
		case <-c.lost:
		case <-timer.C:
		}
		l.Fail(ErrHungUp)
		<-said
	}
	l.Fail(ErrHungUp)
	l.pump.Wait()
	return nil
}
