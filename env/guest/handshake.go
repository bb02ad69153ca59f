package guest

import (
	"bufio"
	"bytes"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	// keySize is the length of a line's key in bytes.
	keySize = 16
	// lineMagic starts the guest's handshake. Whatever precedes it on a connection is ignored.
	lineMagic = "\x00deepswe line 1\n"
	// HandshakeTimeout limits each end's part of the handshake.
	HandshakeTimeout = 10 * time.Second
)

// errLineKey refuses a connection from any host but the first.
var errLineKey = errors.New("another line's key")

// Attach performs the handshake on conn and makes it the line's connection, replacing a previous one. The line owns
// conn from then on. The returned channel receives the reason when the connection is lost. The caller has to close
// conn if the handshake takes too long.
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

// greetGuest is the host's part of the handshake.
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

// skipTo reads until it has read text, whose first byte must not occur in it again.
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
	return errors.New("the other end is not a deepswe guest")
}

// greetHost is the guest's part of the handshake. Only the host that made the first connection knows the key.
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

// install makes c the current connection and sends what the other end has not received.
func (l *Line) install(c *connection, peer uint64) error {
	// Writers have to wait until the unconfirmed packets are sent again. Dropping the old connection releases a
	// writer that is blocked on it.
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
		return fmt.Errorf("the other end has received %d bytes, not %d to %d as expected", peer, l.confirmed, l.sent)
	}
	l.confirm(peer)
	c.skip = l.received - c.announced
	l.current, l.heard = c, time.Now()
	l.pump.Go(func() { l.receive(c) })
	again := append([][]byte(nil), l.held...)
	l.mu.Unlock()
	for _, packet := range again {
		if err := l.put(c, packet, uint32(len(packet)-packetHeader)); err != nil {
			return nil // lost again: the channel tells the caller
		}
	}
	return nil
}
