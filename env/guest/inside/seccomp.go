//go:build linux && (amd64 || arm64)

package inside

import (
	"fmt"
	"syscall"
	"unsafe"
)

// System calls that are numbered alike on every platform since Linux 5.
const (
	sysPidfdSendSignal = 424
	sysIOUringSetup    = 425
	sysClone3          = 435
)

// filterSystemCalls takes from the calling thread, and from all it forks, a few calls that no test suite needs and that
// hostile code could use:
//
//   - new user namespaces and a few other calls whose defects are often exploited;
//   - sockets of every family but local ones, the Internet's and netlink: most families have nothing to do with the
//     network namespace, and AF_VSOCK reaches the machine's hypervisor from one that has no network;
//   - reserving room for files: a single call may take the whole disk before anybody can look. C libraries write zeros
//     instead;
//   - where commands run as the guest's user, what would let them end the guest although it is PID 1: changing its
//     resource limits, and forging the signals of a memory fault, which the Go runtime has to believe.
//
// A container's own filter stays in force beside this one: it differs from daemon to daemon. A kernel without seccomp
// has no filter: the other protections remain.
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

// instruction is one of the kernel's classic BPF instructions.
type instruction struct {
	code   uint16
	yes    uint8 // how many instructions to skip when a comparison holds
	no     uint8
	number uint32
}

// The instructions and addresses that the filter uses; see seccomp(2).
const (
	bpfLoad, bpfEqual, bpfAnySet, bpfReturn = 0x20, 0x15, 0x45, 0x06

	atNumber, atArch = 0, 4
	allow            = 0x7fff0000
	refuse           = 0x00050000
)

// low and high are the offsets of an argument's halves; both platforms are little endian.
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

// on returns instructions that run only for one system call. The last of them must return a verdict.
func on(number uint32, then ...instruction) []instruction {
	return append([]instruction{unless(number, uint8(len(then)))}, then...)
}

func filter(sameUser bool) []instruction {
	program := []instruction{
		load(atArch),
		{code: bpfEqual, yes: 1, number: auditArch},
		deny(syscall.ENOSYS), // another platform's numbering would slip through
		load(atNumber),
	}
	if x32 != 0 {
		program = append(program, instruction{code: bpfAnySet, no: 1, number: x32}, deny(syscall.ENOSYS))
	}
	program = append(program, on(sysClone3, deny(syscall.ENOSYS))...) // its flags are in memory; C libraries fall back
	for _, number := range []uint32{syscall.SYS_CLONE, syscall.SYS_UNSHARE} {
		newUser := instruction{code: bpfAnySet, no: 1, number: syscall.CLONE_NEWUSER}
		program = append(program, on(number, load(low(0)), newUser, deny(syscall.EPERM), pass())...)
	}
	program = append(program, on(sysIOUringSetup, deny(syscall.ENOSYS))...)
	for _, number := range deniedCalls() {
		program = append(program, on(number, deny(syscall.EPERM))...)
	}
	program = append(program, limitSockets()...)
	program = append(program, limitReservations()...)
	if sameUser {
		program = append(program, protectGuest()...)
	}
	return append(program, pass())
}

// limitSockets allows a few families of sockets.
func limitSockets() []instruction {
	families := []uint32{syscall.AF_UNIX, syscall.AF_INET, syscall.AF_INET6, syscall.AF_NETLINK}
	program := []instruction{load(low(0))}
	for i, family := range families {
		program = append(program, instruction{code: bpfEqual, yes: uint8(len(families) - i), number: family})
	}
	return on(syscall.SYS_SOCKET, append(program, deny(syscall.EAFNOSUPPORT), pass())...)
}

// limitReservations denies what reserves blocks for a file without writing to them: fallocate(2) but to punch holes or
// to close gaps, and the older requests that do the same.
func limitReservations() []instruction {
	const punchHole, collapse = 0x02, 0x08
	program := on(syscall.SYS_FALLOCATE, load(low(1)),
		instruction{code: bpfAnySet, yes: 1, number: punchHole | collapse}, deny(syscall.EOPNOTSUPP), pass())
	const reserve, reserve64, zeroRange = 0x40305828, 0x4030582a, 0x40305839 // FS_IOC_RESVSP and its kin
	return append(program, on(syscall.SYS_IOCTL, load(low(1)),
		instruction{code: bpfEqual, yes: 3, number: reserve}, instruction{code: bpfEqual, yes: 2, number: reserve64},
		instruction{code: bpfEqual, yes: 1, number: zeroRange}, pass(), deny(syscall.ENOTTY))...)
}

// protectGuest denies what would end a guest of the same user. Another process's limits may be read but not set.
func protectGuest() []instruction {
	program := on(syscall.SYS_PRLIMIT64,
		load(low(0)), unless(0, 1), pass(),
		load(low(2)), unless(0, 3), load(high(2)), unless(0, 1), pass(),
		deny(syscall.EPERM))
	program = append(program, on(syscall.SYS_RT_SIGQUEUEINFO, faults(1)...)...)
	program = append(program, on(syscall.SYS_RT_TGSIGQUEUEINFO, faults(2)...)...)
	program = append(program, on(sysPidfdSendSignal, faults(1)...)...)
	const setSig = 10 // F_SETSIG: the signal that comes instead of SIGIO
	return append(program, on(syscall.SYS_FCNTL, append([]instruction{load(low(1)), unless(setSig, uint8(len(faults(2))))},
		append(faults(2), pass())...)...)...)
}

// faults refuses a call whose argument is a signal that the Go runtime takes for its own fault, and allows it
// otherwise.
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
