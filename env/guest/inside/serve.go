//go:build linux

package inside

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"deepswe/env/guest"
)

// server answers the calls of one host.
type server struct {
	ctx      context.Context // ends with the stream
	options  options
	wire     *guest.Server
	files    *threads // that file verbs run on
	helpers  *threads // that help them with many files
	parallel *parallelism
	reads    bool // the thread that reads calls may read files
	procs    *processes

	writes sync.Mutex // held while a write takes effect
}

// handle answers a call on a goroutine of its own, or on a thread for file verbs that is free. What takes no noticeable
// time is answered at once, by the thread that reads calls: a change of threads would take longer.
func (s *server) handle(c *guest.Call) {
	if reply, err := guard(func() (guest.Message, error) { return s.atOnce(c), nil }); reply != nil || err != nil {
		c.Answer(reply, err)
		return
	}
	work := func() { c.Answer(guard(func() (guest.Message, error) { return s.answer(c) })) }
	if _, ok := c.Request.(*guest.RunCall); ok {
		go work()
	} else if !s.files.offer(work, func(err error) { c.Answer(nil, err) }) {
		go func() {
			if err := s.files.do(c.Context(), work); err != nil {
				c.Answer(nil, err)
			}
		}()
	}
	runtime.Gosched() // or the processor waits for the next frame with this thread
}

// atOnce answers a ping and reads small files. It is nil for everything else.
func (s *server) atOnce(c *guest.Call) guest.Message {
	switch r := c.Request.(type) {
	case *guest.PingCall:
		return r
	case *guest.ReadCall:
		if s.reads {
			return readAtOnce(c, s.path(r.Path), r.ReadOptions)
		}
	}
	return nil
}

// answer does what is asked for: file verbs with the command user's rights.
func (s *server) answer(c *guest.Call) (guest.Message, error) {
	switch r := c.Request.(type) {
	case *guest.RunCall:
		return s.procs.command(c, *r)
	case *guest.ReadCall:
		return read(c, s.path(r.Path), r.ReadOptions)
	case *guest.WriteCall:
		return s.write(c, s.path(r.Path), r.WriteOptions)
	case *guest.ListCall:
		return list(c, s.path(r.Path), r.ListOptions)
	case *guest.Query:
		return s.search(c, s.path(r.Path), *r)
	case *guest.TreeCall:
		return s.tree(c, s.path(r.Root), r.TreeOptions)
	case *guest.UnpackCall:
		return unpack(c, s.path(r.Dir))
	}
	return nil, fmt.Errorf("guest: no answer to %T", c.Request)
}

// guard turns a panic into an error: a bug that one file triggers must not end the sandbox.
func guard(f func() (guest.Message, error)) (reply guest.Message, err error) {
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
