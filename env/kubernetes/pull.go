package kubernetes

import (
	"context"
	"sync"
	"time"

	"deepswe/env"
)

// pulls remembers which images a cluster's nodes have pulled for this provider.
type pulls struct {
	images sync.Map
	failed sync.Map // images whose failed pull was reported
}

// complain reports whether an image's failed pull is still to be reported, and marks it as reported.
func (p *pulls) complain(image string) bool {
	_, said := p.failed.LoadOrStore(image, true)
	return !said
}

// add reports whether an image is new.
func (p *pulls) add(image string) bool {
	p.failed.Delete(image)
	_, known := p.images.LoadOrStore(image, true)
	return !known
}

func (p *pulls) forget(image string) { p.images.Delete(image) }

// Fetch makes a node pull a spec's image, unless one already has. The scheduler prefers that node for the sandboxes.
// The pod needs no privileges and next to no room, and does not wait for quota.
func (c *cluster) Fetch(ctx context.Context, s env.Spec) (err error) {
	if c.options.Pods.PullPolicy == "Never" || !c.pulled.add(s.Image) {
		return nil
	}
	defer func() {
		if err != nil {
			c.pulled.forget(s.Image)
			err = c.failed(ctx, err)
		}
	}()
	c.beginWork()
	if err := c.lease.takeLease(ctx); err != nil {
		return err
	}
	p := c.pullManifest(s)
	w := c.watch.register(p.Metadata.Name)
	defer c.watch.unregister(p.Metadata.Name)
	uid, err := c.createPod(ctx, p, w)
	if err != nil {
		return err
	}
	err = c.awaitImage(ctx, w)
	_ = c.removePod(ctx, podID{p.Metadata.Name, uid}) // now or later
	return err
}

// pullManifest returns a pod that does nothing. An image without a shell cannot even start it, but is pulled all the
// same.
func (c *cluster) pullManifest(s env.Spec) pod {
	l := launch{
		kind: kindPull, mode: mode{level: levelRestricted},
		spec: env.Spec{Image: s.Image, Run: s.Run, Dir: s.Dir, Network: true},
	}
	l.name = podName(kindPull, l.spec)
	p := c.manifest(l)
	p.Spec.InitContainers, p.Spec.Volumes = nil, nil
	only := &p.Spec.Containers[0]
	only.Command, only.VolumeMounts = []string{"/bin/sh", "-c", ":"}, nil
	only.Resources = resources{
		Limits:   map[string]string{"memory": quantity(64 << 20), "cpu": "100m"},
		Requests: map[string]string{"memory": quantity(1 << 20), "cpu": "1m"},
	}
	return p
}

// awaitImage waits until a pod's image has been pulled.
func (c *cluster) awaitImage(ctx context.Context, w *watched) error {
	var hindered impediments
	for {
		p, gone, change := c.watch.look(w)
		if gone {
			return nil // somebody deleted it; the sandboxes will pull the image
		}
		if p != nil {
			if !pulling(p) {
				return nil
			}
			if err := hindered.watch(p, c); err != nil {
				return err
			}
		}
		select {
		case <-change:
		case <-time.After(time.Second): // watch also counts the time
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
