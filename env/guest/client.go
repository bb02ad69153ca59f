package guest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// cancelTimeout is how long a cancelled call waits for the guest's reply, in addition to a command's grace period.
const cancelTimeout = 5 * time.Second

// Client is the host's end of the stream to one guest. Its methods are safe for concurrent use; calls share the
// stream.
//
// When the stream ends, or the guest breaks the protocol, every call fails with [ErrClosed]. Cancelling a call's
// context ends the call with the context's error, and ends what the call started in the sandbox.
type Client struct {
	hello Hello
	conn  io.Closer
	out   *sender

	mu    sync.Mutex
	calls map[uint32]*pending
	last  uint32

	ended   chan struct{} // closed when the stream has ended
	failure error         // why it ended; set before ended is closed
	hangUp  sync.Once
	workers sync.WaitGroup
}

// pending is a call that waits for its reply. Its functions run on the reader's goroutine; the caller must not read
// what they write before done is closed.
type pending struct {
	data  func([]byte) error
	reply Message
	err   error
	done  chan struct{}

	mu     sync.Mutex
	credit int
	more   chan struct{}
}

// Connect performs the handshake with the guest at the other end of conn. From then on the client owns conn, even
// if Connect fails. conn must carry nothing but the guest's stream: demultiplex it first.
func Connect(ctx context.Context, conn io.ReadWriteCloser) (*Client, error) {
	c := &Client{conn: conn, out: newSender(conn, true), calls: map[uint32]*pending{}, ended: make(chan struct{})}
	in := bufio.NewReaderSize(conn, buffered)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	hello, err := readHello(in)
	if !stop() && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("connect to the guest: %w", err)
	}
	c.hello = hello
	c.workers.Go(func() { c.fail(c.receive(in)) })
	c.workers.Go(func() {
		if err := c.out.run(); err != nil {
			c.fail(err)
		}
	})
	if hello.Silence > 0 {
		c.workers.Go(func() { c.keepAlive(max(hello.Silence/4, time.Millisecond)) })
	}
	return c, nil
}

func readHello(in *bufio.Reader) (Hello, error) {
	f, err := readFrame(in, nil)
	if err != nil {
		return Hello{}, fmt.Errorf("%w: no greeting: %w", ErrClosed, err)
	}
	var h Hello
	if f.kind != kindHello || !decode(f.payload, &h) {
		return Hello{}, fmt.Errorf("%w: the other end did not send a guest's greeting", ErrClosed)
	}
	if h.Protocol != protocol {
		return Hello{}, fmt.Errorf("%w: the guest speaks protocol %d, this program %d: they must be the same build",
			ErrClosed, h.Protocol, protocol)
	}
	return h, nil
}

// Hello returns the guest's greeting.
func (c *Client) Hello() Hello { return c.hello }

// Dir returns the working directory of commands.
func (c *Client) Dir() string { return c.hello.Dir }

// Close closes the stream, which makes the guest end itself and everything it started, and waits for the client's
// goroutines. Calls in progress fail with ErrClosed. Close may be called more than once.
func (c *Client) Close() error {
	c.fail(errors.New("closed by this side"))
	c.workers.Wait()
	return nil
}

// fail closes the stream for the given reason; later calls do nothing.
func (c *Client) fail(cause error) {
	c.hangUp.Do(func() {
		c.failure = fmt.Errorf("%w: %w: %w", ErrInfrastructure, ErrClosed, cause)
		close(c.ended)
		c.out.stop()
		c.conn.Close()
	})
}

func (c *Client) lost(operation string) error {
	<-c.ended // another goroutine may have set the failure, but not closed it yet
	return fmt.Errorf("%s: %w", operation, c.failure)
}

func (c *Client) keepAlive(every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			select {
			case c.out.queue <- frame{kind: kindAlive}:
			default: // queued frames will show the guest that we are alive
			}
		case <-c.ended:
			return
		}
	}
}

// receive passes frames to the calls they belong to, until the stream ends.
func (c *Client) receive(in *bufio.Reader) error {
	buf := make([]byte, chunk)
	for {
		f, err := readFrame(in, buf)
		if err != nil {
			return err
		}
		select {
		case <-c.ended:
			return ErrClosed // the guest may still answer calls that Close ended
		default:
		}
		c.mu.Lock()
		p := c.calls[f.id]
		if f.kind == kindReply || f.kind == kindError {
			delete(c.calls, f.id)
		}
		c.mu.Unlock()
		if p == nil {
			continue // the caller has given up
		}
		if err := p.takeFrame(f); err != nil {
			return err // ends the stream, and this call with it
		}
	}
}

func (p *pending) takeFrame(f frame) error {
	switch f.kind {
	case kindData:
		if p.data == nil {
			return fmt.Errorf("%w: data for a call that has none", errFrame)
		}
		return p.data(f.payload)
	case kindCredit:
		var r credit
		if !decode(f.payload, &r) || r.bytes < 0 || r.bytes > window {
			return fmt.Errorf("%w: bad credit", errFrame)
		}
		p.grant(r.bytes)
		return nil
	case kindReply:
		if !decode(f.payload, p.reply) {
			return fmt.Errorf("%w: bad reply", errFrame)
		}
		p.finish(nil)
		return nil
	case kindError:
		var e failure
		if !decode(f.payload, &e) {
			return fmt.Errorf("%w: bad error", errFrame)
		}
		p.finish(&e)
		return nil
	}
	return fmt.Errorf("%w: kind %d is not for a host", errFrame, f.kind)
}

