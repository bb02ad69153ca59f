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

// Constants of prctl(2) that package syscall lacks on some platforms.
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

// prepareSelf protects the guest before anything else runs: no process can trace it or read its memory. It also
// makes orphans the guest's children.
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

// limitResources sets the resource limits that commands inherit. Core dumps are off, because they would be stray
// files in the repository.
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

// harden prepares the thread that commands are forked from: no program started from it can ever gain privileges. If
// commands run as the guest's own user, the thread drops all capabilities; otherwise a command loses them when it
// changes its user. The thread itself keeps the guest's user, because a process may change the resource limits of
// any process with the same user IDs.
func (o options) harden() error {
	if err := prctl(prSetNoNewPrivs, 1, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	for capability := uintptr(0); capability < 64; capability++ {
		if prctl(prCapBSetDrop, capability, 0) == syscall.EPERM {
			break // not permitted: no_new_privs and empty capability sets suffice
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
	return o.demote()() // what it creates belongs to the command user
}

// setCapabilities empties the calling thread's capability sets. With keep, the thread keeps its permitted
// capabilities for changing its user later, but passes none on.
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

// demote returns a function that gives the calling thread the command user's access to files, or nil if the guest
// has the same: the editor must not reach files that the shell cannot. Only the file-system user and group change;
// signals and limits depend on the other IDs, which stay the guest's.
func (o options) demote() func() error {
	if !o.separate() {
		if os.Getuid() != 0 {
			return nil
		}
		return func() error { return setCapabilities(false) }
	}
	return func() error {
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
			return fmt.Errorf("drop the guest's supplementary groups: %w", errno)
		}
		for _, id := range []struct {
			call  uintptr
			value int
		}{{syscall.SYS_SETFSGID, o.gid}, {syscall.SYS_SETFSUID, o.uid}} {
			_, _, _ = syscall.RawSyscall(id.call, uintptr(id.value), 0, 0)
			// The call returns the previous value and never an error, so a second call shows whether the first
			// succeeded.
			if got, _, _ := syscall.RawSyscall(id.call, uintptr(id.value), 0, 0); int(got) != id.value {
				return fmt.Errorf("act as user %d, group %d on files: %w", o.uid, o.gid, syscall.EPERM)
			}
		}
		return prctl(prSetDumpable, 0, 0) // changing the user may have reset it
	}
}

type oomScore struct {
	file *os.File
	own  []byte // the score at the guest's start; a command may change it later
}

// openOOMScore opens the score's file, or returns nil if there is none. Call it before the guest becomes
// untraceable, which changes the owner of the file.
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

// oomCounter reads how many processes the kernel has killed for lack of memory in the sandbox's control group.
type oomCounter struct{ file *os.File } // nil where there is no such count

// newOOMCounter finds the counter: in the named file, if given; otherwise in the group that /proc/self/cgroup
// names; otherwise at the root of the mount, where a container finds its own group.
func newOOMCounter(named string) oomCounter {
	candidates := []string{named}
	for line := range fileLines("/proc/self/cgroup") {
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

// count returns the count. ok is false if there is none.
func (c oomCounter) count() (int64, bool) {
	var buf [1024]byte
	n, _ := c.file.ReadAt(buf[:], 0)
	return parseOOMKills(buf[:n])
}

// parseOOMKills parses the line "oom_kill N", which both versions of control groups write.
func parseOOMKills(data []byte) (int64, bool) {
	for line := range bytes.Lines(data) {
		if number, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(number)), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
