//go:build linux

package inside

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"deepswe/env/disk"
	"deepswe/env/guest"
)

const (
	// settle is how long to wait for more output after the shell has exited while other processes hold its streams
	// open.
	settle = 50 * time.Millisecond
	// longestArgument is the kernel's limit on the length of one argument, including its final NUL.
	longestArgument = 128 << 10
	// notStarted is a shell's exit code for a program that it could not execute.
	notStarted = 126
)

// job is one command in progress.
type job struct {
	pid            int
	mark           uint64
	exited         chan syscall.WaitStatus
	stdout, stderr *recorder
	streams        [2]*os.File   // the pipes that they are recorded from
	silent         chan struct{} // closed when both streams have ended
}

func newJob(c guest.Command) *job {
	return &job{
		stdout: &recorder{most: c.Head, limit: c.Tail}, stderr: &recorder{most: c.Head, limit: c.Tail},
		silent: make(chan struct{}),
	}
}

// command runs one command line and returns its result. A command that cannot be started is also a result, because
// the model may be the cause: it wrote the line, and its earlier commands may have changed the sandbox.
func (p *processes) command(c *guest.Call, r guest.RunCall) (guest.Message, error) {
	began := time.Now()
	if r.Dir == "" {
		r.Dir = p.options.dir
	} else if !filepath.IsAbs(r.Dir) {
		r.Dir = filepath.Join(p.options.dir, r.Dir)
	}
	r.Shell = lookPath(cmp.Or(r.Shell, p.shell), p.options.environment)
	killed, _ := p.oom.count()
	filled := p.disk.beginCommand(r.AsGuest)
	var result guest.Result
	j, note, err := p.launchPatiently(c, r)
	if err != nil {
		full := p.disk.end(filled)
		if c.Context().Err() != nil || errors.Is(err, guest.ErrClosed) {
			return nil, err
		}
		j = newJob(r.Command)
		_, _ = j.stderr.Write([]byte("deepswe: " + explain(r, err) + "\n"))
		if full != "" {
			_, _ = j.stderr.Write([]byte("deepswe: " + full + "\n"))
		}
		result.ExitCode, result.Elapsed, result.OutOfDisk = notStarted, time.Since(began), full != ""
		return j.report(c, result)
	}
	_, _ = j.stderr.Write([]byte(note))
	status := p.await(c, j, r.Command, began, &result)
	if p.leaving.Load() {
		<-c.Context().Done() // the command was killed: it has no result of its own
		return nil, guest.ErrClosed
	}
	if result.Background = p.settle(j); r.EndAll {
		p.kill(func() (targets, others []disk.Stat) { return p.partition(j) })
	}
	result.ExitCode, result.Signal = exit(status)
	killedNow, _ := p.oom.count()
	result.OutOfMemory = killedNow > killed
	if full := p.disk.end(filled); full != "" {
		result.OutOfDisk = true
		_, _ = j.stderr.Write([]byte("deepswe: " + full + "\n"))
	}
	result.Elapsed = time.Since(began)
	return j.report(c, result)
}

// report adds the captured output to a command's result and sends it.
func (j *job) report(c *guest.Call, r guest.Result) (guest.Message, error) {
	r.Stdout, r.Stderr = j.stdout.stop(), j.stderr.stop()
	return c.Result(r)
}

// launchPatiently starts the shell, and retries for a while when the process limit is reached. If the limit stays
// reached, it kills what earlier commands left running, because otherwise nothing could ever run in this sandbox
// again. Then it retries as long: killed processes count until they have been reaped.
func (p *processes) launchPatiently(c *guest.Call, r guest.RunCall) (j *job, note string, err error) {
	const tries = 5 // before and after
	for try := range 2 * tries {
		if j, err = p.launch(c, r); !errors.Is(err, syscall.EAGAIN) {
			return j, note, err
		}
		if try == tries-1 {
			p.kill(p.leftovers)
			note = "deepswe: the process limit was reached; processes left by earlier commands were ended\n"
			continue
		}
		select {
		case <-time.After(20 * time.Millisecond << (try % tries)):
		case <-c.Context().Done():
			return nil, "", c.Context().Err()
		}
	}
	return nil, "", err
}

// launch starts the shell, and the goroutines that read and write its streams.
func (p *processes) launch(c *guest.Call, r guest.RunCall) (*job, error) {
	p.gate.RLock()
	defer p.gate.RUnlock()
	j := newJob(r.Command)
	var ours []*os.File
	var err error
	fork := func() { ours, err = p.fork(j, r) }
	if r.AsGuest {
		fork()
	} else if broken := p.spawner.do(c.Context(), fork); broken != nil {
		err = broken
	}
	if err != nil {
		return nil, err
	}
	p.connect(c, j, r, ours)
	return j, nil
}

