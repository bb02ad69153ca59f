package trainertest

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// port is a port of the loopback interface that stays the server's own while it does not listen: another process that
// asked for any free port would be given it otherwise, and the server could not start again.
type port struct {
	address string
	once    sync.Once
	held    int // a socket that is bound and does not listen
}

// listen returns a listener on the port, which the first call chooses.
func (p *port) listen() (net.Listener, error) {
	address := cmp.Or(p.address, "127.0.0.1:0")
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = shared(int(fd)) })
		return errors.Join(err, failed)
	}}
	l, err := c.Listen(context.Background(), "tcp4", address)
	if err != nil || p.address != "" {
		return l, err
	}
	p.address = l.Addr().String()
	if err := p.hold(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// hold binds a second socket to the port.
func (p *port) hold() error {
	syscall.ForkLock.RLock() // not every system can open a socket that is closed on exec from the start
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}
	at := netip.MustParseAddrPort(p.address)
	err = shared(fd)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	}
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	p.held = fd
	return nil
}

// shared lets several sockets of one user be bound to a port.
func shared(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }

// release gives the port back.
func (p *port) release() { p.once.Do(func() { _ = unix.Close(p.held) }) }
