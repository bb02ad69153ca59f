package docker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"deepswe/env"
)

// A pull that fails for a reason that may pass is tried again, after pauses that double.
const (
	pullAttempts = 4
	pullPause    = 500 * time.Millisecond
)

// pull brings an image onto the daemon: from the mirror where there is one and the image is Docker Hub's, else, or when
// the mirror fails, from its own registry.
func (d *daemon) pull(ctx context.Context, ref string) (image, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil || strings.HasPrefix(ref, "sha256:") {
		// An image ID, or no reference at all: nothing that a registry could be asked for.
		return image{}, fmt.Errorf("%w: %w: %s is not on the docker daemon at %s: docker images shows what is", env.ErrInfrastructure, env.ErrNoImage, ref, d.host)
	}
	select {
	case d.pulls <- struct{}{}:
		defer func() { <-d.pulls }()
	case <-ctx.Done():
		return image{}, ctx.Err()
	}
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

// mirror is the name of Docker Hub's image on a mirror.
func mirror(mirror string, named reference.Named) (string, bool) {
	if mirror == "" || !onHub(named) {
		return "", false
	}
	mirror = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(mirror, "https://"), "http://"), "/")
	return mirror + strings.TrimPrefix(named.String(), reference.Domain(named)), true
}

// onHub tells that an image is Docker Hub's, whose name alone may be left out.
func onHub(named reference.Named) bool {
	return !strings.HasPrefix(reference.FamiliarName(named), reference.Domain(named)+"/")
}

// adoptMirrored gives a mirrored image the name that it was asked for by. A digest cannot be given as a name, so such an
// image stays under the mirror's.
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

// download pulls, as often as it takes or makes sense.
func (d *daemon) download(ctx context.Context, ref string, p *progress) error {
	pause := pullPause
	for attempt := 1; ; attempt++ {
		err := d.downloadOnce(ctx, ref, p)
		if err == nil || ctx.Err() != nil || attempt == pullAttempts || permanent(err) {
			return err
		}
		d.p.log.Warn("pull failed, trying again", "image", ref, "attempt", attempt, "error", err)
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause *= 2
	}
}

func (d *daemon) downloadOnce(ctx context.Context, ref string, p *progress) error {
	facts, _ := d.known()
	auth, err := hostEnvironment().registryAuth(ctx, ref, facts.hub)
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
		// The registry's trouble comes as a message of a stream that is fine in itself.
		if message.Error != nil {
			return message.Error
		}
		p.take(message)
	}
	return ctx.Err()
}

// permanent tells that no further attempt can succeed. Registries and daemons say so in words only.
func permanent(err error) bool {
	text := strings.ToLower(err.Error())
	for _, sign := range []string{
		"not found", "manifest unknown", "name unknown", "does not exist", "no such image", "unauthorized", "denied",
		"authentication required", "invalid reference", "no matching manifest", "unsupported media type",
		"no space left on device", "server gave http response to https client",
	} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

func (d *daemon) pullFailure(ref string, err error) error {
	text := strings.ToLower(err.Error())
	kind, hint := env.ErrNoImage, "check the name, build the image, or see what docker pull "+ref+" says"
	switch {
	case strings.Contains(text, "no space left"):
		kind, hint = nil, "make room: deepswe clean, docker system prune, or set an image budget"
	case strings.Contains(text, "toomanyrequests"), strings.Contains(text, "rate limit"):
		kind, hint = nil, "the registry limits pulls: docker login, or use a registry mirror"
	case strings.Contains(text, "denied"), strings.Contains(text, "unauthorized"), strings.Contains(text, "authentication"):
		hint = "check the name, and log in if it is private: docker login"
	case !permanent(err):
		kind, hint = nil, "check the network, or load the image by hand: docker load"
	}
	if kind == nil {
		return fmt.Errorf("%w: image %s is not on the docker daemon at %s and cannot be pulled: %w; %s", env.ErrInfrastructure, ref, d.host, err, hint)
	}
	return fmt.Errorf("%w: %w: %s is not on the docker daemon at %s and cannot be pulled: %w; %s", env.ErrInfrastructure, kind, ref, d.host, err, hint)
}

// progress adds up the messages of one pull or build. One goroutine uses it.
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

// take reports at most five times a second.
func (p *progress) take(m jsonstream.Message) {
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
			return // not about a layer: "Pulling from library/…" has the tag for its ID
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
