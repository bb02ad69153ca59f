package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"deepswe/env"
	"deepswe/env/fleet"
	"deepswe/env/program"
)

// installation is what a daemon needs before the first sandbox can start: the guest's binary, and a lease, which
// shows that its owner is alive.
type installation struct {
	binary program.Program
	volume string
	// noVolumes is set if the daemon forbids volumes, so that the binary is copied into each container.
	noVolumes bool
	lease     string // the lease's container ID
}

const (
	// guestVolumes is the prefix of the names of all guests' volumes.
	guestVolumes = "deepswe-guest-"
	// leaseImage is the image of leases, because every container needs one. It contains an empty directory.
	leaseImage = "deepswe-lease:1"
	leaseDir   = "/lease"
	heartbeat  = "heartbeat"
)

// install creates the installation, once for all callers.
func (d *daemon) install(ctx context.Context) (*installation, error) {
	if s := d.installed(); s != nil {
		return s, nil
	}
	return d.installing.do(ctx, d.p.life, &d.p.work, "", func(ctx context.Context) (*installation, error) {
		ctx, cancel := d.whileUp(ctx)
		defer cancel()
		s, err := d.newInstallation(ctx)
		if errdefs.IsNotFound(err) {
			// Another process removed the lease's image during its own clean-up, between two of our steps.
			s, err = d.newInstallation(ctx)
		}
		if err != nil {
			return nil, d.infrastructure(ctx, "install the guest", err)
		}
		d.mu.Lock()
		d.installation = s
		d.mu.Unlock()
		// Only after our own lease exists, because otherwise the guest's volume would look unused.
		d.tidied.Do(func() {
			d.p.work.Go(func() { d.reaper().Tidy(d.p.life, d.p.log.With("host", d.host)) })
		})
		return s, nil
	})
}

// installed returns the installation, or nil if it is not complete.
func (d *daemon) installed() *installation {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.installation
}

// dropInstallation discards an incomplete installation; the next start creates a new one.
func (d *daemon) dropInstallation(s *installation) {
	d.mu.Lock()
	if d.installation == s {
		d.installation = nil
		d.orphans.Add(s.lease)
	}
	d.mu.Unlock()
	d.retryOrphans()
}

func (d *daemon) newInstallation(ctx context.Context) (*installation, error) {
	facts, _ := d.known()
	binary, err := program.Find(d.p.options.Executable, facts.arch)
	if err != nil {
		return nil, err
	}
	s := &installation{binary: binary, volume: guestVolumes + binary.Hash[:16]}
	if err := d.importLeaseImage(ctx); err != nil {
		return nil, fmt.Errorf("lease image: %w", err)
	}
	takeLease := func() (err error) {
		s.lease, err = d.createIdle(ctx, kindLease, "deepswe-lease-"+fleet.ShortHash(d.p.owner)+"-"+fleet.Nonce(), s)
		return err
	}
	if err := takeLease(); err != nil {
		if ctx.Err() != nil || client.IsErrConnectionFailed(err) || errdefs.IsNotFound(err) {
			return nil, err
		}
		// Some daemons forbid volumes. Then the binary is copied into each container.
		s.noVolumes = true
		if copyErr := takeLease(); copyErr != nil {
			return nil, errors.Join(err, copyErr)
		}
		d.p.log.Warn("docker daemon refuses volumes; the guest is copied into each container", "host", d.host, "error", err)
		return s, nil
	}
	if err := d.fillVolume(ctx, s); err != nil {
		return nil, errors.Join(err, d.remove(ctx, s.lease))
	}
	return s, nil
}

func (d *daemon) importLeaseImage(ctx context.Context) error {
	_, err := d.cli.ImageInspect(ctx, leaseImage)
	if err == nil || !errdefs.IsNotFound(err) {
		return err
	}
	source := client.ImageImportSource{SourceName: "-", Source: tarOf(tar.Header{
		Typeflag: tar.TypeDir, Name: leaseDir[1:] + "/", Mode: 0o755, ModTime: time.Unix(1, 0),
	})}
	result, err := d.cli.ImageImport(ctx, source, leaseImage, client.ImageImportOptions{
		Message: "deepswe: image of leases", Changes: []string{"LABEL " + labelKind + "=" + kindLease},
	})
	if err != nil {
		return err
	}
	// The import is cut off unless its response is read to the end.
	_, err = io.Copy(io.Discard, result)
	return errors.Join(err, result.Close())
}

// createIdle creates a container that is never started, with the guest's volume mounted writable.
func (d *daemon) createIdle(ctx context.Context, kind, name string, s *installation) (string, error) {
	host := &container.HostConfig{NetworkMode: "none", LogConfig: container.LogConfig{Type: "none"}}
	if !s.noVolumes {
		host.Mounts = []mount.Mount{guestMount(s, false)}
	}
	return d.create(ctx, client.ContainerCreateOptions{
		Name: name,
		Config: &container.Config{
			Image: leaseImage, Cmd: []string{"never-started"}, Labels: d.p.labels(kind, "", ""),
		},
		HostConfig: host,
	})
}

