package docker

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"deepswe/env"
)

// image is what an image reference stood for when it was resolved.
type image struct {
	ref     string
	id      string
	user    string // the image's User: empty is root
	env     []string
	command []string
	entry   []string
	workdir string
}

// image resolves a reference, and builds or pulls the image if the daemon has none of that name. A reference keeps its
// meaning for as long as the provider lives, so that the attempts at one task start from the same image.
func (d *daemon) image(ctx context.Context, ref string) (image, error) {
	d.mu.Lock()
	img, ok := d.images[ref]
	d.mu.Unlock()
	if ok {
		d.used(img)
		return img, nil
	}
	img, err := d.resolved.do(ctx, d.p.life, &d.p.work, ref, func(ctx context.Context) (image, error) {
		ctx, cancel := d.while(ctx)
		defer cancel()
		img, err := d.inspectImage(ctx, ref)
		if errdefs.IsNotFound(err) {
			img, err = d.obtain(ctx, ref)
		}
		if err != nil {
			return image{}, d.infrastructure(ctx, "image "+ref, err)
		}
		d.mu.Lock()
		d.images[ref] = img
		d.mu.Unlock()
		return img, nil
	})
	if err == nil {
		d.used(img)
	}
	return img, err
}

// dropImage forgets what a reference was resolved to, because the image is gone.
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
