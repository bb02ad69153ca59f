package trainertest

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

// Between two listeners, nobody answers on the port, and nobody else can get it.
func TestPortIsKept(t *testing.T) {
	t.Parallel()
	var p port
	for range 3 {
		l, err := p.listen()
		if err != nil {
			t.Fatal(err)
		}
		if c, err := net.DialTimeout("tcp", p.address, time.Minute); err != nil {
			t.Fatal(err)
		} else if err := errors.Join(c.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := net.DialTimeout("tcp", p.address, time.Minute); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("nobody listens: %v", err)
		}
		if other, err := net.Listen("tcp", p.address); err == nil {
			_ = other.Close()
			t.Fatal("another listener has got the port")
		}
	}
	p.release()
	other, err := net.Listen("tcp", p.address)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	_ = other.Close()
}
