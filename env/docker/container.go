package docker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"deepswe/env"
	"deepswe/env/guest"
)

// launch describes a container that is about to be started.
type launch struct {
	kind         string
	name         string
	spec         env.Spec
	image        image
	user         user
	installation *installation
}

// boot creates and starts a container and greets its guest. When ctx ends early, what was begun is undone before boot
// returns; on a daemon that does not answer, afterwards.
func (d *daemon) boot(ctx context.Context, b launch) (*Sandbox, error) {
	if err := acquire(ctx, d.starts); err != nil {
		return nil, err
	}
	var s *Sandbox
	var err error
	done := make(chan struct{})
	d.p.work.Go(func() {
		defer close(done)
		s, err = d.bootNow(ctx, b)
		<-d.starts
		if err == nil && ctx.Err() != nil {
			if closeErr := s.Close(ctx); closeErr != nil {
				d.p.log.Warn("removing a sandbox whose start was cancelled", "error", closeErr)
			}
			err = context.Cause(ctx)
		}
	})
	select {
	case <-done:
		return s, err
	case <-ctx.Done():
	}
	select {
	case <-done:
		return s, err
	case <-time.After(d.p.waits.undo):
		return nil, context.Cause(ctx)
	}
}

func (d *daemon) bootNow(ctx context.Context, b launch) (_ *Sandbox, err error) {
	s := newSandbox(d, b)
	if s.id, err = d.create(ctx, b.config(d)); err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			return
		}
		d.unregister(s)
		if s.GuestSandbox != nil {
			_ = s.GuestSandbox.Close(ctx)
		} else if s.stream != nil {
			_ = s.stream.Close()
		}
		err = errors.Join(err, d.remove(ctx, s.id))
	}()
	if b.installation.noVolumes {
		archive := b.installation.binary.archive(guestDir[1:] + "/")
		defer archive.Close()
		to := client.CopyToContainerOptions{DestinationPath: "/", Content: archive}
		if _, err := d.cli.CopyToContainer(ctx, s.id, to); err != nil {
			return nil, fmt.Errorf("copy the guest: %w", err)
		}
	}
	// Attach and register before the start, so that no output is lost and the container's end is noticed.
	attached, err := d.cli.ContainerAttach(ctx, s.id, client.ContainerAttachOptions{
		Stream: true, Stdin: true, Stdout: true, Stderr: true,
	})
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	s.stream = newStream(attached.HijackedResponse, s.gone)
	d.register(s)
	during, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if _, err := d.cli.ContainerStart(during, s.id, client.ContainerStartOptions{}); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	connection, err := guest.Connect(during, s.stream)
	if err != nil {
		return nil, err
	}
	s.GuestSandbox = env.NewGuestSandbox(connection, nil)
	if said := connection.Hello().Build; said != b.installation.binary.hash {
		return nil, fmt.Errorf("%w: the guest on %s is another build (%.12s, not %.12s): run deepswe clean, and start again",
			env.ErrInfrastructure, d.host, said, b.installation.binary.hash)
	}
	return s, nil
}

// config is the container's configuration: only the guest is started, and nothing of the image's own.
func (b launch) config(d *daemon) client.ContainerCreateOptions {
	facts, _ := d.known()
	arguments := []string{
		guest.Arg, "--dir", b.spec.Dir, "--uid", strconv.Itoa(b.user.uid), "--gid", strconv.Itoa(b.user.gid),
		"--build", b.installation.binary.hash,
	}
	if !strings.HasPrefix(d.host, "unix:") {
		// A socket on this machine is closed when the host is gone; over a network that may go unnoticed.
		arguments = append(arguments, "--silence", "5m")
	}
	return client.ContainerCreateOptions{
		Name: b.name,
		Config: &container.Config{
			Hostname: "sandbox", Image: b.image.id, User: "0:0", WorkingDir: guestDir,
			Entrypoint: []string{guestPath}, Cmd: arguments, Env: b.spec.Env,
			OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
			// A health check would run a program of the image in the sandbox, as root and unasked.
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
			Labels:      d.p.labels(b.kind, b.spec.Run, b.spec.Rollout),
			StopSignal:  "SIGKILL",
		},
		HostConfig: b.isolation(facts),
	}
}

// register lets the daemon's events reach the sandbox.
func (d *daemon) register(s *Sandbox) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.live[s.id] = s
}

func (d *daemon) unregister(s *Sandbox) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.live, s.id)
}

// The limits of a spec that names none.
const (
	defaultMemory    = 4 << 30
	defaultCPUs      = 2
	defaultProcesses = 512
)

// guestThreads is the most threads that a guest uses.
const guestThreads = 40

// limits are a spec's, with the defaults filled in and cut to what the daemon has.
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
	if f.NCPU > 0 {
		l.CPUs = min(l.CPUs, float64(f.NCPU)) // a daemon refuses more than it has
	}
	return l
}

// isolation is the host configuration that confines a sandbox. The guest has the few capabilities that running commands
// as another user requires; the commands have none.
func (b launch) isolation(facts facts) *container.HostConfig {
	limits := facts.limits(b.spec.Limits)
	capabilities := []string{"SETUID", "SETGID", "SETPCAP", "KILL"}
	if len(b.spec.Prepare) > 0 {
		// Preparing may change files of the image's owner and of the repository's.
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
		// Files in /dev and /dev/shm use up the sandbox's memory, until no command can be started any more.
		// Beside /dev, these are the daemon's defaults. Devices can be used all the same.
		ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/dev"},
		ShmSize:       min(64<<20, limits.Memory/4),
		// When the machine itself runs out of memory, sandboxes should be killed first.
		OomScoreAdj: 500,
		Resources:   container.Resources{Ulimits: []*container.Ulimit{{Name: "core"}}},
	}
	if b.spec.Network {
		host.NetworkMode = "bridge"
	}
	if !b.installation.noVolumes {
		host.Mounts = []mount.Mount{guestMount(b.installation, true)}
	}
	if facts.MemoryLimit {
		host.Memory, host.MemorySwap = limits.Memory, limits.Memory // equal: no swap
	}
	if facts.CPUCfsQuota {
		host.NanoCPUs = int64(limits.CPUs * 1e9)
	}
	if facts.PidsLimit {
		// The kernel counts threads, and the guest's own must not count against the commands' limit.
		host.PidsLimit = new(limits.Processes + guestThreads)
	}
	return host
}
