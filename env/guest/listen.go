package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// relayTimeout limits how long data that a program in the sandbox sends may wait until the host reads it. The whole
// stream waits with it.
const relayTimeout = 30 * time.Second

// mostRelays is how many connections to one listener are open at once. Others wait.
const mostRelays = 128

// Listen listens on a port of the sandbox's loopback interface. Connections from inside are accepted here. They use the
// guest's stream, so that the sandbox needs no network. The listener and its connections end with ctx and with the
// client. Close waits for them. The port stays open inside, but connections to it are no longer accepted.
func (c *Client) Listen(ctx context.Context, port int) (net.Listener, error) {
	_, err := c.do(ctx, request{name: "listen", verb: verbListen, args: &ListenCall{port}, reply: nothing{}})
	if err != nil {
		return nil, err
	}
	l := &listener{client: c, port: port, open: make(chan struct{}, mostRelays)}
	l.ctx, l.cancel = context.WithCancel(ctx)
	return l, nil
}

type listener struct {
	client *Client
	port   int
	ctx    context.Context
	cancel context.CancelFunc
	open   chan struct{}

	mu   sync.Mutex // held while work is begun or ctx cancelled: nothing begins while Close waits
	work sync.WaitGroup
}

// Accept implements net.Listener. It must not be called concurrently.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.open <- struct{}{}:
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
	ours, theirs := net.Pipe()
	arrived, failed := make(chan struct{}), make(chan error, 1)
	begun := l.beginWork(func() {
		defer func() {
			theirs.Close()
			<-l.open
		}()
		failed <- l.client.relay(l.ctx, l.port, theirs, sync.OnceFunc(func() { close(arrived) }))
	})
	if !begun {
		return nil, net.ErrClosed
	}
	select {
	case <-arrived:
		return ours, nil
	case err := <-failed:
		ours.Close()
		if l.ctx.Err() != nil || err == nil {
			err = net.ErrClosed
		}
		return nil, err
	}
}

// beginWork runs f on a goroutine that Close waits for. It reports false where the listener has ended.
func (l *listener) beginWork(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return false
	}
	l.work.Go(f)
	return true
}

func (l *listener) Close() error {
	l.mu.Lock()
	l.cancel()
	l.mu.Unlock()
	l.work.Wait()
	return nil
}

func (l *listener) Addr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: l.port}
}

// relay waits for a connection inside, calls arrived, and copies between it and conn until either end is closed.
func (c *Client) relay(ctx context.Context, port int, conn net.Conn, arrived func()) error {
	p := &pending{reply: nothing{}, done: make(chan struct{}), credit: window, more: make(chan struct{}, 1)}
	begun := false
	p.data = func(piece []byte) error {
		if !begun { // the sign that there is a connection
			begun = true
			arrived()
			return nil
		}
		_ = conn.SetWriteDeadline(time.Now().Add(relayTimeout))
		if _, err := conn.Write(piece); err != nil {
			conn.Close() // the failure is the connection's, not the stream's
		}
		return nil
	}
	id := c.register(p)
	defer c.forget(id)
	args := append([]byte{byte(verbAccept)}, encode(&AcceptCall{port})...)
	if err := c.out.send(ctx, frame{kind: kindCall, id: id, payload: args}); err != nil {
		return err
	}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	waiting.Go(func() { // when the call ends, a blocked read of conn must end too
		_ = c.await(ctx, p)
		conn.Close()
	})
	err := c.sendReads(ctx, id, p, conn)
	if err == nil {
		err = c.await(ctx, p)
	}
	switch {
	case ctx.Err() != nil:
		c.cancel(id, p, cancelTimeout)
		return fmt.Errorf("accept: %w", ctx.Err())
	case errors.Is(err, ErrClosed):
		return c.lost("accept")
	case err != nil:
		return fmt.Errorf("accept: %w", err)
	}
	return p.err
}

// sendReads sends what it reads from conn without delay, until conn or the call ends.
func (c *Client) sendReads(ctx context.Context, id uint32, p *pending, conn net.Conn) error {
	for {
		buf := make([]byte, chunk/2)
		n, readErr := conn.Read(buf)
		if over, err := c.sendPart(ctx, id, p, buf[:n]); over || err != nil {
			return err
		}
		if readErr != nil {
			return c.out.send(ctx, frame{kind: kindEnd, id: id})
		}
	}
}
