//go:build linux

package inside

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"deepswe/env/testkit"
)

// TestListen: programs inside connect to a local port, and exchange data with the host over the guest's stream, many at
// once and in both directions.
func TestListen(t *testing.T) {
	t.Parallel()
	c := start(t, t.TempDir())
	port := testkit.FreePort(t)
	l, err := c.Listen(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { // an echo server that begins with a greeting
		for {
			conn, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
				return
			}
			served.Go(func() {
				defer conn.Close()
				fmt.Fprintln(conn, "hello")
				line, _ := bufio.NewReader(conn).ReadString('\n')
				io.WriteString(conn, line)
			})
		}
	})
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			said := append(bytes.Repeat([]byte{byte('a' + i)}, 300_000), '\n') // more than a window
			conn, err := net.DialTimeout("tcp", l.Addr().String(), 10*time.Second)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if _, err := conn.Write(said); err != nil {
				t.Error(err)
			}
			got, err := io.ReadAll(conn)
			if want := append([]byte("hello\n"), said...); err != nil || !bytes.Equal(got, want) {
				t.Errorf("client %d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	clients.Wait()
	// A connection that only waits ends with the listener.
	waiting, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	if line, err := bufio.NewReader(waiting).ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("%q, %v", line, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if n, err := waiting.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes of a closed listener", n)
	}
	served.Wait()
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Listen(ctx, port); err == nil {
		t.Error("Listen succeeded with a cancelled context")
	}
}

// TestCloseListener: an Accept during Close either ends with it or does not begin. Only the race detector shows when
// that is wrong.
func TestCloseListener(t *testing.T) {
	t.Parallel()
	c := start(t, t.TempDir())
	port := testkit.FreePort(t)
	for i := range 500 {
		l, err := c.Listen(t.Context(), port)
		if err != nil {
			t.Fatal(err)
		}
		accepted := make(chan error)
		go func() {
			_, err := l.Accept()
			accepted <- err
		}()
		time.Sleep(time.Duration(i%30) * time.Microsecond)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-accepted; !errors.Is(err, net.ErrClosed) {
			t.Fatalf("a connection that nobody made, or %v", err)
		}
	}
}
