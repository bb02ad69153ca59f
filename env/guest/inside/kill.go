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

// members are the living processes of a job.
func (p *processes) members(j *job) []disk.Stat {
	ours, _ := p.partition(j)
	return ours
}

// partition separates the living processes of a job from all others below the guest. Those of the job carry its mark,
// are in its session, or descend from such a process.
func (p *processes) partition(j *job) (ours, others []disk.Stat) {
	p.scan.Lock()
	defer p.scan.Unlock()
	if childless() {
		return nil, nil
	}
	known := map[int]bool{j.pid: true}
	for _, candidate := range descendants(os.Getpid()) {
		if known[candidate.PID] || known[candidate.Parent] || candidate.Session == j.pid || p.marked(j, candidate.PID) {
			known[candidate.PID] = true
			ours = append(ours, candidate)
		} else {
			others = append(others, candidate)
		}
	}
	return ours, others
}

// leftovers separates the living processes whose commands have ended from those of running commands.
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
	for _, one := range descendants(os.Getpid()) {
		if known[one.PID] || known[one.Parent] || shells[one.Session] {
			known[one.PID] = true
			busy = append(busy, one)
		} else {
			left = append(left, one)
		}
	}
	return left, busy
}

// end asks a job's processes to stop and, when grace has passed, kills them. It returns how the shell ended.
func (p *processes) end(j *job, grace time.Duration) syscall.WaitStatus {
	all := p.members(j)
	send(syscall.SIGTERM, all)
	send(syscall.SIGCONT, all) // a stopped process cannot handle SIGTERM
	status, exited := syscall.WaitStatus(0), false
	deadline := time.Now().Add(grace)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		timer := time.NewTimer(min(pause, time.Until(deadline)))
		select {
		case status = <-j.exited:
			exited = true
		case <-timer.C:
		}
		timer.Stop()
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
	case <-time.After(killTimeout): // blocked in the kernel, where no signal is delivered
		return syscall.WaitStatus(syscall.SIGKILL)
	}
}

// killTimeout is how long killed processes may take to end.
const killTimeout = 5 * time.Second

// kill kills the targets, and no other processes, until none of them is left. They are stopped first: a stopped process
// does not fork, so this ends even when they multiply faster than they can be counted.
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

// forks is how many commands have been started so far.
func (p *processes) forks() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started
}

// killAll kills everything there is, unless a command was started since the caller saw that there are no other
// processes. It reports whether it did. Only PID 1 can do that: it signals all the others in one step, which no fork
// escapes.
func (p *processes) killAll(started int) bool {
	p.mu.Lock() // so that no command is started meanwhile
	defer p.mu.Unlock()
	if os.Getpid() != 1 || p.started != started {
		return false
	}
	return syscall.Kill(-1, syscall.SIGKILL) == nil
}

// A command's processes are recognised by a mark that they inherit and cannot shed, whatever they do with sessions,
// parents and environments: the hard limit of a resource that Linux has not looked at since 2.4. Without privileges a
// limit can be lowered and never raised, so the guest lowers its own before each fork. A command owns a span of values,
// for guests that run inside of it.
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

// markNext gives the next process that is forked a mark of its own, and returns it: 0 where the kernel has no such
// limit.
func (p *processes) markNext() uint64 {
	mark := p.next
	if mark < 2*markSpan || prlimit(rlimitLocks, &syscall.Rlimit{Cur: mark, Max: mark}, nil) != nil {
		return 0
	}
	p.next -= markSpan
	return mark
}

// marked reports whether a process bears a job's mark, or one that no job was given yet: it has changed its mark, and
// counts as a process of every job.
func (p *processes) marked(j *job, pid int) bool {
	if j.mark == 0 {
		return false
	}
	mark, ok := markOf(pid)
	p.mu.Lock()
	defer p.mu.Unlock()
	return ok && (mark <= j.mark && mark > j.mark-markSpan || mark <= p.next)
}

// markOf reads a process's mark. The file is open to everybody, which prlimit(2) is not.
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
	mark, err := strconv.ParseUint(string(fields[1]), 10, 64) // the hard limit; "unlimited" is no mark
	return mark, err == nil
}
