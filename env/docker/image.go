package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/jsonstream"

	"deepswe/env"
)

// image is an image of the daemon, as it was when its reference was resolved.
type image struct {
	ref     string
	id      string
	user    string // the image's User; empty means root
	env     []string
	command []string
	entry   []string
	workdir string
}

// image resolves a reference, and builds or pulls the image if the daemon does not have it.
func (d *daemon) image(ctx context.Context, ref string) (image, error) {
	return d.resolve(ctx, ref, "image "+ref, func(ctx context.Context) (image, error) {
		img, err := d.inspectImage(ctx, ref)
		if !errdefs.IsNotFound(err) {
			return img, err
		}
		if folder := d.p.buildContext(ref); folder != nil {
			return d.build(ctx, ref, folder)
		}
		return d.pull(ctx, ref)
	})
}

// resolve returns the image of a reference, which find looks up once for all callers. A reference keeps its meaning
// for the life of the provider, so that all attempts at a task start from the same image.
func (d *daemon) resolve(
	ctx context.Context, ref, operation string, find func(context.Context) (image, error),
) (img image, err error) {
	d.mu.Lock()
	img, ok := d.images[ref]
	d.mu.Unlock()
	if !ok {
		img, err = d.resolving.do(ctx, d.p.life, &d.p.work, ref, func(ctx context.Context) (image, error) {
			ctx, cancel := d.whileUp(ctx)
			defer cancel()
			img, err := find(ctx)
			if err != nil {
				return image{}, d.infrastructure(ctx, operation, err)
			}
			d.mu.Lock()
			d.images[ref] = img
			d.mu.Unlock()
			return img, nil
		})
	}
	if err == nil {
		d.own.used(img)
	}
	return img, err
}

// dropImage forgets the references to an image that was removed.
func (d *daemon) dropImage(img image) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for ref, known := range d.images {
		if known.id == img.id {
			delete(d.images, ref)
		}
	}
}

func (d *daemon) inspectImage(ctx context.Context, ref string) (image, error) {
	found, err := d.cli.ImageInspect(ctx, ref)
	if err != nil {
		return image{}, err
	}
	if found.Os != "" && found.Os != "linux" {
		return image{}, fmt.Errorf("%w: image %s is for %s, not for Linux", env.ErrUnsupported, ref, found.Os)
	}
	img := image{ref: ref, id: found.ID}
	if c := found.Config; c != nil {
		img.user, img.env, img.command, img.entry, img.workdir = c.User, c.Env, c.Cmd, c.Entrypoint, c.WorkingDir
		if original, ok := c.Labels[labelUser]; ok {
			img.user = original
		}
	}
	return img, nil
}

// progress adds up the messages of one pull or build. It is not safe for concurrent use.
type progress struct {
	to     func(env.Progress)
	now    env.Progress
	layers map[string]layer
	last   time.Time
}

func (d *daemon) progress(action env.Action, image string) *progress {
	return &progress{to: d.p.options.Progress, now: env.Progress{Action: action, Host: d.host, Image: image}}
}

type layer struct {
	bytes, total int64
	ready        bool
}

// takeMessage adds a message, and reports progress at most five times a second.
func (p *progress) takeMessage(m jsonstream.Message) {
	if m.ID == "" || p.to == nil {
		return
	}
	if p.layers == nil {
		p.layers = map[string]layer{}
	}
	l, known := p.layers[m.ID]
	switch m.Status {
	case "Downloading":
		if m.Progress != nil {
			l.bytes, l.total = m.Progress.Current, max(m.Progress.Total, l.total)
		}
	case "Download complete":
		l.bytes = l.total
	case "Pull complete", "Already exists":
		l.bytes, l.ready = l.total, true
	case "Pulling fs layer", "Waiting", "Verifying Checksum", "Extracting":
	default:
		if !known {
			return // not about a layer: the ID of "Pulling from library/…" is the tag
		}
	}
	p.layers[m.ID] = l
	if time.Since(p.last) < 200*time.Millisecond {
		return
	}
	p.last = time.Now()
	p.report()
}

func (p *progress) report() {
	if p.to == nil {
		return
	}
	r := &p.now
	r.Layers, r.Ready, r.Bytes, r.Total = len(p.layers), 0, 0, 0
	for _, l := range p.layers {
		r.Bytes += l.bytes
		r.Total += l.total
		if l.ready {
			r.Ready++
		}
	}
	p.to(*r)
}

func (p *progress) finish(err error) {
	p.now.Done, p.now.Err = true, err
	if errors.Is(err, context.Canceled) {
		p.now.Err = context.Canceled
	}
	p.report()
}
