package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"deepswe/env/fleet"
)

// takeLease creates the lease, once. It shows that this provider is alive, and it owns the provider's pods: the
// cluster deletes a pod whose lease is gone.
func (c *cluster) takeLease(ctx context.Context) error {
	c.leasing.Lock()
	defer c.leasing.Unlock()
	c.mu.Lock()
	taken := c.lease != nil
	c.mu.Unlock()
	if taken {
		return nil
	}
	if err := c.call(ctx, request{method: http.MethodGet, path: "/version", into: &versionInfo{}}); err != nil {
		return err // the response has also set the clock skew
	}
	now := &microTime{c.now()}
	made := &lease{}
	err := c.call(ctx, request{method: http.MethodPost, path: c.leases(), into: made, body: lease{
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease",
		Metadata: metadata{
			Name: "deepswe-" + fleet.ShortHash(c.owner) + "-" + fleet.Nonce(), Labels: map[string]string{labelOwner: c.owner},
			Annotations: map[string]string{annotationHost: c.hostname}, OwnerReferences: c.driver(ctx),
		},
		Spec: leaseSpec{HolderIdentity: c.hostname, LeaseDurationSeconds: int(fleet.Stale / time.Second),
			AcquireTime: now, RenewTime: now},
	}})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.lease = made
	c.mu.Unlock()
	c.tidied.Do(func() {
		c.work.Go(func() { c.reaper().Tidy(c.life, c.log.With("cluster", c.where())) })
	})
	return nil
}

// driver returns the pod that this process runs in, if any, as the owner of the lease.
func (c *cluster) driver(ctx context.Context) []ownerReference {
	if !c.inside || c.hostname == "" {
		return nil
	}
	var self pod
	err := c.call(ctx, request{method: http.MethodGet, path: c.pods() + "/" + c.hostname, into: &self, once: true})
	if err != nil {
		c.log.Debug("cannot find this process's own pod", "cluster", c.where(), "error", err)
		return nil
	}
	return []ownerReference{{APIVersion: "v1", Kind: "Pod", Name: self.Metadata.Name, UID: self.Metadata.UID}}
}

// ownerReferences make the cluster delete the pods when the lease is gone.
func (c *cluster) ownerReferences() []ownerReference {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lease == nil {
		return nil
	}
	return []ownerReference{{
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Name: c.lease.Metadata.Name, UID: c.lease.Metadata.UID,
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
		if err := c.renewLease(c.life); err != nil && c.life.Err() == nil {
			c.log.Warn("renewing the lease", "cluster", c.where(), "error", err)
		}
		c.retryOrphans(c.life)
		c.closeIdleOriginals(c.life, originalKept)
	}
}

// renewLease renews the lease, which shows that this provider is alive.
func (c *cluster) renewLease(ctx context.Context) error {
	c.leasing.Lock()
	defer c.leasing.Unlock()
	c.mu.Lock()
	current := c.lease
	c.mu.Unlock()
	if current == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, fleet.LeaseInterval)
	defer cancel()
	next := *current
	next.Spec.RenewTime = &microTime{c.now()}
	path := c.leases() + "/" + current.Metadata.Name
	made := &lease{}
	err := c.call(ctx, request{method: http.MethodPut, path: path, body: next, into: made})
	switch refused(err) {
	case http.StatusConflict: // a response was lost, or somebody edited the lease
		if err = c.call(ctx, request{method: http.MethodGet, path: path, into: made}); err != nil {
			return err
		}
	case http.StatusNotFound:
		made, err = nil, nil // deleted by hand: the next start creates another
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.lease = made
	c.mu.Unlock()
	return nil
}

// dropLease deletes the lease.
func (c *cluster) dropLease(ctx context.Context) error {
	c.leasing.Lock()
	defer c.leasing.Unlock()
	c.mu.Lock()
	current := c.lease
	c.lease = nil
	c.mu.Unlock()
	if current == nil {
		return nil
	}
	if err := c.deleteLease(ctx, current.Metadata.Name); err != nil {
		return fmt.Errorf("delete the lease %s: %w", current.Metadata.Name, c.unreachable(err))
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
		c.log.Warn("deleting the pods that are left", "cluster", c.where(), "error", err)
	}
}

// onDriver reports whether this process runs in a pod.
func onDriver() bool { return os.Getenv("KUBERNETES_SERVICE_HOST") != "" }