// create creates a container and returns its ID, even if ctx ends meanwhile, because a cancelled request could
// leave a container whose ID we do not know.
func (d *daemon) create(ctx context.Context, o client.ContainerCreateOptions) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	during, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	result, err := d.cli.ContainerCreate(during, o)
	return result.ID, err
}

func guestMount(s *installation, readOnly bool) mount.Mount {
	return mount.Mount{
		Type: mount.TypeVolume, Source: s.volume, Target: guestDir, ReadOnly: readOnly,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: map[string]string{labelKind: "guest"}},
	}
}

// fillVolume copies the binary into the volume, unless it is already there. Only one process at a time does this,
// so that a binary is never overwritten while a container starts it.
func (d *daemon) fillVolume(ctx context.Context, s *installation) error {
	name := "deepswe-fill-" + s.binary.Hash[:16]
	find := func(ctx context.Context) error {
		_, err := d.cli.ContainerStatPath(ctx, s.lease, client.ContainerStatPathOptions{Path: guestDir + "/" + guestMark})
		return err
	}
	return exclusively(ctx, d, name, find,
		func(ctx context.Context) (string, error) { return d.createIdle(ctx, kindFill, name, s) },
		func(ctx context.Context, id string) error {
			archive := archiveOf(s.binary, "", tar.Header{
				Typeflag: tar.TypeReg, Name: guestMark, Mode: 0o444, ModTime: time.Unix(1, 0),
			})
			defer archive.Close()
			_, err := d.cli.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: guestDir, Content: archive})
			return err
		},
		d.remove)
}

// exclusively does work that only one of the processes sharing a daemon may do. The lock is the name of a
// container, which begin creates and end removes, because a daemon gives each name to only one container. find
// looks for the result, and returns a not-found error before the work is done. A lock whose owner is dead is
// removed.
func exclusively[T any](
	ctx context.Context, d *daemon, name string, find func(context.Context) error,
	begin func(context.Context) (T, error), work, end func(context.Context, T) error,
) error {
	for {
		if err := find(ctx); !errdefs.IsNotFound(err) {
			return err
		}
		locked, err := begin(ctx)
		if err == nil {
			if err = find(ctx); errdefs.IsNotFound(err) { // the last holder of the lock did not finish
				err = work(ctx, locked)
			}
			if endErr := end(ctx, locked); endErr != nil {
				d.p.log.Warn("removing a helper container", "error", endErr)
			}
			return err
		}
		if !errdefs.IsConflict(err) {
			return err
		}
		if err := d.breakLock(ctx, name); err != nil {
			return err
		}
		if env.Sleep(ctx, 50*time.Millisecond) != nil {
			return context.Cause(ctx)
		}
	}
}

// breakLock removes the container of that name if its owner is dead.
func (d *daemon) breakLock(ctx context.Context, name string) error {
	found, err := d.cli.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	holder := found.Container.Config.Labels[labelOwner]
	if holder == "" {
		return nil
	}
	if alive, err := d.reaper().Alive(ctx, holder); alive || err != nil {
		return err
	}
	return d.remove(ctx, found.Container.ID)
}

// renewLease touches the lease's heartbeat file. It uses the daemon's own time, so that other clocks do not matter.
func (d *daemon) renewLease(ctx context.Context) error {
	s := d.installed()
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.p.waits.ping)
	defer cancel()
	now, err := d.now(ctx)
	if err != nil {
		return err
	}
	if err = d.touchLease(ctx, s.lease, now); errdefs.IsNotFound(err) {
		d.dropInstallation(s) // somebody removed the lease by hand
	}
	return err
}

func (d *daemon) touchLease(ctx context.Context, id string, now time.Time) error {
	_, err := d.cli.CopyToContainer(ctx, id, client.CopyToContainerOptions{
		DestinationPath: leaseDir,
		Content:         tarOf(tar.Header{Typeflag: tar.TypeReg, Name: heartbeat, Mode: 0o444, ModTime: now}),
	})
	return err
}

// tarOf returns a tar stream with one entry that has no content.
func tarOf(h tar.Header) io.Reader {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	_ = w.WriteHeader(&h) // writing to a buffer cannot fail
	_ = w.Close()
	return &archive
}

func (d *daemon) now(ctx context.Context) (time.Time, error) {
	info, err := d.cli.Info(ctx, client.InfoOptions{})
	if err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339Nano, info.Info.SystemTime)
}

func (d *daemon) dropLease(ctx context.Context) error {
	d.mu.Lock()
	s := d.installation
	d.installation = nil
	d.mu.Unlock()
	if s == nil {
		return nil
	}
	return d.remove(ctx, s.lease)
}
