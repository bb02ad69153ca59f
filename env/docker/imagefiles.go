package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
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
		return nil, fmt.Errorf("original %s: %w: the repository was copied in from %s",
			name, env.ErrUnsupported, s.spec.CopyIn)
	}
	if !filepath.IsLocal(name) || strings.ContainsRune(name, 0) {
		return nil, fmt.Errorf("original %q: %w", name, fs.ErrInvalid)
	}
	return s.original.read(ctx, path.Join(s.spec.Dir, name), name)
}

func (o *originals) read(ctx context.Context, full, name string) ([]byte, error) {
	d := o.s.d
	ctx, cancel := d.whileUp(ctx)
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

// readFromImage reads one file of an image, through a container that is never started. A missing file has no content.
func (d *daemon) readFromImage(ctx context.Context, img image, path string) ([]byte, error) {
	id, err := d.createOriginal(ctx, img, env.Spec{})
	if err != nil {
		return nil, err
	}
	data, _, err := d.readFromContainer(ctx, id, path)
	if removeErr := d.remove(ctx, id); removeErr != nil {
		d.p.log.Warn("removing a helper container", "error", removeErr)
	}
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	return data, err
}

// readFromContainer returns a file's bytes and its tar header. A symbolic link is not followed.
func (d *daemon) readFromContainer(ctx context.Context, id, path string) ([]byte, *tar.Header, error) {
	result, err := d.cli.CopyFromContainer(ctx, id, client.CopyFromContainerOptions{SourcePath: path})
	if err != nil {
		return nil, nil, err
	}
	defer result.Content.Close()
	archive := tar.NewReader(result.Content)
	header, err := archive.Next()
	if err != nil {
		return nil, nil, err
	}
	if header.Typeflag != tar.TypeReg {
		return nil, header, nil
	}
	data, err := io.ReadAll(archive)
	return data, header, err
}

// contains reports whether an image has a file, without starting anything of it.
func (d *daemon) contains(ctx context.Context, ref, path string) (bool, error) {
	img, err := d.image(ctx, ref)
	if err != nil {
		return false, err
	}
	id, err := d.createOriginal(ctx, img, env.Spec{})
	if err != nil {
		return false, d.infrastructure(ctx, "look into "+ref, err)
	}
	_, err = d.cli.ContainerStatPath(ctx, id, client.ContainerStatPathOptions{Path: path})
	has := err == nil
	if errdefs.IsNotFound(err) {
		err = nil
	}
	return has, d.infrastructure(ctx, "look into "+ref, errors.Join(err, d.remove(ctx, id)))
}
