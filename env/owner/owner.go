// Package owner identifies the process, and the machine, that something in a shared place belongs to: a container on a
// Docker daemon, a pod in a cluster. From the same machine an owner can be found among the processes; from another one
// only a sign of life that it leaves can tell.
package owner

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"

	"deepswe/env/disk"
)

// Owner is a process and its machine: this boot of it, seen from this PID namespace. What belongs to a provider in that
// process is marked with one more part.
type Owner struct {
	Machine string
	disk.Process
}

// String is machine/pid/start.
func (o Owner) String() string { return fmt.Sprintf("%s/%d/%d", o.Machine, o.PID, o.Start) }

// Parse reads what String wrote, also with more parts behind it, and with dots in place of the slashes.
func Parse(s string) (Owner, bool) {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == '/' || r == '.' })
	if len(parts) < 3 {
		return Owner{}, false
	}
	pid, pidErr := strconv.Atoi(parts[1])
	start, startErr := strconv.ParseUint(parts[2], 10, 64)
	o := Owner{Machine: parts[0], Process: disk.Process{PID: pid, Start: start}}
	return o, pidErr == nil && startErr == nil && pid > 0
}

// This is the running process.
func This() Owner { return Owner{Machine: Machine(), Process: disk.Self().Process} }

// Machine names this boot of this machine, as seen from this PID namespace: two containers on one machine cannot see
// each other's processes, so they must not judge them.
func Machine() string {
	self := disk.Self()
	if self.Boot == "" {
		self.Boot, _ = os.Hostname()
	}
	return ShortHash(self.Boot + self.Namespace)
}

// LivenessOn looks for the owner among the processes of the machine that this is. For one on another machine, its sign
// of life decides.
func (o Owner) LivenessOn(machine string) disk.Liveness {
	if o.Machine != machine {
		return disk.Unknown
	}
	return o.Liveness()
}

// Nonce is a short random word for names.
func Nonce() string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// ShortHash shortens a long name to one that fits into another.
func ShortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:6])
}
