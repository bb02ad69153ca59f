//go:build linux

package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"deepswe/env/guest"
)

// forker starts processes from one thread that lives as long as the provider. A child inherits the control groups
// of the thread that forked it, and may be signalled when that thread ends.
type forker struct {
	jobs   chan func()
	once   sync.Once
	closed chan struct{}
	ended  chan struct{}
}

var errForkerClosed = errors.New("the provider is closed")

func newForker() *forker {
	f := &forker{jobs: make(chan func()), closed: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		f.serve()
	}()
	return f
}

// serve runs jobs on one thread. It must not be the main thread, because the main thread's control groups count as the
// process's: a provider that is opened meanwhile would look for its own groups in those of a sandbox.
func (f *forker) serve() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread() // a locked thread would end with its goroutine, and kill its children
	if syscall.Gettid() == os.Getpid() {
		var elsewhere sync.WaitGroup
		elsewhere.Go(f.serve) // on another thread, because this one stays locked
		elsewhere.Wait()
		return
	}
	for {
		select {
		case job := <-f.jobs:
			job()
		case <-f.closed:
			return
		}
	}
}

func (f *forker) do(job func() error) error {
	done := make(chan error, 1)
	select {
	case f.jobs <- func() { done <- job() }:
		return <-done
	case <-f.closed:
		return errForkerClosed
	}
}

func (f *forker) close() {
	f.once.Do(func() { close(f.closed) })
	<-f.ended
}

// running is a guest's process, as seen from the host.
type running struct {
	cmd    *exec.Cmd
	client *guest.Client
	errOut *tail
	exited chan struct{} // closed once err is set
	err    error
}

// launch contains everything needed to start a guest.
type launch struct {
	path  string
	args  []string
	env   []string
	build string
	group *group     // nil if there are no limits
	files []*os.File // inherited as descriptors 3 and up; closed here afterwards
	attr  *syscall.SysProcAttr
}

// start starts a guest and connects to it.
func (f *forker) start(ctx context.Context, l launch) (*running, error) {
	ours, theirs, err := newStream()
	if err != nil {
		return nil, fmt.Errorf("start the guest: %w", err)
	}
	r := &running{errOut: &tail{}, exited: make(chan struct{})}
	r.cmd = &exec.Cmd{
		Path: l.path, Args: append([]string{l.path}, l.args...), Env: l.env, Dir: "/",
		Stdin: theirs.in, Stdout: theirs.out, Stderr: r.errOut, ExtraFiles: l.files,
		SysProcAttr: cmp.Or(l.attr, &syscall.SysProcAttr{}),
		WaitDelay:   time.Second,
	}
	r.cmd.SysProcAttr.Setsid = true // keeps Ctrl-C from the guest: the host may have work to save
	err = f.do(func() error {
		if l.group == nil {
			return r.cmd.Start()
		}
		return l.group.fork(r.cmd.SysProcAttr, r.cmd.Start)
	})
	theirs.Close()
	closeAll(l.files)
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("start the guest: %w", err)
	}
	go func() {
		r.err = r.cmd.Wait()
		close(r.exited)
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	r.client, err = guest.Connect(ctx, ours)
	if err == nil && r.client.Hello().Build != l.build {
		err = fmt.Errorf("the guest is another build (%s) than this program", r.client.Hello().Build)
		err = errors.Join(err, r.client.Close())
	}
	if err != nil {
		stopErr := r.stop() // makes the guest end, as its stream is closed
		if said := r.errOut.String(); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return nil, errors.Join(fmt.Errorf("start the guest: %w", err), stopErr)
	}
	return r, nil
}

// stop waits for the guest to end after the client was closed, and kills it if it does not.
func (r *running) stop() error {
	select {
	case <-r.exited:
		return nil
	case <-time.After(removeTimeout / 2):
	}
	syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
	select {
	case <-r.exited:
		return nil
	case <-time.After(removeTimeout / 4):
		return fmt.Errorf("process %d does not end", r.cmd.Process.Pid)
	}
}

// stream is one end of a pair of pipes.
type stream struct{ in, out *os.File }

func newStream() (ours, theirs *stream, err error) {
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		theirIn.Close()
		ourOut.Close()
		return nil, nil, err
	}
	return &stream{ourIn, ourOut}, &stream{theirIn, theirOut}, nil
}

func (s *stream) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s *stream) Write(p []byte) (int, error) { return s.out.Write(p) }
func (s *stream) Close() error                { return errors.Join(s.out.Close(), s.in.Close()) }

var _ io.ReadWriteCloser = (*stream)(nil)

// tail keeps the end of what a process writes to standard error.
type tail struct {
	mu   sync.Mutex
	said []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const most = 64 << 10 // with room for a traceback, whose beginning counts
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said = append(t.said, p...)
	t.said = t.said[max(0, len(t.said)-most):]
	return len(p), nil
}

// String returns what was said last, without the traceback of a program that has crashed.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	said := string(t.said)
	for _, begin := range []string{"\nruntime stack:\n", "\ngoroutine "} {
		said, _, _ = strings.Cut(said, begin)
	}
	const most = 4 << 10
	return strings.TrimSpace(said[max(0, len(said)-most):])
}
