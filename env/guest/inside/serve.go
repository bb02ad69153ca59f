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
	ctx      context.Context // ends when the stream ends
	options  options
	wire     *guest.Server
	files    *threads // run file verbs
	helpers  *threads // help verbs that process many files
	parallel *parallelism
	reads    bool // whether the thread that reads calls may read files
	ports    ports
	procs    *processes
	memory   memories

	writes sync.Mutex // held while a write is checked and committed
}

// handle answers a call on a goroutine of its own, or on a free thread if it is a file verb. Calls that take a
// negligible time are answered at once by the thread that reads calls, because switching threads would take longer.
func (s *server) handle(c *guest.Call) {
	if reply, err := guard(func() (guest.Message, error) { return s.atOnce(c), nil }); reply != nil || err != nil {
		c.Answer(reply, err)
		return
	}
	work := func() { c.Answer(guard(func() (guest.Message, error) { return s.answer(c) })) }
	switch c.Request.(type) {
	case *guest.RunCall, *guest.AcceptCall:
		go work()
	default:
		if !s.files.offer(work, func(err error) { c.Answer(nil, err) }) {
			go func() {
				if err := s.files.do(c.Context(), work); err != nil {
					c.Answer(nil, err)
				}
			}()
		}
	}
	runtime.Gosched() // otherwise the thread keeps its processor while it waits for a frame
}

// atOnce answers a ping or reads a small file. It returns nil for every other call.
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

// answer performs a call; file verbs run with the command user's access rights.
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
	case *guest.RememberCall:
		return nil, s.remember(c, s.path(r.Root))
	case *guest.UnpackCall:
		return unpack(c, s.path(r.Dir))
	case *guest.TidyCall:
		s.procs.leaving.Store(true)
		s.procs.killEverything()
		return r, s.procs.disk.tidy(c.Context())
	case *guest.ListenCall:
		return nil, s.ports.listen(c.Context(), r.Port)
	case *guest.AcceptCall:
		return nil, s.ports.accept(c, r.Port)
	}
	return nil, fmt.Errorf("guest: unknown request %T", c.Request)
}

// guard turns a panic into an error, because a bug that one file triggers must not end the sandbox.
func guard(f func() (guest.Message, error)) (reply guest.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			reply, err = nil, fmt.Errorf("guest: panic: %v", p)
		}
	}()
	return f()
}

// path makes a path absolute, relative to the working directory of commands.
func (s *server) path(p string) string {
	if len(p) > 0 && p[0] == '/' {
		return p
	}
	if p == "" {
		return s.options.dir
	}
	return s.options.dir + "/" + p
}
