package guest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// Server is the guest's end of the stream: it reads calls, passes them to a handler and sends their answers.
type Server struct {
	ctx    context.Context // parent of all calls' contexts
	out    *sender
	handle func(*Call)
	heard  atomic.Bool // a frame has arrived since the last call of Heard

	mu    sync.Mutex
	calls map[uint32]*Call
	work  sync.WaitGroup
}

// NewServer returns a server that writes to out. It passes each call to handle on the goroutine of [Server.Read],
// which reads nothing until handle returns. Every call must be answered. All calls are cancelled when ctx ends.
func NewServer(ctx context.Context, out io.Writer, handle func(*Call)) *Server {
	return &Server{ctx: ctx, out: newSender(out, false), handle: handle, calls: map[uint32]*Call{}}
}

// Greet sends the first frame.
func (s *Server) Greet(h Hello) error {
	h.Protocol = protocol
	return s.out.send(s.ctx, frame{kind: kindHello, payload: encode(&h)})
}

// Write writes queued frames until [Server.Stop] is called and the queue is empty, or until a write fails.
func (s *Server) Write() error { return s.out.run() }

// Stop makes Write return.
func (s *Server) Stop() { s.out.stop() }

// Wait waits until all calls are answered. Do not call Read after it.
func (s *Server) Wait() { s.work.Wait() }

// Heard reports whether the host has sent anything since the last call of Heard.
func (s *Server) Heard() bool { return s.heard.Swap(false) }

// Read reads frames until the stream ends. It returns [io.EOF] if the stream ended between two frames.
func (s *Server) Read(from io.Reader) error {
	in := bufio.NewReaderSize(from, buffered)
	buf := make([]byte, chunk)
	for {
		f, err := readFrame(in, buf)
		if err != nil {
			return err
		}
		s.heard.Store(true)
		if f.kind == kindCall {
			if err := s.start(f); err != nil {
				return err
			}
			continue
		}
		s.mu.Lock()
		c := s.calls[f.id]
		s.mu.Unlock()
		if c == nil {
			continue // already answered
		}
		switch f.kind {
		case kindData:
			c.body.push(bytes.Clone(f.payload))
		case kindEnd:
			c.body.end(io.EOF)
		case kindAbort:
			c.body.end(errAborted)
		case kindCancel:
			c.cancel()
		}
	}
}

func (s *Server) start(f frame) error {
	if len(f.payload) == 0 {
		return fmt.Errorf("%w: a call without a verb", errFrame)
	}
	c := &Call{server: s, id: f.id, Request: verb(f.payload[0]).request()}
	if c.Request == nil || !decode(f.payload[1:], c.Request) {
		return fmt.Errorf("%w: verb %d", errFrame, f.payload[0])
	}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	c.body = newBody(c.ctx, func(n int) {
		_ = s.out.send(c.ctx, frame{kind: kindCredit, id: c.id, payload: encode(&credit{n})})
	})
	s.mu.Lock()
	taken := s.calls[c.id] != nil
	if !taken {
		s.calls[c.id] = c
	}
	s.mu.Unlock()
	if taken {
		c.cancel()
		return fmt.Errorf("%w: call %d is under way already", errFrame, f.id)
	}
	s.work.Add(1)
	s.handle(c)
	return nil
}

// Call is one request in progress. Its methods must not be called concurrently.
type Call struct {
	// Request is one of *PingCall, *RunCall, *ReadCall, *WriteCall, *ListCall, *Query, *TreeCall, *UnpackCall,
	// *TidyCall, *ListenCall, *AcceptCall and *RememberCall.
	Request Message

	ctx    context.Context
	cancel context.CancelFunc
	server *Server
	id     uint32
	body   *body
	last   []byte // the last piece of the result, sent together with the reply
	items  coder  // items to be sent as one piece
}

// Context ends when the caller cancels the call, the call is answered, or the host is gone.
func (c *Call) Context() context.Context { return c.ctx }

// Body returns the stream that comes with the call.
func (c *Call) Body() io.Reader { return c.body }

