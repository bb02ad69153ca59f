package docker

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"time"

	"deepswe/env/disk"
)

// Labels say whose a thing is. Every container and volume of ours carries labelOwner; docker never changes a label, so
// what changes (that the owner is still alive) is kept in the lease.
const (
	labelOwner    = "deepswe.owner"    // owner.String/nonce
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
	kindLease    = "lease"    // never started: says that its owner is alive, and keeps the guest's volume in use
	kindFill     = "fill"     // never started: the guest's volume is filled through it
)

// owner is a process and its machine: this boot of it, seen from this PID namespace. What a label holds has one part
// more, which is the provider's in that process.
type owner struct {
	machine string
	disk.Process
}

// String is machine/pid/start.
func (o owner) String() string {
	return o.machine + "/" + strconv.Itoa(o.PID) + "/" + strconv.FormatUint(o.Start, 10)
}

func parseOwner(s string) (owner, bool) {
	machine, rest, ok := strings.Cut(s, "/")
	if !ok {
		return owner{}, false
	}
	number, start, ok := strings.Cut(rest, "/")
	if !ok {
		return owner{}, false
	}
	start, _, _ = strings.Cut(start, "/")
	pid, err := strconv.Atoi(number)
	if err != nil || pid <= 0 {
		return owner{}, false
	}
	ticks, err := strconv.ParseUint(start, 10, 64)
	return owner{machine: machine, Process: disk.Process{PID: pid, Start: ticks}}, err == nil
}

// thisOwner is the running process.
func thisOwner() owner { return owner{machine: thisMachine(), Process: disk.Self().Process} }

// thisMachine names this boot of this machine, as seen from this PID namespace: two containers on one machine cannot
// see each other's processes, so they must not judge them.
func thisMachine() string {
	self := disk.Self()
	if self.Boot == "" {
		self.Boot, _ = os.Hostname()
	}
	sum := sha256.Sum256([]byte(self.Boot + self.Namespace))
	return hex.EncodeToString(sum[:6])
}

// liveness judges an owner by the processes of this machine: of one on another machine, the heartbeat decides.
func (o owner) liveness(machine string) disk.Liveness {
	if o.machine != machine {
		return disk.Unknown
	}
	return o.Liveness()
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
