//go:build linux && (amd64 || arm64)

package inside

import (
	"fmt"
	"slices"
	"syscall"
	"unsafe"
)

// System calls that have the same number on every platform since Linux 5.
const (
	sysPidfdSendSignal = 424
	sysIOUringSetup    = 425
	sysClone3          = 435
	sysCachestat       = 451
)

// filterSystemCalls denies the calling thread, and all that it forks, a few system calls that no test suite needs
// and that hostile code could abuse:
//
//   - new user namespaces, and a few other calls whose bugs are often exploited;
//   - sockets other than local, Internet and netlink ones: most families ignore the network namespace, and AF_VSOCK
//     reaches the hypervisor even from a namespace without network;
//   - reserving disk space: a single call could take the whole disk before the watch sees it. C libraries write zeros
//     instead;
//   - observing and changing which pages of files are in memory. Sandboxes of one image share these, so that a patch
//     could leave a message there in one sandbox about what its tests expect in another;
//   - if commands run as the guest's user, what would let them end the guest although it is PID 1: changing its
//     resource limits, and forging memory-fault signals, which the Go runtime has to believe.
//
// A container's own filter stays in force as well, but differs between daemons. On a kernel without seccomp, only
// the other protections remain.
func filterSystemCalls(sameUser bool) error {
	program := filter(sameUser)
	header := struct {
		length  uint16
		program *instruction
	}{uint16(len(program)), &program[0]}
	const modeFilter = 2
	err := prctl(prSetSeccomp, modeFilter, uintptr(unsafe.Pointer(&header)))
	if err != nil && err != syscall.EINVAL && err != syscall.ENOSYS {
		return fmt.Errorf("filter system calls: %w", err)
	}
	return nil
}

// instruction is an instruction of classic BPF.
type instruction struct {
	code   uint16
	yes    uint8 // how many instructions to skip if a comparison is true
	no     uint8
	number uint32
}

// Instructions and addresses that the filter uses; see seccomp(2).
const (
	bpfLoad, bpfEqual, bpfAnySet, bpfReturn = 0x20, 0x15, 0x45, 0x06

	atNumber, atArch = 0, 4
	allow            = 0x7fff0000
	refuse           = 0x00050000
)

// low and high return the offsets of the halves of a system call's argument; both platforms are little endian.
func low(argument uint32) uint32  { return 16 + 8*argument }
func high(argument uint32) uint32 { return low(argument) + 4 }

func deny(errno syscall.Errno) instruction {
	return instruction{code: bpfReturn, number: refuse | uint32(errno)}
}
func pass() instruction          { return instruction{code: bpfReturn, number: allow} }
func load(at uint32) instruction { return instruction{code: bpfLoad, number: at} }
func unless(number uint32, skip uint8) instruction {
	return instruction{code: bpfEqual, no: skip, number: number}
}

// on returns instructions that run for one system call only. The last of them must return a verdict.
func on(number uint32, then ...instruction) []instruction {
	return append([]instruction{unless(number, uint8(len(then)))}, then...)
}

func filter(sameUser bool) []instruction {
	program := []instruction{
		load(atArch),
		{code: bpfEqual, yes: 1, number: auditArch},
		deny(syscall.ENOSYS), // otherwise calls with another architecture's numbers would pass
		load(atNumber),
	}
	if x32 != 0 {
		program = append(program, instruction{code: bpfAnySet, no: 1, number: x32}, deny(syscall.ENOSYS))
	}
	// The flags of clone3 are in memory, where the filter cannot read them. C libraries fall back to clone.
	program = append(program, on(sysClone3, deny(syscall.ENOSYS))...)
	for _, number := range []uint32{syscall.SYS_CLONE, syscall.SYS_UNSHARE} {
		newUser := instruction{code: bpfAnySet, no: 1, number: syscall.CLONE_NEWUSER}
		program = append(program, on(number, load(low(0)), newUser, deny(syscall.EPERM), pass())...)
	}
	program = append(program, on(sysIOUringSetup, deny(syscall.ENOSYS))...)
	for _, number := range deniedCalls() {
		program = append(program, on(number, deny(syscall.EPERM))...)
	}
	program = slices.Concat(program, limitSockets(), limitReservations(), hideCache())
	if sameUser {
		program = append(program, protectGuest()...)
	}
	return append(program, pass())
}

