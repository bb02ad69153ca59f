// Package owner identifies the process and machine that something in a shared place belongs to, such as a container
// on a Docker daemon or a pod in a cluster. On the same machine, the process can be looked up; from another
// machine, only the owner's heartbeat shows whether it is alive.
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

// Owner is a process on a machine; a Machine stands for one boot and one PID namespace. Providers append a part of
// their own to String.
type Owner struct {
	Machine string
	disk.Process
}

// String returns "machine/pid/start".
func (o Owner) String() string { return fmt.Sprintf("%s/%d/%d", o.Machine, o.PID, o.Start) }

// Parse reads what String wrote. It ignores further parts, and accepts dots in place of slashes.
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

// This returns the owner that is the running process.
func This() Owner { return Owner{Machine: Machine(), Process: disk.Self().Process} }

// Machine returns a hash of the machine's boot and of the PID namespace. Two containers on one machine have
// different ones, because they cannot see each other's processes and must not judge whether they are alive.
func Machine() string {
	self := disk.Self()
	if self.Boot == "" {
		self.Boot, _ = os.Hostname()
	}
	return ShortHash(self.Boot + self.Namespace)
}

// LivenessOn looks the owner up among the processes of machine, which has to be this one. It is Unknown for an
// owner on another machine, whose heartbeat decides.
func (o Owner) LivenessOn(machine string) disk.Liveness {
	if o.Machine != machine {
		return disk.Unknown
	}
	return o.Liveness()
}

// Nonce returns 10 random hex digits.
func Nonce() string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// ShortHash returns the first 12 hex digits of a SHA-256, for names that have to be short.
func ShortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:6])
}