// Send sends a piece of the result and takes ownership of it. It works for a cancelled call too, because the output
// of an interrupted command is still useful.
func (c *Call) Send(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), chunk)
		if err := c.push(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// SendNow is Send for somebody who waits for the piece: it does not wait for the next one.
func (c *Call) SendNow(p []byte) error {
	if err := c.Send(p); err != nil {
		return err
	}
	return c.flush(false)
}

// Add sends an item of a list, combined with other items.
func (c *Call) Add(item Message) error {
	item.code(&c.items)
	if len(c.items.buf) < chunk/2 {
		return nil
	}
	return c.flushItems()
}

// flushItems sends the pending items as one piece, which the client decodes by itself.
func (c *Call) flushItems() error {
	full := c.items.buf
	c.items.buf = nil
	return c.push(full)
}

// Result sends the output of a command and returns the matching reply.
func (c *Call) Result(r Result) (Message, error) {
	for _, part := range [][]byte{r.Stdout.Head, r.Stdout.Tail, r.Stderr.Head, r.Stderr.Tail} {
		if err := c.Send(part); err != nil {
			return nil, err
		}
	}
	size := func(o Output) capture { return capture{len(o.Head), len(o.Tail), o.Size} }
	return &runReply{Result: r, stdout: size(r.Stdout), stderr: size(r.Stderr)}, nil
}

// Answer sends pending items and then ends the call with an error or a reply, which may be nil.
func (c *Call) Answer(reply Message, err error) {
	s := c.server
	defer s.work.Done()
	defer c.cancel()
	s.mu.Lock()
	delete(s.calls, c.id)
	s.mu.Unlock()
	if reply == nil {
		reply = nothing{}
	}
	if err == nil {
		err = c.flushItems()
	}
	f := frame{kind: kindReply, id: c.id}
	if err != nil {
		f.kind, f.payload = kindError, encode(newFailure(err))
	} else {
		f.payload = encode(reply)
	}
	if c.flush(true) == nil {
		_ = s.out.send(s.ctx, f) // if the host is gone, nobody needs the answer
	}
}

// push sends the pending piece and keeps this one pending.
func (c *Call) push(piece []byte) error {
	if len(piece) == 0 {
		return nil
	}
	if err := c.flush(false); err != nil {
		return err
	}
	c.last = piece
	return nil
}

// flush sends the pending piece. more combines it with the reply into one write, because everything that relays the
// stream between guest and host handles each write separately.
func (c *Call) flush(more bool) error {
	if len(c.last) == 0 {
		return nil
	}
	piece := c.last
	c.last = nil
	return c.server.out.send(c.server.ctx, frame{kind: kindData, id: c.id, payload: piece, more: more})
}

var errAborted = errors.New("the caller could not go on sending")

// body is the stream that comes with a call. It buffers at most window bytes, because the host sends no more than
// it has credit for.
type body struct {
	ctx   context.Context
	grant func(n int) // allows the host to send n more bytes

	mu       sync.Mutex
	held     [][]byte
	err      error // returned by Read once held is empty
	change   chan struct{}
	consumed int // consumed and not yet granted again
}

func newBody(ctx context.Context, grant func(int)) *body {
	return &body{ctx: ctx, grant: grant, change: make(chan struct{}, 1)}
}

func (b *body) push(p []byte) { b.update(func() { b.held = append(b.held, p) }) }

// end makes Read return err after the buffered bytes: io.EOF if the body is complete.
func (b *body) end(err error) { b.update(func() { b.err = err }) }

func (b *body) update(f func()) {
	b.mu.Lock()
	if b.err == nil {
		f()
	}
	b.mu.Unlock()
	select {
	case b.change <- struct{}{}:
	default:
	}
}

func (b *body) Read(p []byte) (int, error) {
	for {
		n, err := b.takeBytes(p)
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		select {
		case <-b.change:
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
	}
}

func (b *body) takeBytes(p []byte) (int, error) {
	b.mu.Lock()
	if len(b.held) == 0 {
		defer b.mu.Unlock()
		return 0, b.err
	}
	n := copy(p, b.held[0])
	if b.held[0] = b.held[0][n:]; len(b.held[0]) == 0 {
		b.held = b.held[1:]
	}
	b.consumed += n
	grant := 0
	if b.consumed >= window/4 && b.err != io.EOF {
		grant, b.consumed = b.consumed, 0
	}
	b.mu.Unlock()
	if grant > 0 {
		b.grant(grant)
	}
	return n, nil
}