// limitSockets allows sockets of a few families only.
func limitSockets() []instruction {
	families := []uint32{syscall.AF_UNIX, syscall.AF_INET, syscall.AF_INET6, syscall.AF_NETLINK}
	program := []instruction{load(low(0))}
	for i, family := range families {
		program = append(program, instruction{code: bpfEqual, yes: uint8(len(families) - i), number: family})
	}
	return on(syscall.SYS_SOCKET, append(program, deny(syscall.EAFNOSUPPORT), pass())...)
}

// limitReservations denies reserving blocks for a file without writing to them: fallocate(2), except for punching
// holes or collapsing ranges, and the older ioctls that do the same.
func limitReservations() []instruction {
	const punchHole, collapse = 0x02, 0x08
	program := on(syscall.SYS_FALLOCATE, load(low(1)),
		instruction{code: bpfAnySet, yes: 1, number: punchHole | collapse}, deny(syscall.EOPNOTSUPP), pass())
	const reserve, reserve64, zeroRange = 0x40305828, 0x4030582a, 0x40305839 // FS_IOC_RESVSP and its variants
	return append(program, on(syscall.SYS_IOCTL, load(low(1)),
		instruction{code: bpfEqual, yes: 3, number: reserve}, instruction{code: bpfEqual, yes: 2, number: reserve64},
		instruction{code: bpfEqual, yes: 1, number: zeroRange}, pass(), deny(syscall.ENOTTY))...)
}

// hideCache denies calls that reveal whether a file's pages are in memory, and ignores requests to drop them.
func hideCache() []instruction {
	const nowait, dontNeed, cold, pageOut = 8, 4, 20, 21 // RWF_NOWAIT, POSIX_FADV_DONTNEED, MADV_COLD, MADV_PAGEOUT
	return slices.Concat(
		on(syscall.SYS_MINCORE, deny(syscall.ENOSYS)),
		on(sysCachestat, deny(syscall.ENOSYS)),
		on(sysPreadv2, load(low(5)), instruction{code: bpfAnySet, no: 1, number: nowait}, deny(syscall.EOPNOTSUPP), pass()),
		on(syscall.SYS_FADVISE64, load(low(3)), unless(dontNeed, 1), deny(0), pass()),
		on(syscall.SYS_MADVISE, load(low(2)), instruction{code: bpfEqual, yes: 1, number: cold}, unless(pageOut, 1),
			deny(0), pass()))
}

// protectGuest denies what would end a guest of the same user. Other processes' resource limits may be read but not
// set.
func protectGuest() []instruction {
	const setSig = 10 // F_SETSIG: the signal that comes instead of SIGIO
	ofFcntl := []instruction{load(low(1)), unless(setSig, uint8(len(faults(2))))}
	return slices.Concat(
		on(syscall.SYS_PRLIMIT64,
			load(low(0)), unless(0, 1), pass(),
			load(low(2)), unless(0, 3), load(high(2)), unless(0, 1), pass(),
			deny(syscall.EPERM)),
		on(syscall.SYS_RT_SIGQUEUEINFO, faults(1)...),
		on(syscall.SYS_RT_TGSIGQUEUEINFO, faults(2)...),
		on(sysPidfdSendSignal, faults(1)...),
		on(syscall.SYS_FCNTL, slices.Concat(ofFcntl, faults(2), []instruction{pass()})...))
}

// faults denies a call whose argument is a signal that the Go runtime would take for a fault of its own, and allows
// it otherwise.
func faults(argument uint32) []instruction {
	signals := []syscall.Signal{
		syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGSYS,
		syscall.SIGABRT, syscall.SIGSTKFLT,
	}
	program := []instruction{load(low(argument))}
	for i, s := range signals {
		program = append(program, instruction{code: bpfEqual, yes: uint8(len(signals) - i), number: uint32(s)})
	}
	return append(program, pass(), deny(syscall.EPERM))
}
