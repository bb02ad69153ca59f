package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/fleet"
)

// Reap removes what dead owners left on all daemons: containers, and guests' volumes that are not in use. With
// o.All, it also removes what belongs to living owners, and all built and prepared images.
func (p *Provider) Reap(ctx context.Context, o env.ReapOptions) ([]env.Leftover, error) {
	return fleet.ReapAll(p.daemons, func(d *daemon) ([]env.Leftover, error) {
		if err := d.usable(ctx); err != nil {
			return nil, err
		}
		left, err := d.reaper().Reap(ctx, o)
		return left, d.infrastructure(ctx, "reap", err)
	})
}

func (d *daemon) reaper() fleet.Reaper { return fleet.Reaper{Place: d, Self: d.p.owner} }

// Inventory lists the containers of all deepswe processes on the daemon.
func (d *daemon) Inventory(ctx context.Context) (fleet.Inventory, error) {
	now, err := d.now(ctx)
	if err != nil {
		return fleet.Inventory{}, err
	}
	list, err := d.cli.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: make(client.Filters).Add("label", labelOwner),
	})
	if err != nil {
		return fleet.Inventory{}, err
	}
	i := fleet.Inventory{Now: now}
	for _, found := range list.Items {
		// A user's own container from a prepared image inherits the labels, but has no owner.
		if found.Labels[labelOwner] != "" {
			i.Things = append(i.Things, d.thing(ctx, found, now))
		}
	}
	return i, nil
}

func (d *daemon) thing(ctx context.Context, found container.Summary, now time.Time) fleet.Thing {
	created := time.Unix(found.Created, 0)
	t := fleet.Thing{
		Owner: found.Labels[labelOwner], Lease: found.Labels[labelKind] == kindLease, Seen: created,
		Uses: []string{leaseImage}, Leftover: leftover(found),
		Remove: func(ctx context.Context) error { return d.remove(ctx, found.ID) },
	}
	t.Leftover.Age = now.Sub(created).Round(time.Second)
	for _, m := range found.Mounts {
		t.Uses = append(t.Uses, m.Name)
	}
	if t.Lease && fleet.Liveness(t.Owner) == disk.Unknown {
		path := leaseDir + "/" + heartbeat
		stat, err := d.cli.ContainerStatPath(ctx, found.ID, client.ContainerStatPathOptions{Path: path})
		switch {
		case err == nil:
			t.Seen = stat.Stat.Mtime
		case !errdefs.IsNotFound(err): // it was never renewed
			t.Seen = now // unknown, so it counts as alive
		}
	}
	return t
}

func leftover(found container.Summary) env.Leftover {
	l := env.Leftover{
		Provider: "docker", Kind: "container", ID: found.ID[:min(12, len(found.ID))], Run: found.Labels[labelRun],
		Rollout: found.Labels[labelRollout], Owner: fleet.Describe(found.Labels[labelOwner], found.Labels[labelHost]),
	}
	if l.Rollout == "" && len(found.Names) > 0 && found.Labels[labelKind] == kindSandbox {
		// A sandbox that was started ahead of time has its rollout only in its name.
		if name := strings.TrimPrefix(found.Names[0], "/deepswe-"); strings.LastIndexByte(name, '-') > 0 {
			l.Rollout = name[:strings.LastIndexByte(name, '-')]
		}
	}
	return l
}

// Sweep removes the volumes of guests and the images that are no longer needed.
func (d *daemon) Sweep(
	ctx context.Context, now time.Time, inUse map[string]bool, o env.ReapOptions,
) ([]env.Leftover, error) {
	left, err := d.reapVolumes(ctx, inUse, o.DryRun)
	more, imageErr := d.reapImages(ctx, now, inUse, o)
	return append(left, more...), errors.Join(err, imageErr)
}

// reapVolumes removes guests' volumes that no container refers to. The daemon itself refuses to remove one that is
// in use.
func (d *daemon) reapVolumes(ctx context.Context, inUse map[string]bool, dryRun bool) ([]env.Leftover, error) {
	list, err := d.cli.VolumeList(ctx, client.VolumeListOptions{Filters: make(client.Filters).Add("name", guestVolumes)})
	if err != nil {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	var left []env.Leftover
	var failures error
	for _, v := range list.Items {
		if inUse[v.Name] || !strings.HasPrefix(v.Name, guestVolumes) {
			continue
		}
		var err error
		if !dryRun {
			_, err = d.cli.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{})
		}
		switch {
		case err == nil:
			left = append(left, env.Leftover{Provider: "docker", Kind: "volume", ID: v.Name, Age: age(v.CreatedAt)})
		case !errdefs.IsConflict(err) && !errdefs.IsNotFound(err):
			failures = errors.Join(failures, fmt.Errorf("volume %s: %w", v.Name, err))
		}
	}
	return left, failures
}

// derivedKept is how long an unused built or prepared image is kept.
const derivedKept = 14 * 24 * time.Hour

// reapImages removes built and prepared images that were not used for derivedKept, or all of them with o.All, and
// the lease's image if no lease is left.
func (d *daemon) reapImages(
	ctx context.Context, now time.Time, inUse map[string]bool, o env.ReapOptions,
) ([]env.Leftover, error) {
	list, err := d.cli.ImageList(ctx, client.ImageListOptions{
		Filters: make(client.Filters).Add("reference", leaseImage, preparedImages, builtImages),
	})
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	used, err := d.images.own.records().read()
	if err != nil {
		return nil, err
	}
	var left []env.Leftover
	var failures error
	for _, found := range list.Items {
		created := time.Unix(found.Created, 0)
		unused := now.Sub(created)
		if r, ok := used[found.ID]; ok {
			unused = time.Since(r.Used)
		}
		for _, tag := range found.RepoTags {
			done := derived(tag) && (o.All || unused > derivedKept)
			if !done && (tag != leaseImage || inUse[leaseImage]) {
				continue
			}
			removed := o.DryRun
			if !o.DryRun {
				removed, err = d.images.own.remove(ctx, tag, found.ID)
				failures = errors.Join(failures, err)
			}
			if removed {
				age := now.Sub(created).Round(time.Second)
				left = append(left, env.Leftover{Provider: "docker", Kind: "image", ID: tag, Age: age})
			}
		}
	}
	return left, failures
}

// derived reports whether an image is a built or prepared one.
func derived(tag string) bool {
	return strings.HasPrefix(tag, preparedImages+":") || strings.HasPrefix(tag, builtImages+":")
}

func age(created string) time.Duration {
	at, err := time.Parse(time.RFC3339, created)
	if err != nil {
		return 0
	}
	return time.Since(at).Round(time.Second)
}
