package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// owner is a process, named for good: its number alone may be given again after its end, and means nothing on another
// boot of the machine or in another PID namespace that shares the directory.
type owner struct {
	boot      string // the first digits of the boot's id
	namespace string
	pid       int
	start     string // in clock ticks since boot
}

// unknown stands for what the system does not tell.
const unknown = "0"

// name is what Make calls a directory.
var name = regexp.MustCompile(`^deepswe-[a-z]+-([0-9a-f]+)\.(\d+)\.(\d+)\.(\d+)-\d+$`)

func (o owner) String() string {
	return fmt.Sprintf("%s.%s.%d.%s", o.boot, o.namespace, o.pid, o.start)
}

// parse reads the owner from a directory's name.
func parse(dir string) (owner, bool) {
	m := name.FindStringSubmatch(dir)
	if m == nil {
		return owner{}, false
	}
	pid, err := strconv.Atoi(m[3])
	return owner{boot: m[1], namespace: m[2], pid: pid, start: m[4]}, err == nil && pid > 0
}

func thisOwner() owner {
	o := owner{boot: unknown, namespace: unknown, pid: os.Getpid(), start: unknown}
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil && len(id) >= 8 {
		o.boot = string(id[:8])
	}
	if link, err := os.Readlink("/proc/self/ns/pid"); err == nil { // pid:[4026531836]
		o.namespace = strings.TrimSuffix(strings.TrimPrefix(link, "pid:["), "]")
	}
	if start, err := started(o.pid); err == nil {
		o.start = start
	}
	return o
}

// dead tells whether the owner is gone for sure, as seen by another one.
func (o owner) dead(me owner) bool {
	switch {
	case me.start == unknown || o.start == unknown:
		return false // nothing can be seen from here, or could be from there
	case o.boot != me.boot:
		return true
	case o.namespace != me.namespace:
		return false
	}
	start, err := started(o.pid)
	return errors.Is(err, fs.ErrNotExist) || err == nil && start != o.start
}

// started reads when the process that has the number now was started; fs.ErrNotExist when there is none, or only what
// its parent has not buried yet.
func started(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	const state, start = 0, 19 // of the fields behind the program's name, which may hold anything
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= start {
		return "", fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	if fields[state] == "Z" || fields[state] == "X" {
		return "", fs.ErrNotExist
	}
	return fields[start], nil
}
