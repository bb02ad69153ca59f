package docker

import (
	"cmp"
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

// launch describes a container to be started.
type launch struct {
	kind         string
	name         string
	spec         env.Spec
	image        image
	user         user
	installation *installation
}

// boot creates and starts a container and connects to its guest. If ctx ends early, boot undoes its work before it
// returns or, if the daemon does not respond, afterwards.
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
				d.p.log.Warn("cannot remove a sandbox whose start was cancelled", "error", closeErr)
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
	if s.id, err = d.createSandbox(ctx, b); err != nil {
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
		archive := archiveOf(b.installation.binary, guestDir[1:]+"/")
		defer archive.Close()
		to := client.CopyToContainerOptions{DestinationPath: "/", Content: archive}
		if _, err := d.cli.CopyToContainer(ctx, s.id, to); err != nil {
			return nil, fmt.Errorf("copy the guest: %w", err)
		}
	}
	// Attach and register before starting, so that no output is lost and the container's end is noticed.
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
	if said := connection.Hello().Build; said != b.installation.binary.Hash {
		return nil, fmt.Errorf("%w: the guest on %s is another build (%.12s, not %.12s): run deepswe clean, and start again",
			env.ErrInfrastructure, d.host, said, b.installation.binary.Hash)
	}
	if err := connection.Hello().Space.Check(d.storage()); err != nil {
		return nil, fmt.Errorf("%w: %w: to fix: deepswe clean, docker system prune, or --image-budget",
			env.ErrInfrastructure, err)
	}
	return s, nil
}

// storage names, for messages, the directory of the daemon that contains the containers' files.
func (d *daemon) storage() string {
	facts, _ := d.known()
	return cmp.Or(facts.DockerRootDir, "the docker daemon") + " at " + d.host
}

// createSandbox creates a sandbox's container, with a file-system quota if the daemon supports that, which only
// trying can show.
func (d *daemon) createSandbox(ctx context.Context, b launch) (string, error) {
	quota := d.mayHaveQuota()
	id, err := d.create(ctx, b.config(d, quota))
	if quota && err != nil && containsAny(err.Error(), "storage-opt", "StorageOpt", "storage option", "quota") {
		d.mu.Lock()
		d.noQuota = true
		d.mu.Unlock()
		d.p.log.Debug("the daemon's storage has no quotas", "host", d.host, "error", err)
		id, err = d.create(ctx, b.config(d, false))
	}
	return id, err
}

// mayHaveQuota reports whether the daemon's storage driver might support quotas, as overlay2 does on XFS with
// project quotas.
func (d *daemon) mayHaveQuota() bool {
	d.mu.Lock()
	rejected := d.noQuota
	d.mu.Unlock()
	if rejected {
		return false
	}
	facts, _ := d.known()
	for _, status := range facts.DriverStatus {
		if status[0] == "Backing Filesystem" {
			return facts.Driver == "overlay2" && status[1] == "xfs"
		}
	}
	return false
}

// config returns the container's configuration, which starts the guest instead of the image's entry point.
func (b launch) config(d *daemon, quota bool) client.ContainerCreateOptions {
	facts, _ := d.known()
	limits := d.limits(b.spec.Limits)
	arguments := []string{
		guest.Arg, "--dir", b.spec.Dir, "--uid", strconv.Itoa(b.user.uid), "--gid", strconv.Itoa(b.user.gid),
		"--build", b.installation.binary.Hash,
	}
	arguments = append(arguments, limits.DiskArguments()...)
	if quota {
		arguments = append(arguments, "--disk-quota")
	}
	if !strings.HasPrefix(d.host, "unix:") {
		// A local socket is closed when the host process ends; a network connection may not be.
		arguments = append(arguments, "--silence", "5m")
	}
	return client.ContainerCreateOptions{
		Name: b.name,
		Config: &container.Config{
			Hostname: "sandbox", Image: b.image.id, User: "0:0", WorkingDir: guestDir,
			Entrypoint: []string{guestPath}, Cmd: arguments, Env: b.spec.Env,
			OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
			// A health check would run one of the image's programs in the sandbox, as root.
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
			Labels:      d.p.labels(b.kind, b.spec.Run, b.spec.Rollout),
			StopSignal:  "SIGKILL",
		},
		HostConfig: b.isolation(facts, limits, quota),
	}
}

// register makes the daemon's events reach the sandbox.
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

// limits returns a spec's limits with defaults for those that are zero, and at most what the daemon has.
func (d *daemon) limits(l env.Limits) env.Limits {
	l = l.WithDefaults(d.p.options.Limits)
	if facts, _ := d.known(); facts.NCPU > 0 {
		l.CPUs = min(l.CPUs, float64(facts.NCPU)) // a daemon rejects more than it has
	}
	return l
}

// isolation returns the host configuration that confines a sandbox. The guest has only the capabilities for running
// commands as another user; commands have none.
func (b launch) isolation(facts facts, limits env.Limits, quota bool) *container.HostConfig {
	capabilities := []string{"SETUID", "SETGID", "SETPCAP", "KILL"}
	if len(b.spec.Prepare) > 0 {
		// Preparing may change files that belong to the image's user or the repository's owner.
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
		// Files in /dev and /dev/shm count towards the sandbox's memory and could fill it, so /dev is read-only,
		// which does not affect using its devices. The other paths are the daemon's defaults.
		ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/dev"},
		ShmSize:       min(64<<20, limits.Memory/4),
		// If the machine itself runs out of memory, sandboxes should be killed first.
		OomScoreAdj: 500,
		Resources:   container.Resources{Ulimits: []*container.Ulimit{{Name: "core"}}},
	}
	if b.spec.Network {
		host.NetworkMode = "bridge"
	}
	if !b.installation.noVolumes {
		host.Mounts = []mount.Mount{guestMount(b.installation, true)}
	}
	for _, f := range b.spec.Shown {
		if f.Host == "" {
			host.Mounts = append(host.Mounts, mount.Mount{
				Type: mount.TypeTmpfs, Target: f.Path, ReadOnly: !f.Writable,
				TmpfsOptions: &mount.TmpfsOptions{SizeBytes: host.ShmSize, Mode: 0o1777},
			})
			continue
		}
		host.Mounts = append(host.Mounts, mount.Mount{
			Type: mount.TypeBind, Source: f.Host, Target: f.Path, ReadOnly: !f.Writable,
		})
	}
	if quota {
		// A quota slightly above the limit at which the guest kills commands, as a second barrier.
		host.StorageOpt = map[string]string{"size": strconv.FormatInt(limits.Disk+limits.Disk/16+256<<20, 10)}
	}
	if facts.MemoryLimit {
		host.Memory, host.MemorySwap = limits.Memory, limits.Memory // equal: no swap
	}
	if facts.CPUCfsQuota {
		host.NanoCPUs = int64(limits.CPUs * 1e9)
	}
	if facts.PidsLimit {
		// The kernel counts threads. The guest's own must not use up the commands' limit.
		host.PidsLimit = new(limits.Processes + guest.MostThreads)
	}
	return host
}
