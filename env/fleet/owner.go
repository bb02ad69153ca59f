package fleet

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

// Owner is the process that something in a place belongs to; a Machine stands for one boot and one PID namespace. On
// the same machine, the process can be looked up; from another one, only the owner's lease shows whether it is alive.
// Providers append a part of their own to String.
type Owner struct {
	Machine string
	disk.Process
}

// String returns "machine/pid/start".
func (o Owner) String() string { return fmt.Sprintf("%s/%d/%d", o.Machine, o.PID, o.Start) }

// parseOwner reads what String wrote. It ignores further parts, and accepts dots in place of slashes.
func parseOwner(s string) (Owner, bool) {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == '/' || r == '.' })
	if len(parts) < 3 {
		return Owner{}, false
	}
	pid, pidErr := strconv.Atoi(parts[1])
	start, startErr := strconv.ParseUint(parts[2], 10, 64)
	o := Owner{Machine: parts[0], Process: disk.Process{PID: pid, Start: start}}
	return o, pidErr == nil && startErr == nil && pid > 0
}

// This returns the running process as an Owner.
func This() Owner { return Owner{Machine: machine(), Process: disk.Self().Process} }

// machine returns a hash of the machine's boot and of the PID namespace. Two containers on one machine have
// different ones, because they cannot see each other's processes and must not judge whether they are alive.
func machine() string {
	self := disk.Self()
	if self.Boot == "" {
		self.Boot, _ = os.Hostname()
	}
	return ShortHash(self.Boot + self.Namespace)
}

// Liveness looks the owner up among the processes of this machine. It is Unknown for an owner on another machine.
func (o Owner) Liveness() disk.Liveness {
	if o.Machine != machine() {
		return disk.Unknown
	}
	return o.Process.Liveness()
}

// Liveness is [Owner.Liveness] for the text of an owner. It is Unknown for any other text.
func Liveness(who string) disk.Liveness {
	o, ok := parseOwner(who)
	if !ok {
		return disk.Unknown
	}
	return o.Liveness()
}

// Describe names an owner for people: host is the name of its machine.
func Describe(who, host string) string {
	if o, ok := parseOwner(who); ok {
		return fmt.Sprintf("%s pid %d", host, o.PID)
	}
	return who
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
