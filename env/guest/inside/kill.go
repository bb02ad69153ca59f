//go:build linux

package inside

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"deepswe/env/disk"
)

func (p *processes) members(j *job) []disk.Stat {
	ours, _ := p.partition(j)
	return ours
}

// partition separates the living processes of a job from all others below the guest. A process belongs to the job
// if it has the job's mark, is in its session, or descends from such a process.
func (p *processes) partition(j *job) (ours, others []disk.Stat) {
	p.scan.Lock()
	defer p.scan.Unlock()
	if childless() {
		return nil, nil
	}
	known := map[int]bool{j.pid: true}
	for _, candidate := range descendants() {
		if known[candidate.PID] || known[candidate.Parent] || candidate.Session == j.pid || p.marked(j, candidate.PID) {
			known[candidate.PID] = true
			ours = append(ours, candidate)
		} else {
			others = append(others, candidate)
		}
	}
	return ours, others
}

// leftovers separates living processes whose commands have ended from those of running commands.
func (p *processes) leftovers() (left, busy []disk.Stat) {
	p.scan.Lock()
	defer p.scan.Unlock()
	p.mu.Lock()
	shells := make(map[int]bool, len(p.children))
	for pid := range p.children {
		shells[pid] = true
	}
	p.mu.Unlock()
	known := maps.Clone(shells)
	for _, one := range descendants() {
		if known[one.PID] || known[one.Parent] || shells[one.Session] {
			known[one.PID] = true
			busy = append(busy, one)
		} else {
			left = append(left, one)
		}
	}
	return left, busy
}

// end asks a job's processes to stop and kills them when grace has passed. It returns the shell's wait status.
func (p *processes) end(j *job, grace time.Duration) syscall.WaitStatus {
	all := p.members(j)
	send(syscall.SIGTERM, all)
	send(syscall.SIGCONT, all) // a stopped process cannot handle SIGTERM
	status, exited := syscall.WaitStatus(0), false
	deadline := time.Now().Add(grace)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		select {
		case status = <-j.exited:
			exited = true
		case <-time.After(min(pause, time.Until(deadline))):
		}
		if exited && len(p.members(j)) == 0 {
			return status
		}
		if !time.Now().Before(deadline) {
			break
		}
	}
	p.kill(func() (targets, others []disk.Stat) { return p.partition(j) })
	if exited {
		return status
	}
	select {
	case status = <-j.exited:
		return status
	case <-time.After(killTimeout): // blocked in the kernel, which delays signals
		return syscall.WaitStatus(syscall.SIGKILL)
	}
}

// killTimeout is how long killed processes may take to end.
const killTimeout = 5 * time.Second

// kill kills the targets until none is left, and no other processes. It stops them first: a stopped process cannot
// fork, so this succeeds even if they multiply faster than they can be counted.
func (p *processes) kill(find func() (targets, others []disk.Stat)) {
	for deadline := time.Now().Add(killTimeout); time.Now().Before(deadline); {
		before := p.forks()
		targets, others := find()
		if len(targets) == 0 {
			return
		}
		if len(others) > 0 || !p.killAll(before) {
			for rounds := 100; rounds > 0 && running(targets); rounds-- {
				send(syscall.SIGSTOP, targets)
				targets, _ = find()
			}
			send(syscall.SIGKILL, targets)
		}
		time.Sleep(time.Millisecond)
	}
}

func running(all []disk.Stat) bool {
	return slices.ContainsFunc(all, func(s disk.Stat) bool { return s.State != 'T' })
}

// forks returns how many commands have been started so far.
func (p *processes) forks() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started
}

// killAll kills all processes at once, unless a command was started after the caller made sure that only the
// targets were left; it reports whether it did. Only PID 1 can do this: it signals all others in one step, which no
// fork escapes.
func (p *processes) killAll(started int) bool {
	p.mu.Lock() // keeps commands from being started meanwhile
	defer p.mu.Unlock()
	if os.Getpid() != 1 || p.started != started {
		return false
	}
	return syscall.Kill(-1, syscall.SIGKILL) == nil
}

// A command's processes are recognised by a mark that they inherit and cannot remove, whatever they do to sessions,
// parents and environments. The mark is the hard limit of a resource that Linux has ignored since 2.4 (RLIMIT_LOCKS):
// an unprivileged process can lower a limit but never raise it, so the guest lowers its own before
// each fork. Each command gets a range of values, because guests may run inside it.
const (
	rlimitLocks = 10
	markTop     = 1 << 62
	markSpan    = 1 << 40
)

func firstMark() uint64 {
	var limit syscall.Rlimit
	if err := prlimit(rlimitLocks, nil, &limit); err != nil || limit.Max > markTop {
		return markTop
	}
	return limit.Max - 1
}

// prlimit reads and sets a limit of the guest's own process.
func prlimit(resource uintptr, set, get *syscall.Rlimit) error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, resource,
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// markNext gives the next forked process a mark of its own and returns it, or 0 if the kernel has no such limit.
func (p *processes) markNext() uint64 {
	mark := p.next
	if mark < 2*markSpan || prlimit(rlimitLocks, &syscall.Rlimit{Cur: mark, Max: mark}, nil) != nil {
		return 0
	}
	p.next -= markSpan
	return mark
}

// marked reports whether a process has a job's mark, or one that no job has been given: such a process has changed
// its mark, and counts as a member of every job.
func (p *processes) marked(j *job, pid int) bool {
	if j.mark == 0 {
		return false
	}
	mark, ok := markOf(pid)
	p.mu.Lock()
	defer p.mu.Unlock()
	return ok && (mark <= j.mark && mark > j.mark-markSpan || mark <= p.next)
}

// markOf reads a process's mark from /proc, which works for processes of any user, unlike prlimit(2).
func markOf(pid int) (uint64, bool) {
	limits, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return 0, false
	}
	return parseMark(limits)
}

func parseMark(limits []byte) (uint64, bool) {
	_, line, _ := bytes.Cut(limits, []byte("Max file locks"))
	fields := bytes.Fields(line)
	if len(fields) < 2 {
		return 0, false
	}
	mark, err := strconv.ParseUint(string(fields[1]), 10, 64) // the hard limit; "unlimited" is not a mark
	return mark, err == nil
}
