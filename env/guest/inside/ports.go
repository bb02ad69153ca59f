//go:build linux

package inside

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"deepswe/env/guest"
)

// lingering is how long a program may take to close a connection that the host has ended.
const lingering = 10 * time.Second

// ports are the listeners that the host accepts connections from. They stay until the guest ends.
type ports struct {
	mu     sync.Mutex
	open   map[int]*net.TCPListener
	relays sync.WaitGroup
}

// close closes the listeners, and waits for the relays, which end with their calls.
func (p *ports) close() {
	p.mu.Lock()
	for _, l := range p.open {
		l.Close()
	}
	p.mu.Unlock()
	p.relays.Wait()
}

func (p *ports) listen(ctx context.Context, port int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[port] != nil {
		return nil
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	if p.open == nil {
		p.open = map[int]*net.TCPListener{}
	}
	p.open[port] = l.(*net.TCPListener)
	return nil
}

// accept waits for the next connection to a port, and relays it until either end closes it.
func (p *ports) accept(c *guest.Call, port int) error {
	p.mu.Lock()
	l := p.open[port]
	p.mu.Unlock()
	if l == nil {
		return fmt.Errorf("accept: nothing listens on port %d: %w", port, os.ErrInvalid)
	}
	if err := l.SetDeadline(time.Time{}); err != nil {
		return err
	}
	stop := context.AfterFunc(c.Context(), func() { _ = l.SetDeadline(time.Unix(1, 0)) })
	conn, err := l.AcceptTCP()
	stop()
	if err != nil {
		return err
	}
	return p.relay(c, conn)
}

func (p *ports) relay(c *guest.Call, conn *net.TCPConn) error {
	defer conn.Close()
	defer context.AfterFunc(c.Context(), func() { conn.Close() })()
	p.relays.Go(func() { // until the host ends the body, or the call is answered
		_, err := io.Copy(conn, c.Body())
		if err == nil {
			err = conn.CloseWrite()
		}
		if err != nil {
			conn.Close()
		}
		_ = conn.SetReadDeadline(time.Now().Add(lingering)) // fails if conn is closed, which ends reads as well
	})
	if err := c.SendNow([]byte{1}); err != nil {
		return err
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			if err := c.SendNow(bytes.Clone(buf[:n])); err != nil {
				return err
			}
		}
		if err != nil {
			return nil // the program has closed it, or it was closed here
		}
	}
}
