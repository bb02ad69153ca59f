package docker

import (
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"

	"deepswe/env"
)

// limits are the spec's, with the defaults filled in and cut to what the daemon has.
func (s *Sandbox) limits() env.Limits {
	facts, _ := s.d.known()
	return facts.limits(s.spec.Limits)
}

// The limits of a spec that names none.
const (
	defaultMemory    = 4 << 30
	defaultCPUs      = 2
	defaultProcesses = 512
)

// guestThreads is the most threads that a guest has at work.
const guestThreads = 40

func (f facts) limits(l env.Limits) env.Limits {
	if l.Memory <= 0 {
		l.Memory = defaultMemory
	}
	if l.CPUs <= 0 {
		l.CPUs = defaultCPUs
	}
	if l.Processes <= 0 {
		l.Processes = defaultProcesses
	}
	if f.cpus > 0 {
		l.CPUs = min(l.CPUs, float64(f.cpus)) // a daemon refuses more than it has
	}
	return l
}

// isolation is what keeps a sandbox in. The guest has the few capabilities that it takes to act as another user; nothing
// that it starts has any.
func (b box) isolation(facts facts) *container.HostConfig {
	limits := facts.limits(b.spec.Limits)
	capabilities := []string{"SETUID", "SETGID", "SETPCAP", "KILL"}
	if len(b.spec.Prepare) > 0 {
		// Preparing means to change what the image's owner and the repository's owner put there.
		capabilities = append(capabilities, "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID")
	}
	host := &container.HostConfig{
		AutoRemove:  true,
		NetworkMode: "none",
		CapDrop:     []string{"ALL"},
		CapAdd:      capabilities,
		SecurityOpt: []string{"no-new-privileges"},
		LogConfig:   container.LogConfig{Type: "none"},
		IpcMode:     container.IPCModePrivate,
		// What lies in /dev and /dev/shm takes up the sandbox's memory, until nothing can be started any more.
		ReadonlyPaths: readonlyPaths(),
		ShmSize:       min(64<<20, limits.Memory/4),
		// When the machine itself runs out of memory, a sandbox is what should go.
		OomScoreAdj: 500,
		Resources:   container.Resources{Ulimits: []*container.Ulimit{{Name: "core"}}},
	}
	if b.spec.Network {
		host.NetworkMode = "bridge"
	}
	if !b.site.bare {
		host.Mounts = []mount.Mount{guestMount(b.site, true)}
	}
	if facts.memoryLimit {
		host.Memory, host.MemorySwap = limits.Memory, limits.Memory // equal: no swap
	}
	if facts.cpuLimit {
		host.NanoCPUs = int64(limits.CPUs * 1e9)
	}
	if facts.processLimit {
		// The kernel counts threads, and the guest's own are not the commands' to pay for.
		host.PidsLimit = new(limits.Processes + guestThreads)
	}
	return host
}

// readonlyPaths are those that a daemon makes read-only by default, and /dev. Its devices can be used all the same.
func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/dev"}
}
