package docker

import (
	"archive/tar"
	"context"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"deepswe/env"
)

// originals reads files as the image has them: from a second container of the same image, which is never started, so
// that nothing that runs in the sandbox can have touched it.
type originals struct {
	s *Sandbox

	mu sync.Mutex
	id string
}

// Original implements env.Origin: the content of a file of the image, or the target of a symbolic link.
func (s *Sandbox) Original(ctx context.Context, name string) ([]byte, error) {
	if s.spec.CopyIn != "" {
		return nil, fmt.Errorf("original %s: %w: the repository was copied in from %s", name, env.ErrUnsupported, s.spec.CopyIn)
	}
	if !filepath.IsLocal(name) || strings.ContainsRune(name, 0) {
		return nil, fmt.Errorf("original %q: %w", name, fs.ErrInvalid)
	}
	return s.original.read(ctx, path.Join(s.spec.Dir, name), name)
}

func (o *originals) read(ctx context.Context, full, name string) ([]byte, error) {
	d := o.s.d
	ctx, cancel := d.while(ctx)
	defer cancel()
	id, err := o.container(ctx)
	if err != nil {
		return nil, d.infrastructure(ctx, "original "+name, err)
	}
	data, header, err := d.readFromContainer(ctx, id, full)
	switch {
	case errdefs.IsNotFound(err), err != nil && strings.Contains(err.Error(), "not a directory"):
		return nil, fmt.Errorf("original %s: %w", name, fs.ErrNotExist)
	case err != nil:
		return nil, d.infrastructure(ctx, "original "+name, err)
	case header.Typeflag == tar.TypeSymlink:
		return []byte(header.Linkname), nil
	case header.Typeflag != tar.TypeReg:
		return nil, fmt.Errorf("original %s: not a file: %w", name, fs.ErrNotExist)
	}
	return data, nil
}

func (o *originals) container(ctx context.Context) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.id != "" {
		return o.id, nil
	}
	id, err := o.s.d.createOriginal(ctx, o.s.image, o.s.spec)
	if err == nil {
		o.id = id
	}
	return id, err
}

func (o *originals) close(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.id == "" {
		return nil
	}
	err := o.s.d.remove(ctx, o.id)
	if err == nil {
		o.id = ""
	}
	return err
}

// createOriginal creates a container of an image that is never started.
func (d *daemon) createOriginal(ctx context.Context, img image, s env.Spec) (string, error) {
	return d.create(ctx, client.ContainerCreateOptions{
		Name: "deepswe-original-" + nonce(),
		Config: &container.Config{
			Image: img.id, Entrypoint: []string{"never-started"}, Labels: d.p.labels(kindOriginal, s.Run, s.Rollout),
		},
		HostConfig: &container.HostConfig{NetworkMode: "none", LogConfig: container.LogConfig{Type: "none"}},
	})
}
