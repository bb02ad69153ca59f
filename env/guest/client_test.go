package guest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a guest that a test plays, at the other end of a pipe.
type script struct {
	t   *testing.T
	in  *bufio.Reader
	out *bufio.Writer
}

func (s *script) send(k kind, id uint32, payload []byte) {
	if err := writeFrame(s.out, frame{kind: k, id: id, payload: payload}); err == nil {
		s.out.Flush() // the client may have hung up, as it is allowed to
	}
}

// call waits for the next call.
func (s *script) call() frame {
	for {
		f, err := readFrame(s.in, nil)
		if err != nil {
			return frame{}
		}
		if f.kind == kindCall {
			return f
		}
	}
}

// scripted connects a client to a guest that sends a proper greeting and then does what the function says.
func scripted(t *testing.T, play func(*script)) *Client {
	t.Helper()
	ours, theirs := net.Pipe()
	var guest sync.WaitGroup
	guest.Go(func() {
		s := &script{t, bufio.NewReader(theirs), bufio.NewWriter(theirs)}
		s.send(kindHello, 0, encode(&Hello{Protocol: protocol}))
		play(s)
		io.Copy(io.Discard, theirs)
	})
	c, err := Connect(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		theirs.Close()
		guest.Wait()
	})
	return c
}

func TestConnectRefuses(t *testing.T) {
	greeting := func(h Hello) string {
		var b bytes.Buffer
		w := bufio.NewWriter(&b)
		writeFrame(w, frame{kind: kindHello, payload: encode(&h)})
		w.Flush()
		return b.String()
	}
	for name, c := range map[string]struct{ said, want string }{
		"nothing":            {"", "EOF"},
		"an error message":   {"exec format error\n", "malformed"},
		"half a greeting":    {greeting(Hello{Protocol: protocol})[:12], "unexpected EOF"},
		"another protocol":   {greeting(Hello{Protocol: 99}), "same build"},
		"something else":     {"\x00\x00\x00\x01\x02\x00\x00\x00\x00x", "not send a guest's"},
		"a greeting of junk": {"\x00\x00\x00\x01\x01\x00\x00\x00\x00\xff", "not send a guest's"},
	} {
		ours, theirs := net.Pipe()
		go func() {
			io.WriteString(theirs, c.said)
			theirs.Close()
		}()
		if _, err := Connect(t.Context(), ours); !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := ours.Write(nil); err == nil {
			t.Errorf("%s: the stream was left open", name)
		}
	}
}

func TestConnectWaitsNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := Connect(ctx, ours); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a guest that says nothing: %v", err)
		}
	})
}

// TestHostileGuest: a guest that breaks the protocol is disconnected, and the call under way fails.
func TestHostileGuest(t *testing.T) {
	run := func(t *testing.T, c *Client) error {
		_, err := c.Run(t.Context(), Command{Line: "x", Head: 10, Tail: 10})
		return err
	}
	for name, c := range map[string]struct {
		play func(s *script, id uint32)
		call func(t *testing.T, c *Client) error
	}{
		"too much output": {func(s *script, id uint32) { s.send(kindData, id, make([]byte, 41)) }, run},
		"output that is not there": {func(s *script, id uint32) {
			s.send(kindReply, id, encode(&runReply{stdout: capture{head: 5}}))
		}, run},
		"negative output": {func(s *script, id uint32) {
			s.send(kindReply, id, encode(&runReply{stdout: capture{head: -5}}))
		}, run},
		"a reply of junk":  {func(s *script, id uint32) { s.send(kindReply, id, []byte{1, 2, 3}) }, run},
		"an error of junk": {func(s *script, id uint32) { s.send(kindError, id, []byte{0xff}) }, run},
		"credit of junk":   {func(s *script, id uint32) { s.send(kindCredit, id, []byte{0xff}) }, run},
		"endless credit":   {func(s *script, id uint32) { s.send(kindCredit, id, encode(&credit{1 << 40})) }, run},
		"a call":           {func(s *script, id uint32) { s.send(kindCall, id, nil) }, run},
		"data for a ping": {func(s *script, id uint32) {
			s.send(kindData, id, []byte("x"))
		}, func(t *testing.T, c *Client) error {
			return c.Ping(t.Context())
		}},
		"more than the limit": {func(s *script, id uint32) {
			s.send(kindData, id, make([]byte, 11))
		}, func(t *testing.T, c *Client) error {
			_, _, err := c.Read(t.Context(), "x", ReadOptions{Limit: 10})
			return err
		}},
		"too many files": {func(s *script, id uint32) {
			s.send(kindData, id, append(encode(&FileInfo{}), encode(&FileInfo{})...))
		}, func(t *testing.T, c *Client) error {
			_, err := c.Tree(t.Context(), "x", TreeOptions{Limit: 1})
			return err
		}},
		"half a file": {func(s *script, id uint32) {
			s.send(kindData, id, encode(&FileInfo{Path: "abc"})[:3])
		}, func(t *testing.T, c *Client) error {
			_, err := c.List(t.Context(), "x", ListOptions{})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := scripted(t, func(s *script) { c.play(s, s.call().id) })
				if err := c.call(t, client); !errors.Is(err, ErrClosed) {
					t.Errorf("%v", err)
				}
				<-client.ended
				if err := client.Ping(t.Context()); !errors.Is(err, ErrClosed) {
					t.Errorf("the next call: %v", err)
				}
			})
		})
	}
}

