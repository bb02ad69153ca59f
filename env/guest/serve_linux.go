package guest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
)

// server answers the calls of one host.
type server struct {
	ctx     context.Context // ends with the stream
	options options
	files   *threads // that file verbs run on
	hands   *threads // that help them with many files
	width   *width
	reads   bool        // serve's own thread may read files
	heard   atomic.Bool // a frame has come since somebody looked
	procs   *processes
	out     *sender

	writes sync.Mutex // held while a write takes effect

	mu    sync.Mutex
	calls map[uint32]*call
	work  sync.WaitGroup
}

// call is one request under way.
type call struct {
	ctx    context.Context
	cancel context.CancelFunc
	server *server
	id     uint32
	body   *body
	last   []byte // the latest piece of the result, which waits for the reply
}

// data sends a piece of the result, which belongs to the sender from then on. A cancelled call may still do so: a
// command's output is worth having when it was interrupted. Pieces come one after the other.
func (c *call) data(p []byte) error {
	for len(p) > 0 {
		if err := c.flush(false); err != nil {
			return err
		}
		n := min(len(p), chunk)
		c.last, p = p[:n], p[n:]
	}
	return nil
}

// flush sends the piece that waits, with the reply in the same write where it is the last one: what sits between guest
// and host handles every write by itself.
func (c *call) flush(more bool) error {
	if len(c.last) == 0 {
		return nil
	}
	piece := c.last
	c.last = nil
	return c.server.out.send(c.server.ctx, frame{kind: kindData, id: c.id, payload: piece, more: more})
}

// serve reads frames until the stream ends. Its thread has the command user's rights on files, and reads small ones
// itself: a change of threads takes longer than that.
func (s *server) serve(in *bufio.Reader) error {
	s.reads = s.files.join()
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
			continue // it was answered already
		}
		switch f.kind {
		case kindData:
			c.body.push(append([]byte(nil), f.payload...))
		case kindEnd:
			c.body.end(io.EOF)
		case kindAbort:
			c.body.end(errAborted)
		case kindCancel:
			c.cancel()
		}
	}
}

// start lets a call be answered on a goroutine of its own, or on a thread for file verbs that is free, unless it is
// answered at once.
func (s *server) start(f frame) error {
	if len(f.payload) == 0 {
		return fmt.Errorf("%w: a call without a verb", errFrame)
	}
	c := &call{server: s, id: f.id}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	c.body = newBody(c.ctx, func(n int) {
		_ = s.out.send(c.ctx, frame{kind: kindCredit, id: c.id, payload: encode(&credit{n})})
	})
	handle, args, onFiles := s.handler(verb(f.payload[0]))
	if args == nil || !decode(f.payload[1:], args) {
		return fmt.Errorf("%w: verb %d", errFrame, f.payload[0])
	}
	if !s.enter(c) {
		return fmt.Errorf("%w: call %d is under way already", errFrame, f.id)
	}
	s.work.Add(1)
	if reply, err := guard(func() (message, error) { return s.atOnce(c, args), nil }); reply != nil || err != nil {
		c.answer(reply, err)
		return nil
	}
	work := func() { c.answer(guard(func() (message, error) { return handle(c) })) }
	switch {
	case !onFiles:
		go work()
	case !s.files.offer(work, func(err error) { c.answer(nil, err) }):
		go func() {
			if err := s.files.do(c.ctx, work); err != nil {
				c.answer(nil, err)
			}
		}()
	}
	runtime.Gosched() // or the processor waits for the next frame along with this thread
	return nil
}

// atOnce answers what takes no time that anybody could notice, and is nil for everything else.
func (s *server) atOnce(c *call, args message) message {
	switch r := args.(type) {
	case *readCall:
		if s.reads {
			return readAtOnce(c, s.path(r.path), r.ReadOptions)
		}
	case nothing: // a ping
		return nothing{}
	}
	return nil
}

// enter makes a call known under its number, unless another one has it.
func (s *server) enter(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[c.id] != nil {
		return false
	}
	s.calls[c.id] = c
	return true
}

// answer ends the call.
func (c *call) answer(reply message, err error) {
	s := c.server
	defer s.work.Done()
	defer c.cancel()
	s.mu.Lock()
	delete(s.calls, c.id)
	s.mu.Unlock()
	f := frame{kind: kindReply, id: c.id}
	if err != nil {
		f.kind, f.payload = kindError, encode(newFailure(err))
	} else {
		f.payload = encode(reply)
	}
	if c.flush(true) == nil {
		_ = s.out.send(s.ctx, f) // a host that is gone needs no answer
	}
}

// handler returns what answers a verb unless that is done at once, the message that its arguments decode into, which is
// nil for no verb of ours, and whether it is answered with the command user's rights on files.
func (s *server) handler(v verb) (handle func(*call) (message, error), args message, onFiles bool) {
	switch v {
	case verbPing:
		return nil, nothing{}, false
	case verbRun, verbPrepare:
		r := new(runCall)
		return func(c *call) (message, error) { return s.procs.command(c, *r, v == verbPrepare) }, r, false
	case verbRead:
		r := new(readCall)
		return func(c *call) (message, error) { return read(c, s.path(r.path), r.ReadOptions) }, r, true
	case verbWrite:
		w := new(writeCall)
		return func(c *call) (message, error) { return write(c, s.path(w.path), w.WriteOptions) }, w, true
	case verbList:
		l := new(listCall)
		return func(c *call) (message, error) { return list(c, s.path(l.path), l.ListOptions) }, l, true
	case verbSearch:
		q := new(Query)
		return func(c *call) (message, error) { return search(c, s.path(q.Path), *q) }, q, true
	case verbTree:
		t := new(treeCall)
		return func(c *call) (message, error) { return tree(c, s.path(t.root), t.TreeOptions) }, t, true
	case verbUnpack:
		u := new(unpackCall)
		return func(c *call) (message, error) { return unpack(c, s.path(u.dir)) }, u, true
	}
	return nil, nil, false
}

// guard turns a panic into an error: a file that we cannot cope with must not end the sandbox that it lies in.
func guard(f func() (message, error)) (reply message, err error) {
	defer func() {
		if p := recover(); p != nil {
			reply, err = nil, fmt.Errorf("guest: panic: %v", p)
		}
	}()
	return f()
}

// path makes a path absolute, as seen from the working directory of commands.
func (s *server) path(p string) string {
	if len(p) > 0 && p[0] == '/' {
		return p
	}
	if p == "" {
		return s.options.dir
	}
	return s.options.dir + "/" + p
}
