//go:build linux

package inside

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"deepswe/env/guest"
)

// Providers prepare a container from the host where they can. In a pod they cannot, so the guest does it before it
// sends its greeting: it closes the network, gives the repository's directory to the command user, removes what
// commands must not reach, and drops the privileges that all this required.

// exitError is an error with its own exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// install copies the running program to a file that everyone may execute and no one may write, and writes its hash to a
// second file.
func install(to string) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	part := to + ".part"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o555)
	if err != nil {
		return err
	}
	hash := sha256.New()
	_, err = io.Copy(f, io.TeeReader(from, hash))
	sum := []byte(hex.EncodeToString(hash.Sum(nil)))
	return errors.Join(err, f.Chmod(0o555), f.Close(), os.WriteFile(to+hashSuffix, sum, 0o444), os.Rename(part, to))
}

// hashSuffix is appended to the name of an installed program for the file with its hash.
const hashSuffix = ".sha256"

func (o options) closeNetwork() error {
	switch o.network {
	case "":
		return nil
	case networkDelete:
		if err := deleteInterfaces(); err != nil {
			return &exitError{guest.ExitNetworkStays, fmt.Errorf("close the network: %w", err)}
		}
		return nil
	case networkProbe:
		if err := probeNetwork(probeFor); err != nil {
			return &exitError{guest.ExitNetworkOpen, fmt.Errorf("the network is not closed: %w", err)}
		}
		return nil
	}
	return fmt.Errorf("--network %q: choose %s or %s", o.network, networkDelete, networkProbe)
}

func (o options) prepareContainer() error {
	for _, kv := range os.Environ() {
		// Commands must not learn the address of the cluster's API server.
		if key, _, _ := strings.Cut(kv, "="); strings.HasPrefix(key, "KUBERNETES_") {
			_ = os.Unsetenv(key)
		}
	}
	if err := os.Mkdir("/tmp", 0o777); err == nil {
		_ = os.Chmod("/tmp", 0o777|fs.ModeSticky)
	}
	if err := o.makeDir(); err != nil {
		return fmt.Errorf("make %s: %w", o.dir, err)
	}
	if os.Getuid() != 0 {
		return nil // an unprivileged guest cannot mount, and has nothing to take away
	}
	// Commands must not write to these paths: files in /dev would count towards the sandbox's memory, and the cluster
	// reads some of the others. Root without capabilities has no access to another user's directory.
	program := os.Args[0] // not /proc/self/exe, which may be a deleted file
	if err := os.Chmod(filepath.Dir(program), 0o755); err != nil && !errors.Is(err, syscall.EROFS) {
		return err
	}
	for _, path := range []string{"/dev", "/dev/termination-log", program, filepath.Dir(program)} {
		if err := os.Lchown(path, strangerID, strangerID); err != nil && !errors.Is(err, fs.ErrNotExist) &&
			!errors.Is(err, syscall.EROFS) {
			return err
		}
	}
	if err := os.Chmod("/dev/termination-log", 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return o.dropRights()
}

// makeDir creates the working directory and, with --own, gives it to the command user.
func (o options) makeDir() error {
	_, err := os.Stat(o.dir)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing {
		err = os.MkdirAll(o.dir, 0o755)
	}
	if err != nil || !missing && !o.own || !o.separate() {
		return err
	}
	return filepath.WalkDir(o.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, o.uid, o.gid)
	})
}

// ownerOf makes the owner of the working directory the command user, unless the owner is root.
func (o *options) ownerOf() {
	info, err := os.Stat(o.dir)
	if err != nil || os.Getuid() != 0 {
		return
	}
	stat := info.Sys().(*syscall.Stat_t)
	if stat.Uid != 0 {
		o.uid, o.gid = int(stat.Uid), int(stat.Gid)
	}
}

// Bit masks of the capabilities that the guest always needs, and of those that it needs to prepare the repository.
const (
	rightsToServe   = 1<<5 | 1<<6 | 1<<7 | 1<<8 // KILL, SETGID, SETUID, SETPCAP
	rightsToPrepare = 1<<0 | 1<<1 | 1<<3 | 1<<4 // CHOWN, DAC_OVERRIDE, FOWNER, FSETID
)

// dropRights drops the capabilities that the guest no longer needs, in all threads and for everything they start.
func (o options) dropRights() error {
	keep := uint32(rightsToServe)
	if o.prepares {
		keep |= rightsToPrepare
	}
	for capability := uintptr(0); capability < 64; capability++ {
		if capability < 32 && keep&(1<<capability) != 0 {
			continue
		}
		_, _, errno := syscall.AllThreadsSyscall6(syscall.SYS_PRCTL, prCapBSetDrop, capability, 0, 0, 0, 0)
		if errno == syscall.EINVAL {
			break // there are no more capabilities
		}
		if errno != 0 {
			return fmt.Errorf("drop capability %d: %w", capability, errno)
		}
	}
	header := struct {
		version uint32
		pid     int32
	}{version: 0x20080522} // _LINUX_CAPABILITY_VERSION_3
	sets := [2]struct{ effective, permitted, inheritable uint32 }{{keep, keep, 0}}
	if _, _, errno := syscall.AllThreadsSyscall(syscall.SYS_CAPSET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)), 0); errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	return nil
}

// serveLine runs the guest of a container that hosts connect to over bridges.
func serveLine(o options, adj *oomScore) error {
	line := guest.AcceptLine()
	listener, err := listenFor(o.listen, line)
	if err != nil {
		return fmt.Errorf("listen for the host: %w", err)
	}
	defer listener.Close()
	defer line.Close()
	return serveStream(o, adj, line, line)
}
