//go:build linux

package inside

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"deepswe/env/disk"
	"deepswe/env/guest"
)

// processes starts, reaps and kills the sandbox's processes. Orphans become children of the guest, which is PID 1
// or a subreaper, so that no process escapes.
//
// One goroutine reaps. It takes the lock to do so, and so does every fork: a child is registered before it can be
// reaped.
type processes struct {
	options options
	spawner *threads // has one thread, without the privileges that commands must not have
	shell   string
	oom     oomCounter
	adj     *oomScore  // nil if the kernel has none
	disk    *diskWatch // nil if there is no limit

	gate     sync.RWMutex // read-locked by forks, locked while everything is killed
	mu       sync.Mutex
	children map[int]chan syscall.WaitStatus // started here and not yet reaped
	next     uint64                          // the next command's mark (see kill.go)
	started  int                             // commands started so far
	pipes    map[*os.File]struct{}           // our ends of the commands' streams
	closed   bool

	buffers sync.Pool     // for reading the commands' streams
	scan    sync.Mutex    // one scan of /proc at a time: it is slow and holds a thread
	leaving atomic.Bool   // results of commands are withheld: the sandbox is being removed
	born    chan struct{} // wakes the reaper when there are children again
	stop    chan struct{}
	reaped  chan struct{} // closed when reap has returned
	streams sync.WaitGroup
}

func newProcesses(o options, adj *oomScore) *processes {
	p := &processes{
		options: o, spawner: newThreads(1, o.harden), shell: findShell(o.environment),
		oom: newOOMCounter(o.oomFile), adj: adj,
		children: map[int]chan syscall.WaitStatus{}, pipes: map[*os.File]struct{}{},
		born: make(chan struct{}, 1), stop: make(chan struct{}), reaped: make(chan struct{}), next: firstMark(),
	}
	p.disk = newDiskWatch(o, p.killEverything)
	go p.reap()
	return p
}

// findShell prefers bash, because models write for it.
func findShell(environ []string) string {
	for _, path := range []string{"/bin/bash", "/usr/bin/bash", lookPath("bash", environ)} {
		if executable(path) {
			return path
		}
	}
	return "/bin/sh"
}

// lookPath finds a program in the PATH of an environment. A name with a slash, and one that is not found, is returned
// as it is.
func lookPath(name string, environ []string) string {
	if strings.Contains(name, "/") {
		return name
	}
	for _, kv := range environ {
		path, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(path) {
			if candidate := filepath.Join(dir, name); executable(candidate) {
				return candidate
			}
		}
	}
	return name
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// Constants of waitid(2) that package syscall lacks.
const (
	waitAll      = 0
	waitNoHang   = 1
	waitExited   = 4
	waitNoReap   = 0x1000000
	siginfoSize  = 128
	siginfoPIDAt = 16 // offset of si_pid on every 64-bit Linux
)

// waitAny finds a child that has ended, without reaping it.
func waitAny(flags uintptr) (pid int, errno syscall.Errno) {
	var info [siginfoSize / 8]uint64
	_, _, errno = syscall.Syscall6(syscall.SYS_WAITID, waitAll, 0, uintptr(unsafe.Pointer(&info)),
		waitExited|waitNoReap|flags, 0, 0)
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), siginfoPIDAt))), errno
}

// childless reports whether no process is left below the guest. This is exact, because orphans are adopted before
// their dead parent can be reaped.
func childless() bool {
	_, errno := waitAny(waitNoHang)
	return errno == syscall.ECHILD
}

// reap reaps every child that ends, adopted or not, and passes on its status.
func (p *processes) reap() {
	defer close(p.reaped)
	for {
		pid, errno := waitAny(0)
		switch errno {
		case 0:
			p.collect(pid)
		case syscall.ECHILD:
			select {
			case <-p.born:
			case <-p.stop:
				return
			}
		}
	}
}

