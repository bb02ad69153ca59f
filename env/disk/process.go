package disk

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Stat is the part of /proc/PID/stat that deepswe uses.
type Stat struct {
	PID, Parent, Session int

	State byte
	Start uint64 // in clock ticks since boot
}

// ReadStat reads the stat of the process that currently has the PID. The error is fs.ErrNotExist if there is none.
func ReadStat(pid int) (Stat, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, err
	}
	s, ok := parseStat(text)
	if !ok {
		return Stat{}, fmt.Errorf("/proc/%d/stat: unexpected format: %q", pid, text)
	}
	s.PID = pid
	return s, nil
}

// parseStat parses proc_pid_stat(5). The second field is the program's name in parentheses and may itself contain
// spaces and parentheses, so only the last closing one ends it.
func parseStat(text []byte) (Stat, bool) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return Stat{}, false
	}
	fields := bytes.Fields(text[end+1:])
	const state, parent, session, start = 0, 1, 3, 19 // from field 3 on
	if len(fields) <= start {
		return Stat{}, false
	}
	s := Stat{State: fields[state][0]}
	var errs [3]error
	s.Parent, errs[0] = strconv.Atoi(string(fields[parent]))
	s.Session, errs[1] = strconv.Atoi(string(fields[session]))
	s.Start, errs[2] = strconv.ParseUint(string(fields[start]), 10, 64)
	return s, errs == [3]error{}
}

// Alive reports whether the process still runs. A zombie does not: it only waits to be reaped.
func (s Stat) Alive() bool { return s.State != 'Z' && s.State != 'X' }

// PIDs lists the processes in /proc, in no particular order.
func PIDs() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// Process identifies a process of this boot and PID namespace uniquely; a PID alone may be reused.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in clock ticks since boot; 0 where unknown
}

// FindProcess identifies the living process that currently has the PID. The error is fs.ErrNotExist if there is
// none.
func FindProcess(pid int) (Process, error) {
	s, err := ReadStat(pid)
	if err == nil && !s.Alive() {
		err = fmt.Errorf("process %d has ended: %w", pid, fs.ErrNotExist)
	}
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Start: s.Start}, nil
}

// Liveness is what this process can find out about another.
type Liveness int

// Unknown: the process is on another machine, or cannot be seen from here.
const (
	Unknown Liveness = iota
	Alive
	Dead
)

// Liveness reports whether the process is alive, as far as this process can see.
func (p Process) Liveness() Liveness {
	s, err := ReadStat(p.PID)
	switch {
	case err == nil && !s.Alive():
		return Dead
	case err == nil && p.Start != 0:
		if s.Start == p.Start {
			return Alive
		}
		return Dead
	}
	// There is no /proc, or it hides the process. Another process may have the PID by now, so only its absence
	// proves anything.
	if errors.Is(syscall.Kill(p.PID, 0), syscall.ESRCH) {
		return Dead
	}
	return Unknown
}

// Owner identifies a process uniquely, also on another boot of the machine or in another PID namespace that shares
// its files, where the same PID means another process.
type Owner struct {
	Process
	Boot      string // the boot's ID or a prefix of it; empty if unknown
	Namespace string // the target of the link /proc/self/ns/pid; empty if unknown
}

// Self identifies the running process. Fields that the system does not reveal stay empty.
func Self() Owner {
	o := Owner{Process: Process{PID: os.Getpid()}}
	if p, err := FindProcess(o.PID); err == nil {
		o.Process = p
	}
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		o.Boot = strings.TrimSpace(string(id))
	}
	o.Namespace, _ = os.Readlink("/proc/self/ns/pid")
	return o
}

// Liveness reports whether the owner is alive, as far as self can see.
func (o Owner) Liveness(self Owner) Liveness {
	switch {
	case o.Boot == "" || self.Boot == "":
		return Unknown
	case !strings.HasPrefix(self.Boot, o.Boot):
		return Dead
	case o.Namespace != self.Namespace:
		return Unknown
	}
	return o.Process.Liveness()
}

// String returns a short name of digits, letters a to f and full stops, which parseOwner reads.
func (o Owner) String() string {
	boot, namespace := o.Boot[:min(8, len(o.Boot))], strings.Trim(o.Namespace, "pid:[]")
	return fmt.Sprintf("%s.%s.%d.%d", cmp.Or(boot, "0"), cmp.Or(namespace, "0"), o.PID, o.Start)
}

// parseOwner parses the result of String. ok is false if s is not one.
func parseOwner(s string) (Owner, bool) {
	f := strings.Split(s, ".")
	if len(f) != 4 || !madeOf(f[0], "0123456789abcdef") || !madeOf(f[1], "0123456789") {
		return Owner{}, false
	}
	pid, pidErr := strconv.Atoi(f[2])
	start, startErr := strconv.ParseUint(f[3], 10, 64)
	if pidErr != nil || startErr != nil || pid <= 0 {
		return Owner{}, false
	}
	o := Owner{Process: Process{PID: pid, Start: start}}
	if f[0] != "0" {
		o.Boot = f[0]
	}
	if f[1] != "0" {
		o.Namespace = "pid:[" + f[1] + "]"
	}
	return o, true
}

// madeOf reports whether s is not empty and contains only the given characters.
func madeOf(s, characters string) bool { return s != "" && strings.Trim(s, characters) == "" }
