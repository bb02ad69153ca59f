package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

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

// installer creates a daemon's installation, and owns it until the end.
type installer struct {
	d       *daemon
	calls   callGroup[*installation]
	tidied  sync.Once
	mu      sync.Mutex
	current *installation // nil until complete
}

// get returns the installation, and creates it once for all callers.
func (i *installer) get(ctx context.Context) (*installation, error) {
	if s := i.done(); s != nil {
		return s, nil
	}
	return i.calls.do(ctx, i.d.p.life, &i.d.p.work, "", func(ctx context.Context) (*installation, error) {
		ctx, cancel := i.d.whileUp(ctx)
		defer cancel()
		s, err := i.create(ctx)
		if errdefs.IsNotFound(err) {
			// Another process removed the lease's image during its own clean-up, between two of our steps.
			s, err = i.create(ctx)
		}
		if err != nil {
			return nil, i.d.infrastructure(ctx, "install the guest", err)
		}
		i.mu.Lock()
		i.current = s
		i.mu.Unlock()
		// Only after our own lease exists, because otherwise the guest's volume would look unused.
		i.tidied.Do(func() {
			i.d.p.work.Go(func() { i.d.reaper().Tidy(i.d.p.life, i.d.p.log.With("host", i.d.host)) })
		})
		return s, nil
	})
}

// done returns the installation, or nil if it is not complete.
func (i *installer) done() *installation {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.current
}

// drop discards an incomplete installation; the next start creates a new one.
func (i *installer) drop(s *installation) {
	i.mu.Lock()
	if i.current == s {
		i.current = nil
		i.d.orphans.Add(s.lease)
	}
	i.mu.Unlock()
	i.d.retryOrphans()
}

// lose forgets the installation of a daemon that is down, and reports whether there was one.
func (i *installer) lose() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.current
	if s != nil {
		i.d.orphans.Add(s.lease)
	}
	i.current = nil
	return s != nil
}

func (i *installer) create(ctx context.Context) (*installation, error) {
	facts, _ := i.d.known()
	binary, err := program.Find(i.d.p.options.Executable, facts.arch)
	if err != nil {
		return nil, err
	}
	s := &installation{binary: binary, volume: guestVolumes + binary.Hash[:16]}
	if err := i.importImage(ctx); err != nil {
		return nil, fmt.Errorf("lease image: %w", err)
	}
	takeLease := func() (err error) {
		s.lease, err = i.createIdle(ctx, kindLease, "deepswe-lease-"+fleet.ShortHash(i.d.p.owner)+"-"+fleet.Nonce(), s)
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
		i.d.p.log.Warn("docker daemon refuses volumes; the guest is copied into each container",
			"host", i.d.host, "error", err)
		return s, nil
	}
	if err := i.fillVolume(ctx, s); err != nil {
		return nil, errors.Join(err, i.d.remove(ctx, s.lease))
	}
	return s, nil
}

func (i *installer) importImage(ctx context.Context) error {
	_, err := i.d.cli.ImageInspect(ctx, leaseImage)
	if err == nil || !errdefs.IsNotFound(err) {
		return err
	}
	source := client.ImageImportSource{SourceName: "-", Source: tarOf(tar.Header{
		Typeflag: tar.TypeDir, Name: leaseDir[1:] + "/", Mode: 0o755, ModTime: time.Unix(1, 0),
	})}
	result, err := i.d.cli.ImageImport(ctx, source, leaseImage, client.ImageImportOptions{
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
func (i *installer) createIdle(ctx context.Context, kind, name string, s *installation) (string, error) {
	host := &container.HostConfig{NetworkMode: "none", LogConfig: container.LogConfig{Type: "none"}}
	if !s.noVolumes {
		host.Mounts = []mount.Mount{guestMount(s, false)}
	}
	return i.d.create(ctx, client.ContainerCreateOptions{
		Name: name,
		Config: &container.Config{
			Image: leaseImage, Cmd: []string{"never-started"}, Labels: i.d.p.labels(kind, "", ""),
		},
		HostConfig: host,
	})
}

func guestMount(s *installation, readOnly bool) mount.Mount {
	return mount.Mount{
		Type: mount.TypeVolume, Source: s.volume, Target: guestDir, ReadOnly: readOnly,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: map[string]string{labelKind: "guest"}},
	}
}

// fillVolume copies the binary into the volume, unless it is already there. Only one process at a time does this,
// so that a binary is never overwritten while a container starts it.
func (i *installer) fillVolume(ctx context.Context, s *installation) error {
	name := "deepswe-fill-" + s.binary.Hash[:16]
	find := func(ctx context.Context) error {
		_, err := i.d.cli.ContainerStatPath(ctx, s.lease, client.ContainerStatPathOptions{Path: guestDir + "/" + guestMark})
		return err
	}
	return exclusively(ctx, i.d, name, find,
		func(ctx context.Context) (string, error) { return i.createIdle(ctx, kindFill, name, s) },
		func(ctx context.Context, id string) error {
			archive := archiveOf(s.binary, "", tar.Header{
				Typeflag: tar.TypeReg, Name: guestMark, Mode: 0o444, ModTime: time.Unix(1, 0),
			})
			defer archive.Close()
			_, err := i.d.cli.CopyToContainer(ctx, id,
				client.CopyToContainerOptions{DestinationPath: guestDir, Content: archive})
			return err
		},
		i.d.remove)
}

// renew touches the lease's heartbeat file. It uses the daemon's own time, so that other clocks do not matter.
func (i *installer) renew(ctx context.Context) error {
	s := i.done()
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, i.d.p.waits.ping)
	defer cancel()
	now, err := i.d.now(ctx)
	if err != nil {
		return err
	}
	if err = i.touch(ctx, s.lease, now); errdefs.IsNotFound(err) {
		i.drop(s) // somebody removed the lease by hand
	}
	return err
}

func (i *installer) touch(ctx context.Context, id string, now time.Time) error {
	_, err := i.d.cli.CopyToContainer(ctx, id, client.CopyToContainerOptions{
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

func (i *installer) close(ctx context.Context) error {
	i.mu.Lock()
	s := i.current
	i.current = nil
	i.mu.Unlock()
	if s == nil {
		return nil
	}
	return i.d.remove(ctx, s.lease)
}