func (p *processes) collect(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var status syscall.WaitStatus
	if got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil); err != nil || got != pid {
		return // ForkExec itself reaps a child that failed to exec
	}
	if done := p.children[pid]; done != nil {
		delete(p.children, pid)
		done <- status
	}
}

// start forks and executes a job's shell.
func (p *processes) start(j *job, path string, argv []string, attr *syscall.ProcAttr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return guest.ErrClosed
	}
	p.started++
	j.mark = p.markNext()
	restore := p.preferForOOM()
	pid, err := syscall.ForkExec(path, argv, attr)
	restore()
	if err != nil {
		return err
	}
	j.pid, j.exited = pid, make(chan syscall.WaitStatus, 1)
	p.children[pid] = j.exited
	select {
	case p.born <- struct{}{}:
	default:
	}
	return nil
}

// preferForOOM makes the guest the out-of-memory killer's first choice while it forks, because children inherit
// that. The guest may restore its own score afterwards, whereas lowering a child's would need a privilege.
func (p *processes) preferForOOM() (restore func()) {
	if p.adj == nil {
		return func() {}
	}
	_, _ = p.adj.file.WriteAt([]byte("1000"), 0)
	return func() { _, _ = p.adj.file.WriteAt(p.adj.own, 0) }
}

// keep registers pipes that have to be closed to end their readers and writers.
func (p *processes) keep(pipes []*os.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pipe := range pipes {
		p.pipes[pipe] = struct{}{}
	}
}

func (p *processes) drop(pipe *os.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pipes, pipe)
	pipe.Close()
}

// close kills everything below the guest and waits until it has ended.
func (p *processes) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	gone := p.killBelow()
	tidying, cancel := context.WithTimeout(context.Background(), killTimeout)
	_ = p.disk.tidy(tidying) // nobody is left to be told
	cancel()
	p.disk.close()
	close(p.stop)
	if gone {
		<-p.reaped
	}
	p.mu.Lock()
	for pipe := range p.pipes {
		pipe.Close()
	}
	p.mu.Unlock()
	p.streams.Wait()
	p.spawner.close()
	p.oom.file.Close()
}

// full returns a channel that receives an error when the machine's disk is nearly full.
func (p *processes) full() <-chan error {
	if p == nil || p.disk == nil {
		return nil
	}
	return p.disk.full
}

// killEverything kills what commands have started. It makes new commands wait until that is done.
func (p *processes) killEverything() {
	p.gate.Lock()
	defer p.gate.Unlock()
	p.kill(everything)
}

// killBelow kills everything below the guest and reports whether it has ended.
func (p *processes) killBelow() bool {
	deadline := time.Now().Add(killTimeout)
	for pause := 100 * time.Microsecond; !childless(); pause = min(2*pause, 10*time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
		if os.Getpid() == 1 {
			// All at once, so that no process can fork in between. Only the guest is left in this PID namespace.
			syscall.Kill(-1, syscall.SIGKILL)
		} else {
			p.kill(everything)
		}
		time.Sleep(pause)
	}
	return true
}

// everything makes targets of all processes below the guest.
func everything() (targets, others []disk.Stat) { return descendants(), nil }

// descendants returns the living processes below the guest, parents first.
func descendants() []disk.Stat {
	children := map[int][]disk.Stat{}
	pids, _ := disk.PIDs()
	for _, pid := range pids {
		if s, err := disk.ReadStat(pid); err == nil { // otherwise it has ended meanwhile
			children[s.Parent] = append(children[s.Parent], s)
		}
	}
	var below []disk.Stat
	for queue := children[os.Getpid()]; len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		if s.Alive() {
			below = append(below, s)
		}
		queue = append(queue, children[s.PID]...)
	}
	return below
}

// send signals those of the processes whose PIDs have not been reused.
func send(signal syscall.Signal, all []disk.Stat) {
	for _, s := range all {
		if now, err := disk.ReadStat(s.PID); err == nil && now.Start == s.Start {
			syscall.Kill(s.PID, signal)
		}
	}
}
