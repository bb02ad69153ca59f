package docker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"deepswe/env"
)

// The daemon as it is without us, for "deepswe doctor": what is there to try, and what its own primitives cost.

// Image is one image on a daemon, by one of its names.
type Image struct {
	Ref  string
	Size int64
}

// Images lists the images of the first daemon that have a name, the smallest first. Those that deepswe made for itself
// are left out.
func (p *Provider) Images(ctx context.Context) ([]Image, error) {
	d := p.daemons[0]
	list, err := d.cli.ImageList(ctx, client.ImageListOptions{})
	if err != nil {
		return nil, d.infrastructure(ctx, "list images", err)
	}
	var all []Image
	for _, found := range list.Items {
		for _, tag := range found.RepoTags {
			if tag != leaseImage && !derived(tag) && tag != "<none>:<none>" {
				all = append(all, Image{tag, found.Size})
				break
			}
		}
	}
	slices.SortFunc(all, func(a, b Image) int { return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Ref, b.Ref)) })
	return all, nil
}

// Contains returns those of the paths that exist in an image of the first daemon, without starting anything of it.
func (p *Provider) Contains(ctx context.Context, ref string, paths ...string) ([]string, error) {
	d := p.daemons[0]
	img, err := d.image(ctx, ref)
	if err != nil {
		return nil, err
	}
	id, err := d.createOriginal(ctx, img, env.Spec{})
	if err != nil {
		return nil, d.infrastructure(ctx, "look into "+ref, err)
	}
	var found []string
	for _, path := range paths {
		_, statErr := d.cli.ContainerStatPath(ctx, id, client.ContainerStatPathOptions{Path: path})
		if statErr == nil {
			found = append(found, path)
		} else if !errdefs.IsNotFound(statErr) {
			err = errors.Join(err, statErr)
		}
	}
	return found, d.infrastructure(ctx, "look into "+ref, errors.Join(err, d.remove(ctx, id)))
}

// BareStart creates and starts a container of an image that does nothing but wait, with a sandbox's limits and no
// network, on the first daemon. The function it returns removes the container.
func (p *Provider) BareStart(ctx context.Context, ref string) (remove func(context.Context) error, err error) {
	d := p.daemons[0]
	img, err := d.image(ctx, ref)
	if err != nil {
		return nil, err
	}
	facts, _ := d.known()
	b := box{image: img, site: &site{bare: true}}
	host := b.isolation(facts)
	host.AutoRemove, host.CapAdd = false, nil
	id, err := d.create(ctx, client.ContainerCreateOptions{
		Config: &container.Config{
			Image: img.id, Entrypoint: []string{"sleep", "1000"}, Labels: p.labels(kindSandbox, "doctor", ""),
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		},
		HostConfig: host,
	})
	if err != nil {
		return nil, d.infrastructure(ctx, "bare start", err)
	}
	remove = func(ctx context.Context) error { return d.remove(ctx, id) }
	if _, err := d.cli.ContainerStart(ctx, id, client.ContainerStartOptions{}); err != nil {
		return nil, errors.Join(d.infrastructure(ctx, "bare start", err), remove(ctx))
	}
	return remove, nil
}

// Exec runs a program in the container through the daemon, the way that tools without a guest do: three requests, and a
// process that is new to the container. Nothing but a comparison should want it.
func (s *Sandbox) Exec(ctx context.Context, argv ...string) (stdout []byte, exit int, err error) {
	cli := s.d.cli
	created, err := cli.ExecCreate(ctx, s.id, client.ExecCreateOptions{Cmd: argv, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return nil, 0, s.d.infrastructure(ctx, "exec", err)
	}
	attached, err := cli.ExecAttach(ctx, created.ID, client.ExecAttachOptions{})
	if err != nil {
		return nil, 0, s.d.infrastructure(ctx, "exec", err)
	}
	defer attached.Close()
	stop := context.AfterFunc(ctx, attached.Close) // the stream itself knows nothing of ctx
	defer stop()
	var out bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, io.Discard, attached.Reader); err != nil {
		return nil, 0, s.d.infrastructure(ctx, "exec", err)
	}
	done, err := cli.ExecInspect(ctx, created.ID, client.ExecInspectOptions{})
	if err == nil && done.Running {
		err = errors.New("still running after its output has ended")
	}
	return out.Bytes(), done.ExitCode, s.d.infrastructure(ctx, "exec", err)
}

// StartEmpty starts a sandbox in an image with nothing in it, so that a guest can be tried on a daemon without images. It
// has no shell.
func (p *Provider) StartEmpty(ctx context.Context) (*Sandbox, error) {
	d := p.daemons[0]
	if _, err := d.settle(ctx); err != nil { // which brings the image
		return nil, err
	}
	s, err := p.Start(ctx, env.Spec{Image: leaseImage, Dir: leaseDir, Run: "doctor"})
	if err != nil {
		return nil, err
	}
	return s.(*Sandbox), nil
}
