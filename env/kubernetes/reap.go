package kubernetes

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"deepswe/env"
	"deepswe/env/fleet"
)

// Reap deletes the pods and leases of dead owners in all clusters; with o.All, also those of living ones.
func (p *Provider) Reap(ctx context.Context, o env.ReapOptions) ([]env.Leftover, error) {
	return fleet.ReapAll(p.clusters, func(c *cluster) ([]env.Leftover, error) {
		left, err := c.reaper().Reap(ctx, o)
		if err != nil {
			err = c.unreachable(err)
		}
		return left, err
	})
}

// reaper judges owners that lost the API server with it: no server is away for longer than an hour.
func (c *cluster) reaper() fleet.Reaper {
	return fleet.Reaper{Place: c, Self: c.owner, Outage: time.Hour}
}

// Inventory lists the pods and leases of all deepswe processes in the namespace.
func (c *cluster) Inventory(ctx context.Context) (fleet.Inventory, error) {
	var leases leaseList
	// Leases first: a pod created in between has a lease that is already listed, or is too young to be judged.
	err := c.call(ctx, request{
		method: http.MethodGet, path: c.leases(), query: url.Values{"labelSelector": {labelOwner}}, into: &leases,
	})
	if err != nil {
		return fleet.Inventory{}, err
	}
	pods, _, err := c.listPods(ctx, labelOwner)
	i := fleet.Inventory{Now: c.now()}
	for _, p := range pods {
		t := c.thing("pod", p.Metadata)
		t.Remove = func(ctx context.Context) error { return c.deletePod(ctx, p.Metadata.Name, p.Metadata.UID) }
		i.Things = append(i.Things, t)
	}
	for _, l := range leases.Items {
		t := c.thing("lease", l.Metadata)
		t.Lease = true
		if l.Spec.RenewTime != nil {
			t.Seen = l.Spec.RenewTime.Time
		}
		t.Remove = func(ctx context.Context) error { return c.deleteLease(ctx, l.Metadata.Name) }
		i.Things = append(i.Things, t)
	}
	return i, err
}

func (c *cluster) thing(kind string, m metadata) fleet.Thing {
	t := fleet.Thing{Owner: m.Labels[labelOwner], Leftover: env.Leftover{
		Provider: name, Kind: kind, ID: m.Name, Run: m.Annotations[annotationRun], Rollout: m.Annotations[annotationRollout],
		Owner: fleet.Describe(m.Labels[labelOwner], m.Annotations[annotationHost]),
	}}
	if m.CreationTimestamp != nil {
		t.Seen = *m.CreationTimestamp
		t.Leftover.Age = c.now().Sub(t.Seen).Round(time.Second)
	}
	return t
}

// Sweep has nothing to do: the cluster itself removes what nothing uses.
func (c *cluster) Sweep(context.Context, time.Time, map[string]bool, env.ReapOptions) ([]env.Leftover, error) {
	return nil, nil
}
