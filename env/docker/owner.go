package docker

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"deepswe/env/disk"
)

// The labels of containers, volumes and images; the package's documentation describes them.
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
	kindLease    = "lease"    // never started: shows that its owner is alive, and keeps the guest's volume in use
	kindFill     = "fill"     // never started: the guest's volume is filled through it
)

// owner is a process and its machine: this boot of it, seen from this PID namespace. A label holds one more part, for
// the provider in that process.
type owner struct {
	machine string
	disk.Process
}

// String is machine/pid/start.
func (o owner) String() string { return fmt.Sprintf("%s/%d/%d", o.machine, o.PID, o.Start) }

func parseOwner(s string) (owner, bool) {
	parts := strings.Split(s, "/")
	if len(parts) < 3 {
		return owner{}, false
	}
	pid, pidErr := strconv.Atoi(parts[1])
	start, startErr := strconv.ParseUint(parts[2], 10, 64)
	o := owner{machine: parts[0], Process: disk.Process{PID: pid, Start: start}}
	return o, pidErr == nil && startErr == nil && pid > 0
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
	return shortHash(self.Boot + self.Namespace)
}

// liveness looks for the owner among the processes of this machine. For one on another machine, the heartbeat decides.
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
