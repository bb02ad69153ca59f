package docker

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Labels say whose a thing is. Every container and volume of ours carries labelOwner; docker never changes a label, so
// what changes (that the owner is still alive) is kept in the lease.
const (
	labelOwner    = "deepswe.owner"    // owner.String
	labelHost     = "deepswe.host"     // the owner's host name, for people
	labelKind     = "deepswe.kind"     // kindSandbox and its siblings
	labelRun      = "deepswe.run"      // Spec.Run
	labelRollout  = "deepswe.rollout"  // Spec.Rollout
	labelCreated  = "deepswe.created"  // Unix seconds
	labelPrepared = "deepswe.prepared" // on derived images: the hash of what was prepared
	labelBuilt    = "deepswe.built"    // on built images: the hash of what they were built from
	labelUser     = "deepswe.user"     // on derived images: the User of the image they were made from
)

// What our containers are for.
const (
	kindSandbox  = "sandbox"  // a rollout works in it
	kindPrepare  = "prepare"  // becomes a derived image
	kindOriginal = "original" // never started: original files are read from it
	kindLease    = "lease"    // never started: says that its owner lives, and keeps the guest's volume in use
	kindFill     = "fill"     // never started: the guest's volume is filled through it
)

// owner is a process, by what tells it from every other one: the machine it runs on (this boot of it, this pid
// namespace), its number there, and when it started.
type owner struct {
	machine string
	pid     int
	start   string
}

// String is what the label holds: machine/pid/start.
func (o owner) String() string { return o.machine + "/" + strconv.Itoa(o.pid) + "/" + o.start }

func parseOwner(s string) (owner, bool) {
	machine, rest, ok := strings.Cut(s, "/")
	if !ok {
		return owner{}, false
	}
	number, start, ok := strings.Cut(rest, "/")
	if !ok {
		return owner{}, false
	}
	pid, err := strconv.Atoi(number)
	if err != nil || pid <= 0 {
		return owner{}, false
	}
	return owner{machine: machine, pid: pid, start: start}, true
}

// thisOwner is the running process.
func thisOwner() owner {
	o := owner{machine: thisMachine(), pid: os.Getpid()}
	o.start, _, _ = processStart(o.pid)
	return o
}

// thisMachine names this boot of this machine, as seen from this pid namespace: two containers on one machine cannot
// see each other's processes, so they must not judge them.
func thisMachine() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		name, _ := os.Hostname()
		boot = []byte(name)
	}
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	sum := sha256.Sum256(append(bytes.TrimSpace(boot), namespace...))
	return hex.EncodeToString(sum[:6])
}

// vital is what is known about an owner.
type vital int

const (
	unknown vital = iota // on another machine: its heartbeat decides
	alive
	dead
)

// vital judges an owner by the processes of this machine.
func (o owner) vital(machine string) vital {
	if o.machine != machine {
		return unknown
	}
	start, running, known := processStart(o.pid)
	switch {
	case known && !running:
		return dead
	case known && o.start != "":
		if start == o.start {
			return alive
		}
		return dead
	}
	// No /proc: a process with that number may be another one by now, so only its absence is proof.
	p, err := os.FindProcess(o.pid)
	if err != nil || errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return dead
	}
	return unknown
}

// processStart reads when a process started, in clock ticks since boot. known is false where there is no /proc.
func processStart(pid int) (start string, running, known bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		_, self := os.Stat("/proc/self/stat")
		return "", false, self == nil
	}
	// The name in parentheses may hold anything, so fields are counted from its end: state is the 1st, start the 20th.
	_, rest, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')'):], []byte(" "))
	fields := strings.Fields(string(rest))
	if !ok || len(fields) < 20 {
		return "", false, false
	}
	// A zombie is dead: only its parent has not looked yet.
	if fields[0] == "Z" || fields[0] == "X" {
		return "", false, true
	}
	return fields[19], true, true
}

// labels are what every container and volume of this provider carries.
func (p *Provider) labels(kind, run, rollout string) map[string]string {
	return map[string]string{
		labelOwner:   p.owner,
		labelHost:    p.hostname,
		labelKind:    kind,
		labelRun:     run,
		labelRollout: rollout,
		labelCreated: strconv.FormatInt(time.Now().Unix(), 10),
	}
}

// nonce is a short random word for names.
func nonce() string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// shortHash shortens a long name to one that fits into another.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:6])
}
