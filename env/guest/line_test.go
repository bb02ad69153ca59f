package guest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// ends are the two ends of a line, whose connections a test makes and breaks.
type ends struct {
	t           *testing.T
	host, inner *Line
}

func newEnds(t *testing.T, heartbeat time.Duration) *ends {
	e := &ends{t, NewLine(heartbeat), AcceptLine()}
	t.Cleanup(func() {
		e.inner.Fail(io.EOF)
		e.host.Fail(io.EOF)
		e.host.Close()
		e.inner.Close()
	})
	return e
}

// connect makes a connection, and returns a function that breaks it.
func (e *ends) connect() (cut func()) {
	e.t.Helper()
	a, b := net.Pipe()
	e.attach(a, b)
	return func() { a.Close(); b.Close() }
}

// connectFor makes a connection that breaks once both ends together have written so many bytes after the handshake. The
// channel that it returns is closed then.
func (e *ends) connectFor(bytes int64) <-chan struct{} {
	e.t.Helper()
	a, b := net.Pipe()
	w := &weak{left: bytes + int64(len(lineMagic)+keySize+16), broken: make(chan struct{})}
	w.cut = func() { a.Close(); b.Close(); close(w.broken) }
	e.attach(weakEnd{a, w}, weakEnd{b, w})
	return w.broken
}

type weak struct {
	mu     sync.Mutex
	left   int64
	cut    func()
	broken chan struct{}
}

type weakEnd struct {
	net.Conn
	of *weak
}

// Write writes as much as the connection still carries.
func (e weakEnd) Write(p []byte) (int, error) {
	e.of.mu.Lock()
	carried := min(int64(len(p)), e.of.left)
	breaks := e.of.left > 0 && carried == e.of.left
	e.of.left -= carried
	e.of.mu.Unlock()
	n, err := e.Conn.Write(p[:carried])
	if breaks {
		e.of.cut()
	}
	if err == nil && n < len(p) {
		err = net.ErrClosed
	}
	return n, err
}

func (e *ends) attach(a, b net.Conn) {
	e.t.Helper()
	attached := make(chan error, 1)
	go func() {
		_, err := e.inner.Attach(b)
		attached <- err
	}()
	if _, err := e.host.Attach(a); err != nil {
		e.t.Fatal(err)
	}
	if err := <-attached; err != nil {
		e.t.Fatal(err)
	}
}

// A line delivers every byte once and in order in both directions, however often its connection breaks.
func TestLineSurvives(t *testing.T) {
	t.Parallel()
	e := newEnds(t, time.Hour)
	random := rand.New(rand.NewPCG(1, 2))
	sent := make([]byte, 3<<20)
	for i := range sent {
		sent[i] = byte(random.Uint32())
	}
	var work sync.WaitGroup
	for _, way := range [][2]*Line{{e.host, e.inner}, {e.inner, e.host}} {
		from, to := way[0], way[1]
		pieces := rand.New(rand.NewPCG(3, 4))
		work.Go(func() {
			for rest := sent; len(rest) > 0; {
				n := min(len(rest), 1+pieces.IntN(100_000))
				if _, err := from.Write(rest[:n]); err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
			}
		})
		work.Go(func() {
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("received something else, %v", err)
			}
		})
	}
	finished := make(chan struct{})
	go func() {
		work.Wait()
		close(finished)
	}()
	for cuts := 0; ; cuts++ {
		select {
		case <-finished:
			if cuts < 10 {
				t.Errorf("the connection was cut %d times only", cuts)
			}
			return
		case <-e.connectFor(1 + random.Int64N(300_000)):
		}
	}
}

func TestLineHangsUp(t *testing.T) {
	t.Parallel()
	e := newEnds(t, time.Hour)
	e.connect()
	heard := make(chan error, 1)
	go func() {
		got, err := io.ReadAll(e.inner)
		if string(got) != "last words" {
			err = errors.Join(err, errors.New(string(got)))
		}
		heard <- err
	}()
	go func() { _, _ = io.ReadAll(e.host) }() // the end of the connection is noticed by reading, as in a client
	if _, err := e.host.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	if err := e.host.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-heard; err != nil {
		t.Error(err)
	}
	if _, err := e.host.Write([]byte("x")); !errors.Is(err, ErrHungUp) {
		t.Errorf("a write after the end: %v", err)
	}
}

// The guest's end belongs to the host that connected first.
func TestLineRefusesAnotherHost(t *testing.T) {
	t.Parallel()
	e := newEnds(t, time.Hour)
	e.connect()
	thief := NewLine(time.Hour)
	defer thief.Close()
	a, b := net.Pipe()
	go func() { _, _ = thief.Attach(a) }()
	if _, err := e.inner.Attach(b); !errors.Is(err, errLineKey) {
		t.Errorf("another host: %v", err)
	}
}

// A connection that has become silent is given up, although no error says that it is dead.
func TestLineNoticesSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLine(time.Second)
		defer l.Close()
		a, b := net.Pipe()
		go func() {
			_, _ = b.Write(append([]byte("a shell says something first\n"+lineMagic), make([]byte, 8)...))
			_, _ = io.Copy(io.Discard, b) // and never answers
		}()
		lost, err := l.Attach(a)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		began := time.Now()
		if err := <-lost; err == nil {
			t.Error("no reason")
		}
		if waited := time.Since(began); waited < 3*time.Second || waited > 6*time.Second {
			t.Errorf("given up after %v", waited)
		}
	})
}

// An answer that does not come from a guest is refused.
func TestLineRefusesNoise(t *testing.T) {
	t.Parallel()
	for _, noise := range []string{"", "sh: not found\n", string(bytes.Repeat([]byte("x"), 100<<10)), lineMagic[:5]} {
		l := NewLine(time.Hour)
		a, b := net.Pipe()
		go func() {
			_, _ = b.Write([]byte(noise))
			b.Close()
		}()
		if _, err := l.Attach(a); err == nil {
			t.Errorf("%.20q was taken for a guest", noise)
		}
		l.Close()
	}
}

// An end may have to write before it reads on, as a guest that answers a ping. It does not block when the window is
// full: what opens the window still arrives.
func TestLineReaderMayWrite(t *testing.T) {
	t.Parallel()
	e := newEnds(t, time.Hour)
	e.connect()
	const rounds, size = 64, 40_000
	go func() { // echoes, and answers before it reads on
		buf := make([]byte, size)
		for range rounds {
			if _, err := io.ReadFull(e.inner, buf); err != nil {
				return
			}
			_, _ = e.inner.Write(buf)
		}
	}()
	go func() {
		for range rounds {
			_, _ = e.host.Write(make([]byte, size))
		}
	}()
	if _, err := io.ReadFull(e.host, make([]byte, rounds*size)); err != nil {
		t.Fatal(err)
	}
}