func (p *pending) finish(err error) {
	p.err = err
	close(p.done)
}

func (p *pending) grant(n int) {
	p.mu.Lock()
	p.credit = min(p.credit+n, window)
	p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default:
	}
}

func (p *pending) spend(want int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(want, p.credit)
	p.credit -= n
	return n
}

// request describes one call: what to send, and where to put the answer.
type request struct {
	name  string // for error messages
	verb  verb
	args  Message
	body  io.Reader // nil for verbs without one
	data  func([]byte) error
	reply Message
	grace time.Duration // how much longer than usual a cancelled call may take to end
}

// do makes a call. If it returns ctx's error, ok reports whether the guest replied nevertheless.
func (c *Client) do(ctx context.Context, r request) (ok bool, err error) {
	p := &pending{data: r.data, reply: r.reply, done: make(chan struct{}), credit: window, more: make(chan struct{}, 1)}
	id := c.register(p)
	defer c.forget(id)
	broken, err := c.post(ctx, id, p, r)
	if err == nil {
		err = c.await(ctx, p)
	}
	switch {
	case ctx.Err() != nil && err != nil:
		return c.cancel(id, p, cancelTimeout+r.grace), fmt.Errorf("%s: %w", r.name, ctx.Err())
	case errors.Is(err, ErrClosed):
		return false, c.lost(r.name)
	case err != nil:
		return false, fmt.Errorf("%s: %w", r.name, err)
	case broken != nil:
		return false, fmt.Errorf("%s: %w", r.name, broken)
	case p.err != nil && ctx.Err() != nil:
		return false, fmt.Errorf("%s: %w", r.name, ctx.Err())
	}
	return p.err == nil, p.err
}

// post sends the call and its body. broken is an error of the body's reader; err ends the call.
func (c *Client) post(ctx context.Context, id uint32, p *pending, r request) (broken, err error) {
	if err := ctx.Err(); err != nil {
		p.finish(err) // nothing was sent
		return nil, err
	}
	payload := append([]byte{byte(r.verb)}, encode(r.args)...)
	if len(payload) > maxFrame {
		return nil, fmt.Errorf("%w: the request has %d bytes, the limit is %d", ErrTooLarge, len(payload), maxFrame)
	}
	if err := c.out.send(ctx, frame{kind: kindCall, id: id, payload: payload}); err != nil || r.body == nil {
		return nil, err
	}
	return c.sendBody(ctx, id, p, r.body)
}

// await waits for the reply. A reply that arrived before the stream ended still counts.
func (c *Client) await(ctx context.Context, p *pending) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ended:
	}
	select {
	case <-p.done:
		return nil
	default:
		return ErrClosed
	}
}

// cancel ends a call whose context has ended, and waits for the guest to confirm that. It reports whether a reply
// came.
func (c *Client) cancel(id uint32, p *pending, wait time.Duration) bool {
	late := time.After(wait)
	queue := c.out.queue
	for {
		select {
		case queue <- frame{kind: kindCancel, id: id}:
			queue = nil
		case <-p.done:
			return p.err == nil
		case <-c.ended:
			return false
		case <-late:
			return false
		}
	}
}

// sendBody streams a body as fast as the guest accepts it, and stops when the call is over. The first error is that
// of the body's reader, the second that of the stream.
func (c *Client) sendBody(ctx context.Context, id uint32, p *pending, body io.Reader) (broken, err error) {
	size := chunk
	if known, ok := body.(interface{ Len() int }); ok {
		size = min(size, known.Len()+1) // one more byte, to see EOF in the same read
	}
	for {
		buf := make([]byte, size)
		n, readErr := io.ReadFull(body, buf)
		if over, err := c.sendPart(ctx, id, p, buf[:n]); over || err != nil {
			return nil, err
		}
		switch readErr {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return nil, c.out.send(ctx, frame{kind: kindEnd, id: id})
		default:
			return readErr, c.out.send(ctx, frame{kind: kindAbort, id: id})
		}
	}
}

// sendPart sends a piece of a body, which belongs to the client from then on, as the guest takes it. It reports whether
// the call is over.
func (c *Client) sendPart(ctx context.Context, id uint32, p *pending, part []byte) (over bool, err error) {
	for len(part) > 0 {
		if k := p.spend(len(part)); k > 0 {
			if err := c.out.send(ctx, frame{kind: kindData, id: id, payload: part[:k]}); err != nil {
				return false, err
			}
			part = part[k:]
			continue
		}
		select {
		case <-p.more:
		case <-p.done:
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-c.ended:
			return false, ErrClosed
		}
	}
	return false, nil
}

func (c *Client) register(p *pending) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		c.last++
		if _, taken := c.calls[c.last]; !taken && c.last != 0 {
			c.calls[c.last] = p
			return c.last
		}
	}
}

func (c *Client) forget(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
}