// TestSilentGuest: a caller can give up, and what later arrives for its call is dropped.
func TestSilentGuest(t *testing.T) { synctest.Test(t, testSilentGuest) }

func testSilentGuest(t *testing.T) {
	release := make(chan struct{})
	client := scripted(t, func(s *script) {
		first := s.call()
		<-release
		s.send(kindReply, first.id, nil)
		s.send(kindData, 4711, []byte("nobody's"))
		s.send(kindReply, s.call().id, nil)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	if err := client.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if waited := time.Since(began); waited != time.Second+cancelTimeout {
		t.Errorf("gave up after %v", waited)
	}
	close(release)
	if err := client.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestGuestVanishes: all current calls fail at once, with the reason.
func TestGuestVanishes(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() {
		s := &script{t, bufio.NewReader(theirs), bufio.NewWriter(theirs)}
		s.send(kindHello, 0, encode(&Hello{Protocol: protocol}))
		s.call()
		theirs.Close()
	}()
	c, err := Connect(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			if _, err := c.Run(t.Context(), Command{Line: "x", Stdin: make([]byte, 1<<20)}); !errors.Is(err, ErrClosed) {
				t.Errorf("%v", err)
			}
		})
	}
	calls.Wait()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestErrorsCross: errors.Is finds the guest's errors on the host.
func TestErrorsCross(t *testing.T) {
	for i, sentinel := range sentinels() {
		sent := newFailure(&wrapped{sentinel})
		var got failure
		if !decode(encode(sent), &got) || !errors.Is(&got, sentinel) || got.Error() != "while at it: "+sentinel.Error() {
			t.Errorf("%v (%d) has become %v", sentinel, i, &got)
		}
		for _, other := range sentinels() {
			if other != sentinel && errors.Is(&got, other) {
				t.Errorf("%v has become %v too", sentinel, other)
			}
		}
	}
	for _, f := range []failure{{}, {sentinel: -1}, {sentinel: 1000, text: "x"}} {
		if f.Unwrap() != nil {
			t.Errorf("%+v unwraps to %v", f, f.Unwrap())
		}
	}
}

// An error of the guest's machine is an infrastructure failure on the host. Errors of the kernel's own files, and those
// that commands can cause, are not. An unknown error has no sentinel.
func TestFailuresOfTheMachineCross(t *testing.T) {
	for _, tc := range []struct {
		err, want error
	}{
		{&fs.PathError{Op: "read", Path: "/testbed/a.py", Err: syscall.EIO}, ErrInfrastructure},
		{&fs.PathError{Op: "open", Path: "/testbed/a.py", Err: syscall.EMFILE}, ErrInfrastructure},
		{&fs.PathError{Op: "read", Path: "/proc/self/mem", Err: syscall.EIO}, fs.ErrInvalid},
		{&fs.PathError{Op: "open", Path: "/testbed/a.py", Err: syscall.EACCES}, fs.ErrPermission},
		{&fs.PathError{Op: "open", Path: "/testbed/a.out", Err: syscall.ETXTBSY}, fs.ErrInvalid},
		{&fs.PathError{Op: "mkdir", Path: "/testbed/a", Err: syscall.EEXIST}, fs.ErrExist},
		{errors.New("what nobody knows"), nil},
	} {
		if got := newFailure(tc.err).Unwrap(); !errors.Is(got, tc.want) {
			t.Errorf("%v: crosses as %v, want %v", tc.err, got, tc.want)
		}
	}
}

type wrapped struct{ err error }

func (w *wrapped) Error() string { return "while at it: " + w.err.Error() }
func (w *wrapped) Unwrap() error { return w.err }

func TestTooLong(t *testing.T) {
	client := scripted(t, func(*script) {})
	if _, err := client.Run(t.Context(), Command{Line: strings.Repeat("x", maxFrame)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
}

// TestKeepAlive: a client without calls keeps the guest alive.
func TestKeepAlive(t *testing.T) { synctest.Test(t, testKeepAlive) }

func testKeepAlive(t *testing.T) {
	ours, theirs := net.Pipe()
	in := bufio.NewReader(theirs)
	go func() {
		w := bufio.NewWriter(theirs)
		writeFrame(w, frame{kind: kindHello, payload: encode(&Hello{Protocol: protocol, Silence: 20 * time.Second})})
		w.Flush()
	}()
	c, err := Connect(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if f, err := readFrame(in, nil); err != nil || f.kind != kindAlive {
			t.Fatalf("%v, %v", f.kind, err)
		}
	}
	go io.Copy(io.Discard, in)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