// fork creates the streams and starts the shell. It runs on the spawner's thread, because the streams must belong
// to the command user, who may open them again by path ("> /dev/stderr"). It returns our ends of the pipes:
// standard input if there is any, standard output, standard error, and a pipe for a line that is too long for an
// argument.
func (p *processes) fork(j *job, r guest.RunCall) (ours []*os.File, err error) {
	var theirs []*os.File
	defer func() {
		closeAll(theirs)
		if err != nil {
			closeAll(ours)
		}
	}()
	argv := []string{filepath.Base(r.Shell), "-c", r.Line}
	streams := []bool{false, true, true} // whether we read from the stream
	if len(r.Line) >= longestArgument {
		argv[2] = ". /dev/fd/3" // too long for an argument: the shell reads it from a pipe
		streams = append(streams, false)
	}
	for i, reading := range streams {
		if i == 0 && !r.HasStdin {
			null, err := os.Open(os.DevNull)
			if err != nil {
				return nil, err
			}
			theirs = append(theirs, null)
			continue
		}
		from, to, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		if reading {
			from, to = to, from
		}
		theirs, ours = append(theirs, from), append(ours, to)
	}
	attr := &syscall.ProcAttr{
		Dir: r.Dir, Env: guest.Overlay(p.options.environment, r.Env),
		Sys: &syscall.SysProcAttr{Setsid: true, Credential: p.options.credential()},
	}
	if r.AsGuest {
		attr.Env, attr.Sys.Credential = guest.Overlay(os.Environ(), r.Env), nil
	}
	if os.Getpid() != 1 {
		attr.Sys.Pdeathsig = syscall.SIGKILL // needed if the guest is not PID 1 of a namespace
	}
	for _, f := range theirs {
		attr.Files = append(attr.Files, f.Fd())
	}
	return ours, p.start(j, r.Shell, argv, attr)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// connect starts the goroutines that read and write our ends of the streams. They last until no process holds the
// other ends, which may be long after the command; what they read after the result is discarded.
func (p *processes) connect(c *guest.Call, j *job, r guest.RunCall, ours []*os.File) {
	p.keep(ours)
	next := func() *os.File {
		f := ours[0]
		ours = ours[1:]
		return f
	}
	if r.HasStdin {
		feed := next()
		p.streams.Go(func() {
			_, _ = io.Copy(feed, c.Body())
			p.drop(feed)
		})
	}
	stdout, stderr, first := next(), next(), make(chan struct{})
	j.streams = [2]*os.File{stdout, stderr}
	p.streams.Go(func() {
		p.record(j.stdout, stdout)
		p.drop(stdout)
		close(first)
	})
	p.streams.Go(func() {
		p.record(j.stderr, stderr)
		p.drop(stderr)
		<-first
		close(j.silent)
	})
	if len(ours) > 0 {
		script := next()
		p.streams.Go(func() {
			_, _ = io.WriteString(script, r.Line)
			p.drop(script)
		})
	}
}

// await waits for the shell, and ends its processes when the timeout expires or the call is cancelled.
func (p *processes) await(
	c *guest.Call, j *job, cmd guest.Command, began time.Time, result *guest.Result,
) syscall.WaitStatus {
	var timeout <-chan time.Time
	if cmd.Timeout > 0 {
		timeout = time.After(cmd.Timeout - time.Since(began))
	}
	select {
	case status := <-j.exited:
		return status
	case <-timeout:
		result.TimedOut = true
	case <-c.Context().Done():
		result.Cancelled = true
	}
	return p.end(j, cmd.Grace)
}

// settle waits for the last output after the shell has exited, and returns how many processes the command has left
// running. Everything that the shell waited for is in the pipes by now, and is recorded however busy the machine
// is.
func (p *processes) settle(j *job) int {
	select {
	case <-j.silent:
	case <-time.After(settle):
		p.drain(j.stdout, j.streams[0])
		p.drain(j.stderr, j.streams[1])
	}
	return len(p.members(j))
}

// exit converts a wait status to an exit code and the name of a signal, as shells do.
func exit(status syscall.WaitStatus) (code int, signal string) {
	if status.Signaled() {
		return 128 + int(status.Signal()), signalName(status.Signal())
	}
	return status.ExitStatus(), ""
}

// explain says why a shell could not be started.
func explain(r guest.RunCall, err error) string {
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return "cannot start a shell: the sandbox's process limit is reached"
	case errors.Is(err, syscall.E2BIG):
		return "cannot start a shell: the environment is too long"
	case errors.Is(err, syscall.EINVAL):
		return "cannot start a shell: the command line contains a NUL byte"
	}
	if info, statErr := os.Stat(r.Dir); statErr != nil {
		return fmt.Sprintf("cannot start a shell: the working directory %s is gone: %v", r.Dir, statErr)
	} else if !info.IsDir() {
		return fmt.Sprintf("cannot start a shell: the working directory %s is not a directory", r.Dir)
	}
	return fmt.Sprintf("cannot start %s in %s: %v", r.Shell, r.Dir, err)
}

func signalName(s syscall.Signal) string {
	names := [...]string{
		1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
		9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM",
		16: "SIGSTKFLT", 17: "SIGCHLD", 18: "SIGCONT", 19: "SIGSTOP", 20: "SIGTSTP", 21: "SIGTTIN", 22: "SIGTTOU",
		23: "SIGURG", 24: "SIGXCPU", 25: "SIGXFSZ", 26: "SIGVTALRM", 27: "SIGPROF", 28: "SIGWINCH", 29: "SIGIO",
		30: "SIGPWR", 31: "SIGSYS",
	}
	if int(s) < len(names) && names[s] != "" {
		return names[s]
	}
	return "signal " + strconv.Itoa(int(s))
}
