//go:build linux

package inside

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// Numbers of prctl(2) that package syscall does not name on every platform.
const (
	prSetDumpable       = 4
	prSetSeccomp        = 22
	prCapBSetDrop       = 24
	prSetChildSubreaper = 36
	prSetNoNewPrivs     = 38
)

func prctl(option, value, more uintptr) error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, option, value, more, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// prepareSelf prepares the guest before anything else runs: no process can trace it or read its memory, and orphans
// become its children.
func (o options) prepareSelf() (*oomScore, error) {
	syscall.Umask(0o022)
	if err := o.limitResources(); err != nil {
		return nil, err
	}
	adj := openOOMScore()
	if err := prctl(prSetDumpable, 0, 0); err != nil {
		return nil, fmt.Errorf("forbid tracing: %w", err)
	}
	if os.Getpid() != 1 {
		if err := prctl(prSetChildSubreaper, 1, 0); err != nil {
			return nil, fmt.Errorf("become a subreaper: %w", err)
		}
	}
	return adj, nil
}

// limitResources sets what commands inherit. A core dump would be a stray file in the repository.
func (o options) limitResources() error {
	limits := map[uintptr]uint64{syscall.RLIMIT_CORE: 0}
	if o.memory > 0 {
		limits[syscall.RLIMIT_DATA] = o.memory
	}
	if o.processes > 0 {
		const rlimitProcesses = 6 // RLIMIT_NPROC
		limits[rlimitProcesses] = o.processes
	}
	for resource, most := range limits {
		var was syscall.Rlimit
		if err := prlimit(resource, nil, &was); err != nil {
			return fmt.Errorf("read resource limit %d: %w", resource, err)
		}
		most = min(most, was.Max)
		if err := prlimit(resource, &syscall.Rlimit{Cur: most, Max: most}, nil); err != nil {
			return fmt.Errorf("set resource limit %d: %w", resource, err)
		}
	}
	return nil
}

// harden prepares the thread that commands are forked from: no program started from it can ever gain a privilege.
// Where commands run as the guest's own user, it loses every capability too; otherwise a command loses them when it
// becomes its user. The thread itself stays the guest's user, because a process with the same user ids as a thread may
// change the resource limits of the thread's whole process.
func (o options) harden() error {
	if err := prctl(prSetNoNewPrivs, 1, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	for capability := uintptr(0); capability < 64; capability++ {
		if prctl(prCapBSetDrop, capability, 0) == syscall.EPERM {
			break // without the right to: no_new_privs and the empty sets do the work
		}
	}
	if os.Getpid() == 1 {
		if err := filterSystemCalls(!o.separate()); err != nil {
			return err
		}
	}
	if err := setCapabilities(o.separate()); err != nil || !o.separate() {
		return err
	}
	return o.demote()() // what it opens belongs to the command user
}

// setCapabilities empties the calling thread's capability sets. A thread that has yet to become another user keeps
// those it may use, without passing any on.
func setCapabilities(keep bool) error {
	header := struct {
		version uint32
		pid     int32
	}{version: 0x20080522} // _LINUX_CAPABILITY_VERSION_3
	var sets [2]struct{ effective, permitted, inheritable uint32 }
	at, to := uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets))
	if keep {
		if _, _, errno := syscall.RawSyscall(syscall.SYS_CAPGET, at, to, 0); errno != 0 {
			return fmt.Errorf("read capabilities: %w", errno)
		}
		sets[0].inheritable, sets[1].inheritable = 0, 0
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CAPSET, at, to, 0); errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	return nil
}

// demote returns what gives a thread the command user's rights on files, or nil where the guest has no others: the
// editor must not have access to what the shell has not. Only the user for file access changes. Signals and limits go
// by the other user ids, which stay those of the guest.
func (o options) demote() func() error {
	if !o.separate() {
		if os.Getuid() != 0 {
			return nil
		}
		return func() error { return setCapabilities(false) }
	}
	return func() error {
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
			return fmt.Errorf("leave the guest's groups: %w", errno)
		}
		for _, id := range []struct {
			call  uintptr
			value int
		}{{syscall.SYS_SETFSGID, o.gid}, {syscall.SYS_SETFSUID, o.uid}} {
			_, _, _ = syscall.RawSyscall(id.call, uintptr(id.value), 0, 0)
			// The call returns the previous value and never an error: a second call shows whether the first one worked.
			if got, _, _ := syscall.RawSyscall(id.call, uintptr(id.value), 0, 0); int(got) != id.value {
				return fmt.Errorf("act as user %d, group %d on files: %w", o.uid, o.gid, syscall.EPERM)
			}
		}
		return prctl(prSetDumpable, 0, 0) // a change of user may have reset it
	}
}

// oomScore is the guest's out-of-memory score.
type oomScore struct {
	file *os.File
	own  []byte // as the guest was started; what a command may have made of it later does not count
}

// openOOMScore must be called before the guest becomes untraceable: from then on the file belongs to another user. Nil
// where there is no such file.
func openOOMScore() *oomScore {
	f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	own := make([]byte, 16)
	n, _ := f.ReadAt(own, 0)
	if n == 0 {
		f.Close()
		return nil
	}
	return &oomScore{f, own[:n]}
}

// oomCounter reads how often the kernel has killed for memory in the control group of the sandbox.
type oomCounter struct{ file *os.File } // nil where there is no such count

// newOOMCounter looks for the counter: in the file that was named, else in the group that /proc/self/cgroup names, else
// at the root of the mount, where a container finds its own group.
func newOOMCounter(named string) oomCounter {
	candidates := []string{named}
	groups, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(f) < 3:
		case f[1] == "":
			candidates = append(candidates, "/sys/fs/cgroup"+f[2]+"/memory.events")
		case strings.Contains(","+f[1]+",", ",memory,"):
			candidates = append(candidates, "/sys/fs/cgroup/memory"+f[2]+"/memory.oom_control")
		}
	}
	candidates = append(candidates, "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
	for _, path := range candidates {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		if _, ok := (oomCounter{f}).count(); ok {
			return oomCounter{f}
		}
		f.Close()
	}
	return oomCounter{}
}

// count returns the count, and reports whether there is one.
func (c oomCounter) count() (int64, bool) {
	var buf [1024]byte
	n, _ := c.file.ReadAt(buf[:], 0)
	return parseOOMKills(buf[:n])
}

// parseOOMKills finds the line "oom_kill N", which both generations of control groups write.
func parseOOMKills(data []byte) (int64, bool) {
	for line := range bytes.Lines(data) {
		if number, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(number)), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
