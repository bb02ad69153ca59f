//go:build linux

package inside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"deepswe/env/guest"
)

// Main is the guest: it serves the host at the other end of in and out, and returns the exit code when in ends. By then
// everything that it started is gone. The process should end upon that: what Main did to itself cannot be undone.
//
// A provider starts the guest as PID 1 where it can, and says with --dir where commands run and with --uid and --gid as
// whom. To have them run as another user, the guest needs the capabilities SETUID, SETGID and KILL, and uses SETPCAP if
// it has it; it needs no other, and no command inherits any. --build comes back in the greeting, --silence ends a guest
// whose host has not sent anything for so long, --home is made and set, --oom-file says where out-of-memory kills are
// counted, and --rlimit-memory and --rlimit-processes replace control groups. With --stage, Main is no guest yet: see
// [guest.Stage]. Where nobody on the host can prepare the container or attach to it for good, --listen has the guest do
// the first and wait for --bridge processes.
func Main(args []string, in io.Reader, out io.Writer, errOut io.Writer) int {
	o, err := parse(args)
	if err != nil {
		fmt.Fprintf(errOut, "deepswe guest: %v\n", err)
		return 2
	}
	if o.goCache != "" {
		if err := serveGoCache(o.goCache, in, out); err != nil {
			fmt.Fprintf(errOut, "deepswe guest: go build cache: %v\n", err)
			return 1
		}
		return 0
	}
	if o.stage > 0 {
		if err := runStage(o.stage, o.program); err != nil {
			fmt.Fprintf(errOut, "deepswe guest: %v\n", err)
			return 1
		}
		return 0
	}
	if o.bridge != "" {
		err = bridge(o.bridge, os.Stdin, os.Stdout)
	} else {
		err = o.work(in, out)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		fmt.Fprintf(errOut, "deepswe guest: %v\n", err)
		if own, ok := errors.AsType[*exitError](err); ok {
			return own.code
		}
		return 1
	}
	return 0
}

// work installs the program, or serves.
func (o options) work(in io.Reader, out io.Writer) error {
	if err := o.closeNetwork(); err != nil {
		return err
	}
	if o.install != "" {
		return install(o.install)
	}
	if o.listen != "" {
		if err := o.prepareContainer(); err != nil {
			return err
		}
		o.setEnvironment()
	}
	stop := ignoreSignals()
	defer stop()
	adj, err := o.prepareSelf()
	if err != nil {
		return err
	}
	if o.listen != "" {
		return serveLine(o, adj)
	}
	return serveStream(o, adj, in, out)
}

// ignoreSignals takes every signal that could end or stop the guest and does nothing about it: commands may send any.
// Those that do no harm are left alone, because the Go runtime preempts goroutines with one of them.
//
// Three signals are the C library's, and the Go runtime leaves them as they are. That the kernel spares PID 1 is not
// enough for them: Linux looks whether its first thread would take a signal, and kills the whole process while that
// thread is busy with another signal.
func ignoreSignals() (stop func()) {
	taken := make(chan os.Signal, 1) // never read: a full channel drops signals
	const lastSignal = 64
	for s := syscall.Signal(1); s <= lastSignal; s++ {
		switch s {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG, syscall.SIGWINCH, syscall.SIGCONT:
		case 32, 33, 34:
			ignore := [8]uint64{1} // a struct sigaction, whose handler is SIG_IGN; every other field is zero
			_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&ignore)), 0, 8, 0, 0)
		default:
			signal.Notify(taken, s)
		}
	}
	return func() { signal.Stop(taken) }
}

func serveStream(o options, adj *oomScore, in io.Reader, out io.Writer) error {
	processors := min(runtime.GOMAXPROCS(0), 4)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := &server{
		ctx: ctx, options: o, parallel: newParallelism(processors), procs: newProcesses(o, adj),
		files: newThreads(6, o.demote()), helpers: newThreads(processors, o.demote()),
	}
	s.wire = guest.NewServer(ctx, out, s.handle)
	reserveThreads(16)
	if o.home != "" {
		var err error
		gone := s.files.do(ctx, func() { err = os.MkdirAll(o.home, 0o700) })
		if err := errors.Join(gone, err); err != nil {
			return fmt.Errorf("make a home for commands: %w", err)
		}
	}
	wrote, ended := make(chan error, 1), make(chan error, 1)
	// These two goroutines may be left behind when the host neither sends nor reads: the process ends then.
	go func() { wrote <- s.wire.Write() }()
	if err := s.wire.Greet(o.hello()); err != nil {
		return err
	}
	go func() {
		s.reads = s.files.join()
		ended <- s.wire.Read(in)
	}()
	err := s.listen(ended, wrote)
	cancel()
	s.procs.close()
	s.wire.Stop()
	if !s.finish() {
		return errors.Join(err, errors.New("some calls do not end"))
	}
	s.files.close()
	s.helpers.close()
	return err
}

// finish waits for the calls under way, which have been cancelled, and reports whether they ended: one may hang in a
// file system that does not answer.
func (s *server) finish() bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.wire.Wait()
	}()
	select {
	case <-done:
		return true
	case <-time.After(killTimeout):
		return false
	}
}

// listen waits until the host is gone: its stream ends either way, or it has been silent for too long.
func (s *server) listen(ended, wrote <-chan error) error {
	var silence <-chan time.Time
	if s.options.silence > 0 {
		ticker := time.NewTicker(s.options.silence / 2)
		defer ticker.Stop()
		silence = ticker.C
	}
	quiet := 0
	for {
		select {
		case err := <-ended:
			return err
		case err := <-wrote:
			return err
		case err := <-s.procs.full():
			return err
		case <-silence:
			if s.wire.Heard() {
				quiet = 0
			} else if quiet++; quiet > 1 {
				return fmt.Errorf("nothing heard from the host for %v", s.options.silence)
			}
		}
	}
}
