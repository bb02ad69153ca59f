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

// Main runs the guest: it serves the host over in and out until in ends, and returns the exit code. By then
// everything that it started has ended. The process should exit then, because Main changes it irreversibly.
//
// Providers start the guest as PID 1 if they can. --dir is the working directory of commands, --uid and --gid are
// the user and group they run as. To run them as another user, the guest needs the capabilities SETUID, SETGID and
// KILL, and uses SETPCAP if it has it; it needs no others, and commands inherit none. --build is sent in the
// greeting; --silence ends a guest whose host has sent nothing for that long; --home is created and set; --oom-file
// is where the kernel counts out-of-memory kills; --rlimit-memory and --rlimit-processes replace control groups.
// With --stage, Main makes mounts and executes another program: see [guest.Stage]. With --listen, for providers
// that can neither prepare the container nor stay attached to it, the guest prepares it and waits for --bridge
// processes.
func Main(args []string, in io.Reader, out io.Writer, errOut io.Writer) int {
	o, err := parse(args)
	if err != nil {
		fmt.Fprintf(errOut, "deepswe guest: %v\n", err)
		return 2
	}
	switch {
	case o.goCache != "":
		if err = serveGoCache(o.goCache, in, out); err != nil {
			err = fmt.Errorf("go build cache: %w", err)
		}
	case o.stage > 0:
		err = runStage(o.stage, o.program)
	case o.bridge != "":
		err = bridge(o.bridge, os.Stdin, os.Stdout)
	default:
		if err = o.work(in, out); errors.Is(err, io.EOF) {
			err = nil // the host has closed the stream
		}
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(errOut, "deepswe guest: %v\n", err)
	if own, ok := errors.AsType[*exitError](err); ok {
		return own.code
	}
	return 1
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

// ignoreSignals ignores every signal that could end or stop the guest, because commands may send any. Harmless
// signals are left alone, because the Go runtime uses one of them to preempt goroutines.
//
// The Go runtime does not touch three signals that belong to the C library. The kernel does not deliver them to PID
// 1, but that is not enough: Linux checks whether its first thread would accept the signal, and kills the whole
// process if that thread is busy with another signal.
func ignoreSignals() (stop func()) {
	taken := make(chan os.Signal, 1) // never read: signals to a full channel are dropped
	const lastSignal = 64
	for s := syscall.Signal(1); s <= lastSignal; s++ {
		switch s {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG, syscall.SIGWINCH, syscall.SIGCONT:
		case 32, 33, 34:
			ignore := [8]uint64{1} // a struct sigaction with the handler SIG_IGN
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
			return fmt.Errorf("create a home for commands: %w", err)
		}
	}
	wrote, ended := make(chan error, 1), make(chan error, 1)
	// These two goroutines may outlive Main if the host neither sends nor reads; the process ends then.
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
		return errors.Join(err, errors.New("some calls did not end"))
	}
	s.ports.close()
	s.files.close()
	s.helpers.close()
	return err
}

// finish waits for the cancelled calls and reports whether they ended. One may hang in an unresponsive file system.
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

// listen waits until the host is gone: until a stream ends, or the host has been silent for too long.
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
				return fmt.Errorf("nothing received from the host for %v", s.options.silence)
			}
		}
	}
}
