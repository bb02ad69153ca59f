package docker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"deepswe/env"
	"deepswe/env/fleet"
)

// Time limits for requests. A busy daemon takes seconds to create a container.
const (
	callTimeout   = 2 * time.Minute
	removeTimeout = 60 * time.Second
)

// acquire takes a slot of a semaphore, or fails when ctx ends first.
func acquire(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type daemon struct {
	*connection
	images    images
	installer installer
	orphans   fleet.Orphans[string] // containers

	mu      sync.Mutex
	live    map[string]*Sandbox
	noQuota bool // the daemon has rejected a quota
}

func newDaemon(p *Provider, ep endpoint) (*daemon, error) {
	cli, err := ep.dial()
	if err != nil {
		return nil, fmt.Errorf("docker host %s: %w", ep.host, err)
	}
	d := &daemon{
		connection: &connection{p: p, host: ep.host, cli: cli},
		live:       map[string]*Sandbox{},
	}
	d.installer = installer{d: d}
	d.images = images{
		d: d, own: ownImages{d: d, pins: map[string]int{}, touched: map[string]time.Time{}},
		pulls: make(chan struct{}, pullsAtOnce), byRef: map[string]image{}, users: map[string]user{},
	}
	return d, nil
}

// remove removes a container and its anonymous volumes, whether or not it is running. It succeeds if the container
// no longer exists. If removing fails, it is retried when the daemon is back.
func (d *daemon) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	_, err := d.cli.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	if errdefs.IsConflict(err) {
		// The container has ended by itself, and the daemon is already removing it.
		if err = d.awaitGone(ctx, id); err == nil {
			return nil
		}
	}
	d.orphans.Add(id)
	return fmt.Errorf("%w: docker daemon at %s: remove container: %w", env.ErrInfrastructure, d.host, err)
}

func (d *daemon) awaitGone(ctx context.Context, id string) error {
	for {
		_, err := d.cli.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		if errdefs.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = env.Sleep(ctx, 20*time.Millisecond)
		}
		if err != nil {
			return err
		}
	}
}

// retryOrphans removes what could not be removed while the daemon was unreachable.
func (d *daemon) retryOrphans() {
	if err := d.orphans.Retry(func(id string) error { return d.remove(d.p.life, id) }); err != nil {
		d.p.log.Warn("cannot remove what is left", "error", err)
	}
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

func (d *daemon) now(ctx context.Context) (time.Time, error) {
	info, err := d.cli.Info(ctx, client.InfoOptions{})
	if err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339Nano, info.Info.SystemTime)
}
