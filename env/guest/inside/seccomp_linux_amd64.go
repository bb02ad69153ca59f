package inside

// auditArch is AUDIT_ARCH_X86_64; x32 is the bit that marks calls of the x32 ABI, which shares it.
const (
	auditArch = 0xc000003e
	x32       = 0x40000000
)

// sysPreadv2 is not in package syscall.
const sysPreadv2 = 327

// deniedCalls returns bpf, perf_event_open, userfaultfd, add_key, request_key and keyctl.
func deniedCalls() []uint32 { return []uint32{321, 298, 323, 248, 249, 250} }
