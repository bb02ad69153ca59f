package docker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/moby/moby/client"

	"deepswe/env"
)

// A pull that fails for a temporary reason is retried, with exponential backoff.
const pullAttempts = 4

// pull pulls an image onto the daemon: if it is on Docker Hub and there is a mirror, from the mirror; otherwise, or
// if the mirror fails, from its own registry.
func (m *images) pull(ctx context.Context, ref string) (image, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil || strings.HasPrefix(ref, "sha256:") {
		// An image ID, or not a valid reference: no registry can have it.
		return image{}, fmt.Errorf("%w: %w: %s is not on the docker daemon at %s: docker images lists those that are",
			env.ErrInfrastructure, env.ErrNoImage, ref, m.d.host)
	}
	if err := acquire(ctx, m.pulls); err != nil {
		return image{}, err
	}
	defer func() { <-m.pulls }()
	p := pull{m.d, ref, named, m.progress(env.Pulling, ref)}
	img, err := p.run(ctx)
	p.progress.finish(err)
	if err != nil {
		if ctx.Err() != nil || client.IsErrConnectionFailed(err) {
			return image{}, err
		}
		return image{}, p.failure(err)
	}
	m.own.pulled(ctx, img)
	return img, nil
}

// pull is one image on its way from a registry to a daemon.
type pull struct {
	d        *daemon
	ref      string
	named    reference.Named // ref, in full
	progress *progress
}

func (p pull) run(ctx context.Context) (image, error) {
	if mirrored, ok := mirror(p.d.p.options.Mirror, p.named); ok {
		err := p.download(ctx, mirrored)
		if err == nil {
			return p.adopt(ctx, mirrored)
		}
		if ctx.Err() != nil {
			return image{}, err
		}
		p.d.p.log.Warn("registry mirror failed, asking the registry itself", "image", mirrored, "error", err)
	}
	if err := p.download(ctx, p.named.String()); err != nil {
		return image{}, err
	}
	return p.d.images.inspect(ctx, p.ref)
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

// adopt tags an image from a mirror with the requested name. A digest cannot be a tag, so an image
// requested by digest keeps the mirror's name.
func (p pull) adopt(ctx context.Context, mirrored string) (image, error) {
	if _, ok := p.named.(reference.Digested); ok {
		img, err := p.d.images.inspect(ctx, mirrored)
		img.ref = mirrored
		return img, err
	}
	if _, err := p.d.cli.ImageTag(ctx, client.ImageTagOptions{Source: mirrored, Target: p.named.String()}); err != nil {
		return image{}, err
	}
	if _, err := p.d.cli.ImageRemove(ctx, mirrored, client.ImageRemoveOptions{}); err != nil {
		p.d.p.log.Warn("cannot remove the mirror's name of an image", "image", mirrored, "error", err)
	}
	return p.d.images.inspect(ctx, p.ref)
}

// download pulls an image, and retries if that can help.
func (p pull) download(ctx context.Context, from string) error {
	for attempt := 1; ; attempt++ {
		err := p.downloadOnce(ctx, from)
		if err == nil || ctx.Err() != nil || attempt == pullAttempts || permanent(err) {
			return err
		}
		p.d.p.log.Warn(fmt.Sprintf("pulling %s failed: %v: trying again", from, err))
		pause := env.Backoff(attempt, p.d.p.waits.retry, time.Minute)
		if err := env.Sleep(ctx, pause/2+rand.N(pause)); err != nil {
			return err
		}
	}
}

func (p pull) downloadOnce(ctx context.Context, from string) error {
	facts, _ := p.d.known()
	auth, err := hostEnvironment().registryAuth(ctx, from, facts.IndexServerAddress)
	if err != nil {
		p.d.p.log.Warn("no credentials for a registry; pulling without", "image", from, "error", err)
	}
	response, err := p.d.cli.ImagePull(ctx, from, client.ImagePullOptions{RegistryAuth: auth})
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
		p.progress.takeMessage(message)
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

func (p pull) failure(err error) error {
	text := strings.ToLower(err.Error())
	kind, hint := env.ErrNoImage, "check the name, build the image, or see what docker pull "+p.ref+" says"
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
	err = fmt.Errorf("%s is not on the docker daemon at %s and cannot be pulled: %w; to fix: %s",
		p.ref, p.d.host, err, hint)
	if kind == nil {
		return fmt.Errorf("%w: image %w", env.ErrInfrastructure, err)
	}
	return fmt.Errorf("%w: %w: %w", env.ErrInfrastructure, kind, err)
}
