package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"deepswe/env/fleet"
)

// leaseholder owns a provider's lease in a cluster.
type leaseholder struct {
	c       *cluster
	taking  sync.Mutex // held while the lease is created, renewed and deleted
	tidied  sync.Once
	current atomic.Pointer[lease] // nil until it is created
}

// takeLease creates the lease, once. It shows that this provider is alive, and it owns the provider's pods: the
// cluster deletes a pod whose lease is gone.
func (h *leaseholder) takeLease(ctx context.Context) error {
	h.taking.Lock()
	defer h.taking.Unlock()
	if h.current.Load() != nil {
		return nil
	}
	if err := h.c.call(ctx, request{method: http.MethodGet, path: "/version", into: &versionInfo{}}); err != nil {
		return err // the response has also set the clock skew
	}
	now := &microTime{h.c.now()}
	made := &lease{}
	err := h.c.call(ctx, request{method: http.MethodPost, path: h.c.leases(), into: made, body: lease{
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease",
		Metadata: metadata{
			Name:        "deepswe-" + fleet.ShortHash(h.c.owner) + "-" + fleet.Nonce(),
			Labels:      map[string]string{labelOwner: h.c.owner},
			Annotations: map[string]string{annotationHost: h.c.hostname}, OwnerReferences: h.driver(ctx),
		},
		Spec: leaseSpec{HolderIdentity: h.c.hostname, LeaseDurationSeconds: int(fleet.Stale / time.Second),
			AcquireTime: now, RenewTime: now},
	}})
	if err != nil {
		return err
	}
	h.current.Store(made)
	h.tidied.Do(func() {
		h.c.work.Go(func() { h.c.reaper().Tidy(h.c.life, h.c.log.With("cluster", h.c.where())) })
	})
	return nil
}

// driver returns the pod that this process runs in, if any, as the owner of the lease.
func (h *leaseholder) driver(ctx context.Context) []ownerReference {
	if !h.c.inside || h.c.hostname == "" {
		return nil
	}
	var self pod
	err := h.c.call(ctx, request{method: http.MethodGet, path: h.c.pods() + "/" + h.c.hostname, into: &self, once: true})
	if err != nil {
		h.c.log.Debug("cannot find this process's own pod", "cluster", h.c.where(), "error", err)
		return nil
	}
	return []ownerReference{{APIVersion: "v1", Kind: "Pod", Name: self.Metadata.Name, UID: self.Metadata.UID}}
}

// references make the cluster delete the pods when the lease is gone.
func (h *leaseholder) references() []ownerReference {
	current := h.current.Load()
	if current == nil {
		return nil
	}
	return []ownerReference{{
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Name: current.Metadata.Name, UID: current.Metadata.UID,
	}}
}

// keepLease renews the lease while the provider is open, and retries postponed deletions.
func (c *cluster) keepLease() {
	ticker := time.NewTicker(fleet.LeaseInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-c.life.Done():
			return
		}
		if err := c.lease.renew(c.life); err != nil && c.life.Err() == nil {
			c.log.Warn("cannot renew the lease", "cluster", c.where(), "error", err)
		}
		c.retryOrphans(c.life)
		c.originals.closeIdle(c.life, c.log, originalKept)
	}
}

// renew renews the lease, which shows that this provider is alive.
func (h *leaseholder) renew(ctx context.Context) error {
	h.taking.Lock()
	defer h.taking.Unlock()
	current := h.current.Load()
	if current == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, fleet.LeaseInterval)
	defer cancel()
	next := *current
	next.Spec.RenewTime = &microTime{h.c.now()}
	path := h.c.leases() + "/" + current.Metadata.Name
	made := &lease{}
	err := h.c.call(ctx, request{method: http.MethodPut, path: path, body: next, into: made})
	switch refused(err) {
	case http.StatusConflict: // a response was lost, or somebody edited the lease
		if err = h.c.call(ctx, request{method: http.MethodGet, path: path, into: made}); err != nil {
			return err
		}
	case http.StatusNotFound:
		made, err = nil, nil // deleted by hand: the next start creates another
	}
	if err != nil {
		return err
	}
	h.current.Store(made)
	return nil
}

// drop deletes the lease.
func (h *leaseholder) drop(ctx context.Context) error {
	h.taking.Lock()
	defer h.taking.Unlock()
	current := h.current.Swap(nil)
	if current == nil {
		return nil
	}
	if err := h.c.deleteLease(ctx, current.Metadata.Name); err != nil {
		return fmt.Errorf("delete the lease %s: %w", current.Metadata.Name, h.c.unreachable(err))
	}
	return nil
}

func (c *cluster) deleteLease(ctx context.Context, name string) error {
	err := c.call(ctx, request{method: http.MethodDelete, path: c.leases() + "/" + name, brief: true})
	if refused(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// retryOrphans deletes the pods whose deletion failed before.
func (c *cluster) retryOrphans(ctx context.Context) {
	err := c.orphans.Retry(func(p podID) error { return c.deletePod(ctx, p.name, p.uid) })
	if err != nil {
		c.log.Warn("cannot delete the pods that are left", "cluster", c.where(), "error", err)
	}
}

// onDriver reports whether this process runs in a pod.
func onDriver() bool { return os.Getenv("KUBERNETES_SERVICE_HOST") != "" }
