package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"deepswe/env"
)

// preparedImages is the repository name of the images on which Spec.Prepare was run.
const preparedImages = "deepswe-prepared"

// prepare returns the image that results from running the spec's Prepare commands on its image. Only one process
// creates it.
func (d *daemon) prepare(ctx context.Context, base image, s env.Spec) (image, error) {
	key, err := prepareKey(base, s)
	if err != nil {
		return image{}, err
	}
	ref := preparedImages + ":" + key
	return d.images.resolve(ctx, ref, "prepare "+base.ref, func(ctx context.Context) (image, error) {
		var img image
		find := func(ctx context.Context) (err error) {
			img, err = d.images.inspect(ctx, ref)
			return err
		}
		name := "deepswe-prepare-" + key
		err := exclusively(ctx, d, name, find,
			func(ctx context.Context) (*Sandbox, error) { return d.bootPreparation(ctx, name, base, s) },
			func(ctx context.Context, sandbox *Sandbox) (err error) {
				if err = sandbox.RunPrepare(ctx, s.Prepare); err == nil {
					img, err = d.commit(ctx, sandbox, ref, "prepared", "keep the prepared image",
						map[string]string{labelPrepared: key})
				}
				return err
			},
			func(ctx context.Context, sandbox *Sandbox) error { return sandbox.Close(ctx) })
		return img, err
	})
}

// prepareKey returns a hash of everything that the content of a prepared image depends on.
func prepareKey(base image, s env.Spec) (string, error) {
	spelled, err := json.Marshal(struct {
		Image, Dir   string
		Env, Prepare []string
		Network      bool
	}{base.id, s.Dir, s.Env, s.Prepare, s.Network})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(spelled)
	return hex.EncodeToString(sum[:16]), nil
}

func (d *daemon) bootPreparation(ctx context.Context, name string, base image, s env.Spec) (*Sandbox, error) {
	installed, err := d.installer.get(ctx)
	if err != nil {
		return nil, err
	}
	sandbox, err := d.boot(ctx, launch{kind: kindPrepare, name: name, spec: s, image: base, installation: installed})
	if err != nil {
		return nil, err
	}
	if err := sandbox.makeDir(ctx); err != nil {
		return nil, errors.Join(err, sandbox.Close(ctx))
	}
	return sandbox, nil
}

// commit makes an image of a container, with the original image's configuration instead of the container's.
func (d *daemon) commit(
	ctx context.Context, sandbox *Sandbox, ref, done, operation string, labels map[string]string,
) (image, error) {
	base := sandbox.image
	maps.Copy(labels, map[string]string{
		labelUser: base.user, labelKind: kindPrepare, labelOwner: "", labelHost: "", labelRun: "", labelRollout: "",
	})
	_, err := d.cli.ContainerCommit(ctx, sandbox.id, client.ContainerCommitOptions{
		Reference: ref, Comment: "deepswe: " + base.ref + ", " + done,
		Config: &container.Config{
			User: base.user, Env: base.env, Cmd: base.command, Entrypoint: base.entry, WorkingDir: base.workdir,
			Labels: labels,
		},
	})
	if err != nil {
		return image{}, fmt.Errorf("%s: %w", operation, err)
	}
	img, err := d.images.inspect(ctx, ref)
	if err == nil {
		d.images.own.pulled(ctx, img)
	}
	return img, err
}
