package docker

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// pullsAtOnce limits concurrent pulls and builds on each daemon.
const pullsAtOnce = 3

// images are a daemon's images: what references mean, who pulls and builds, and what is in an image.
type images struct {
	d         *daemon
	own       ownImages
	pulls     chan struct{} // a semaphore of pulls and builds
	resolving callGroup[image]

	mu    sync.Mutex
	byRef map[string]image
	users map[string]user // by image and name
}

// get resolves a reference, and builds or pulls the image if the daemon does not have it.
func (m *images) get(ctx context.Context, ref string) (image, error) {
	return m.resolve(ctx, ref, "image "+ref, func(ctx context.Context) (image, error) {
		img, err := m.inspect(ctx, ref)
		if !errdefs.IsNotFound(err) {
			return img, err
		}
		if folder := m.d.p.buildContext(ref); folder != nil {
			return m.build(ctx, ref, folder)
		}
		return m.pull(ctx, ref)
	})
}

// resolve returns the image of a reference, which find looks up once for all callers. A reference keeps its meaning
// for the life of the provider, so that all attempts at a task start from the same image.
func (m *images) resolve(
	ctx context.Context, ref, operation string, find func(context.Context) (image, error),
) (img image, err error) {
	m.mu.Lock()
	img, ok := m.byRef[ref]
	m.mu.Unlock()
	if !ok {
		img, err = m.resolving.do(ctx, m.d.p.life, &m.d.p.work, ref, func(ctx context.Context) (image, error) {
			ctx, cancel := m.d.whileUp(ctx)
			defer cancel()
			img, err := find(ctx)
			if err != nil {
				return image{}, m.d.infrastructure(ctx, operation, err)
			}
			m.mu.Lock()
			m.byRef[ref] = img
			m.mu.Unlock()
			return img, nil
		})
	}
	if err == nil {
		m.own.used(img)
	}
	return img, err
}

// forget forgets all references.
func (m *images) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.byRef)
}

// has reports whether a reference is resolved already.
func (m *images) has(ref string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.byRef[ref]
	return ok
}

// drop forgets the references to an image that was removed.
func (m *images) drop(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for ref, known := range m.byRef {
		if known.id == id {
			delete(m.byRef, ref)
		}
	}
}

func (m *images) inspect(ctx context.Context, ref string) (image, error) {
	found, err := m.d.cli.ImageInspect(ctx, ref)
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

func (m *images) progress(action env.Action, image string) *progress {
	return &progress{to: m.d.p.options.Progress, now: env.Progress{Action: action, Host: m.d.host, Image: image}}
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
