package docker

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"deepswe/env"
)

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
				d.p.log.Warn("cannot remove a helper container", "error", endErr)
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
