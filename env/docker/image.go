package docker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

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
		d.used(img)
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

// A pull that fails for a temporary reason is retried, with exponential backoff.
const pullAttempts = 4

// pull pulls an image onto the daemon: if it is on Docker Hub and there is a mirror, from the mirror; otherwise, or
// if the mirror fails, from its own registry.
func (d *daemon) pull(ctx context.Context, ref string) (image, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil || strings.HasPrefix(ref, "sha256:") {
		// An image ID, or not a valid reference: no registry can have it.
		return image{}, fmt.Errorf("%w: %w: %s is not on the docker daemon at %s: docker images lists those that are",
			env.ErrInfrastructure, env.ErrNoImage, ref, d.host)
	}
	if err := acquire(ctx, d.pulls); err != nil {
		return image{}, err
	}
	defer func() { <-d.pulls }()
	progress := d.progress(env.Pulling, ref)
	img, err := d.pullFrom(ctx, ref, named, progress)
	progress.finish(err)
	if err != nil {
		if ctx.Err() != nil || client.IsErrConnectionFailed(err) {
			return image{}, err
		}
		return image{}, d.pullFailure(ref, err)
	}
	d.pulled(ctx, img)
	return img, nil
}

func (d *daemon) pullFrom(ctx context.Context, ref string, named reference.Named, p *progress) (image, error) {
	if mirrored, ok := mirror(d.p.options.Mirror, named); ok {
		err := d.download(ctx, mirrored, p)
		if err == nil {
			return d.adoptMirrored(ctx, ref, named, mirrored)
		}
		if ctx.Err() != nil {
			return image{}, err
		}
		d.p.log.Warn("registry mirror failed, asking the registry itself", "image", mirrored, "error", err)
	}
	if err := d.download(ctx, named.String(), p); err != nil {
		return image{}, err
	}
	return d.inspectImage(ctx, ref)
}

// mirror returns the name that an image of Docker Hub has on a mirror.
func mirror(mirror string, named reference.Named) (string, bool) {
	if mirror == "" || !onHub(named) {
		return "", false
	}
	mirror = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(mirror, "https://"), "http://"), "/")
	return mirror + strings.TrimPrefix(named.String(), reference.Domain(named)), true
}

// onHub reports whether an image is on Docker Hub, the only registry whose name may be omitted.
func onHub(named reference.Named) bool {
	return !strings.HasPrefix(reference.FamiliarName(named), reference.Domain(named)+"/")
}

// adoptMirrored tags an image from a mirror with the requested name. A digest cannot be a tag, so an image
// requested by digest keeps the mirror's name.
func (d *daemon) adoptMirrored(ctx context.Context, ref string, named reference.Named, mirrored string) (image, error) {
	if _, ok := named.(reference.Digested); ok {
		img, err := d.inspectImage(ctx, mirrored)
		img.ref = mirrored
		return img, err
	}
	if _, err := d.cli.ImageTag(ctx, client.ImageTagOptions{Source: mirrored, Target: named.String()}); err != nil {
		return image{}, err
	}
	if _, err := d.cli.ImageRemove(ctx, mirrored, client.ImageRemoveOptions{}); err != nil {
		d.p.log.Warn("removing the mirror's name of an image", "image", mirrored, "error", err)
	}
	return d.inspectImage(ctx, ref)
}

// download pulls an image, and retries if that can help.
func (d *daemon) download(ctx context.Context, ref string, p *progress) error {
	for attempt := 1; ; attempt++ {
		err := d.downloadOnce(ctx, ref, p)
		if err == nil || ctx.Err() != nil || attempt == pullAttempts || permanent(err) {
			return err
		}
		d.p.log.Warn(fmt.Sprintf("pulling %s failed: %v: trying again", ref, err))
		pause := env.Backoff(attempt, d.p.waits.retry, time.Minute)
		if err := env.Sleep(ctx, pause/2+rand.N(pause)); err != nil {
			return err
		}
	}
}

func (d *daemon) downloadOnce(ctx context.Context, ref string, p *progress) error {
	facts, _ := d.known()
	auth, err := hostEnvironment().registryAuth(ctx, ref, facts.IndexServerAddress)
	if err != nil {
		d.p.log.Warn("no credentials for a registry; pulling without", "image", ref, "error", err)
	}
	response, err := d.cli.ImagePull(ctx, ref, client.ImagePullOptions{RegistryAuth: auth})
	if err != nil {
		return err
	}
	defer response.Close()
	for message, err := range response.JSONMessages(ctx) {
		if err != nil {
			return err
		}
		// Errors of the registry are messages in the stream.
		if message.Error != nil {
			return message.Error
		}
		p.takeMessage(message)
	}
	return ctx.Err()
}

// permanent reports whether retrying cannot help. Registries and daemons do not return error codes, only messages.
func permanent(err error) bool {
	return containsAny(strings.ToLower(err.Error()),
		"not found", "manifest unknown", "name unknown", "does not exist", "no such image", "unauthorized", "denied",
		"authentication required", "invalid reference", "no matching manifest", "unsupported media type",
		"no space left on device", "server gave http response to https client",
	)
}

func containsAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

func (d *daemon) pullFailure(ref string, err error) error {
	text := strings.ToLower(err.Error())
	kind, hint := env.ErrNoImage, "check the name, build the image, or see what docker pull "+ref+" says"
	switch {
	case strings.Contains(text, "no space left"):
		kind, hint = nil, "deepswe clean, docker system prune, or --image-budget"
	case strings.Contains(text, "toomanyrequests"), strings.Contains(text, "rate limit"):
		kind, hint = nil, "docker login, or --registry-mirror: the registry limits pulls"
	case containsAny(text, "denied", "unauthorized", "authentication"):
		hint = "check the name, and log in if it is private: docker login"
	case !permanent(err):
		kind, hint = nil, "check the network, or load the image by hand: docker load"
	}
	err = fmt.Errorf("%s is not on the docker daemon at %s and cannot be pulled: %w; to fix: %s", ref, d.host, err, hint)
	if kind == nil {
		return fmt.Errorf("%w: image %w", env.ErrInfrastructure, err)
	}
	return fmt.Errorf("%w: %w: %w", env.ErrInfrastructure, kind, err)
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
