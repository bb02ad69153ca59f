package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/owner"
)

// defaultStale is how long an owner on another machine may be silent before it counts as dead: four heartbeats.
const defaultStale = 4 * leaseInterval

// Reap removes what dead owners left on all daemons: containers, and guests' volumes that are not in use. With
// o.All, it also removes what belongs to living owners, and all built and prepared images.
func (p *Provider) Reap(ctx context.Context, o env.ReapOptions) ([]env.Leftover, error) {
	found := make([][]env.Leftover, len(p.daemons))
	failures := make([]error, len(p.daemons))
	var wg sync.WaitGroup
	for i, d := range p.daemons {
		wg.Go(func() {
			if failures[i] = d.usable(ctx); failures[i] == nil {
				found[i], failures[i] = d.reap(ctx, o)
			}
		})
	}
	wg.Wait()
	return slices.Concat(found...), errors.Join(failures...)
}

// inventory is a snapshot of the containers of all deepswe processes on a daemon.
type inventory struct {
	d          *daemon
	now        time.Time // by the daemon's clock
	containers []container.Summary
	verdicts   map[string]bool
}

func (d *daemon) inventory(ctx context.Context) (*inventory, error) {
	now, err := d.now(ctx)
	if err != nil {
		return nil, err
	}
	list, err := d.cli.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: make(client.Filters).Add("label", labelOwner),
	})
	if err != nil {
		return nil, err
	}
	c := &inventory{d: d, now: now, verdicts: map[string]bool{}}
	for _, found := range list.Items {
		// A user's own container from a prepared image inherits the labels, but has no owner.
		if found.Labels[labelOwner] != "" {
			c.containers = append(c.containers, found)
		}
	}
	return c, nil
}

// lives reports whether an owner is alive. Owners on this machine are looked up among its processes, others are
// judged by their lease.
func (c *inventory) lives(ctx context.Context, who string, stale time.Duration) bool {
	if who == c.d.p.owner {
		return true
	}
	if verdict, known := c.verdicts[who]; known {
		return verdict
	}
	verdict := c.judge(ctx, who, cmp.Or(stale, defaultStale))
	c.verdicts[who] = verdict
	return verdict
}

func (c *inventory) judge(ctx context.Context, who string, stale time.Duration) bool {
	if o, ok := owner.Parse(who); ok {
		switch o.LivenessOn(c.d.p.machine) {
		case disk.Alive:
			return true
		case disk.Dead:
			return false
		}
	}
	// A lease that was never renewed is judged by its creation; an owner without a lease, by its youngest
	// container.
	var last time.Time
	for _, found := range c.containers {
		if found.Labels[labelOwner] != who {
			continue
		}
		seen := time.Unix(found.Created, 0)
		if found.Labels[labelKind] == kindLease {
			path := leaseDir + "/" + heartbeat
			if stat, err := c.d.cli.ContainerStatPath(ctx, found.ID, client.ContainerStatPathOptions{Path: path}); err == nil {
				seen = stat.Stat.Mtime
			} else if !errdefs.IsNotFound(err) {
				return true // unknown, so it counts as alive
			}
		}
		if seen.After(last) {
			last = seen
		}
	}
	return c.now.Sub(last) < stale
}

// The daemon may still be processing requests of a killed process, so after removing something, reap looks again
// until it finds nothing.
const (
	reapRounds = 10
	reapPause  = 200 * time.Millisecond
)

func (d *daemon) reap(ctx context.Context, o env.ReapOptions) ([]env.Leftover, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var all []env.Leftover
	for round := 0; ; round++ {
		var left []env.Leftover
		c, err := d.inventory(ctx)
		if err == nil {
			left, err = d.reapOnce(ctx, c, o)
		}
		all = append(all, left...)
		if err != nil {
			return all, d.infrastructure(ctx, "reap", err)
		}
		if len(left) == 0 || o.DryRun || round == reapRounds {
			return all, nil
		}
		if err := env.Sleep(ctx, reapPause); err != nil {
			return all, d.infrastructure(ctx, "reap", err)
		}
	}
}

// reapOnce removes what is in an inventory and should go.
func (d *daemon) reapOnce(ctx context.Context, c *inventory, o env.ReapOptions) ([]env.Leftover, error) {
	var condemned, leases []container.Summary
	survivors := map[string]bool{} // volumes that stay in use, and the lease's image
	for _, found := range c.containers {
		switch {
		case !o.All && c.lives(ctx, found.Labels[labelOwner], o.Stale):
			for _, m := range found.Mounts {
				survivors[m.Name] = true
			}
			survivors[leaseImage] = true
		case found.Labels[labelKind] == kindLease:
			leases = append(leases, found)
		default:
			condemned = append(condemned, found)
		}
	}
	// Leases are removed last, because other reapers judge by them.
	left, err := d.reapContainers(ctx, c, condemned, o.DryRun)
	more, leaseErr := d.reapContainers(ctx, c, leases, o.DryRun)
	left, err = append(left, more...), errors.Join(err, leaseErr)
	more, volumeErr := d.reapVolumes(ctx, survivors, o.DryRun)
	left, err = append(left, more...), errors.Join(err, volumeErr)
	more, imageErr := d.reapImages(ctx, c, survivors, o)
	return append(left, more...), errors.Join(err, imageErr)
}

// reapContainers removes containers, reapAtOnce at a time.
func (d *daemon) reapContainers(
	ctx context.Context, c *inventory, condemned []container.Summary, dryRun bool,
) ([]env.Leftover, error) {
	failures := make([]error, len(condemned))
	var wg sync.WaitGroup
	turns := make(chan struct{}, 4)
	for i, found := range condemned {
		if dryRun || ctx.Err() != nil {
			break
		}
		turns <- struct{}{}
		wg.Go(func() {
			failures[i] = d.remove(ctx, found.ID)
			<-turns
		})
	}
	wg.Wait()
	var left []env.Leftover
	for i, found := range condemned {
		if failures[i] == nil {
			left = append(left, c.leftover(found))
		}
	}
	return left, errors.Join(append(failures, ctx.Err())...)
}

func (c *inventory) leftover(found container.Summary) env.Leftover {
	l := env.Leftover{
		Provider: "docker", Kind: "container", ID: found.ID[:min(12, len(found.ID))],
		Run: found.Labels[labelRun], Rollout: found.Labels[labelRollout], Owner: describeOwner(found.Labels),
		Age: c.now.Sub(time.Unix(found.Created, 0)).Round(time.Second),
	}
	if l.Rollout == "" && len(found.Names) > 0 && found.Labels[labelKind] == kindSandbox {
		// A sandbox that was started ahead of time has its rollout only in its name.
		if name := strings.TrimPrefix(found.Names[0], "/deepswe-"); strings.LastIndexByte(name, '-') > 0 {
			l.Rollout = name[:strings.LastIndexByte(name, '-')]
		}
	}
	return l
}

func describeOwner(labels map[string]string) string {
	if o, ok := owner.Parse(labels[labelOwner]); ok {
		return labels[labelHost] + " pid " + strconv.Itoa(o.PID)
	}
	return labels[labelOwner]
}

// reapVolumes removes guests' volumes that no container refers to. The daemon itself refuses to remove one that is
// in use.
func (d *daemon) reapVolumes(ctx context.Context, survivors map[string]bool, dryRun bool) ([]env.Leftover, error) {
	list, err := d.cli.VolumeList(ctx, client.VolumeListOptions{Filters: make(client.Filters).Add("name", guestVolumes)})
	if err != nil {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	var left []env.Leftover
	var failures error
	for _, v := range list.Items {
		if survivors[v.Name] || !strings.HasPrefix(v.Name, guestVolumes) {
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
	ctx context.Context, c *inventory, survivors map[string]bool, o env.ReapOptions,
) ([]env.Leftover, error) {
	list, err := d.cli.ImageList(ctx, client.ImageListOptions{
		Filters: make(client.Filters).Add("reference", leaseImage, preparedImages, builtImages),
	})
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	used, err := d.records().read()
	if err != nil {
		return nil, err
	}
	var left []env.Leftover
	var failures error
	for _, found := range list.Items {
		created := time.Unix(found.Created, 0)
		unused := c.now.Sub(created)
		if r, ok := used[found.ID]; ok {
			unused = time.Since(r.Used)
		}
		for _, tag := range found.RepoTags {
			done := derived(tag) && (o.All || unused > derivedKept)
			if !done && (tag != leaseImage || survivors[leaseImage]) {
				continue
			}
			removed := o.DryRun
			if !o.DryRun {
				removed, err = d.removeImage(ctx, tag, found.ID)
				failures = errors.Join(failures, err)
			}
			if removed {
				age := c.now.Sub(created).Round(time.Second)
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
