package docker

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"deepswe/env"
	"deepswe/env/fleet"
)

// original is a second container of a sandbox's image. It is never started, so nothing that runs in the sandbox can
// have changed it. It is created when the first file is read from it.
type original struct {
	mu sync.Mutex
	id string
}

// Original implements env.Origin. It returns the content of a file in the image, or the target of a symbolic link.
func (s *Sandbox) Original(ctx context.Context, name string) ([]byte, error) {
	if s.spec.CopyIn != "" {
		return nil, fmt.Errorf("original %s: %w: the repository was copied in from %s",
			name, env.ErrUnsupported, s.spec.CopyIn)
	}
	if !filepath.IsLocal(name) || strings.ContainsRune(name, 0) {
		return nil, fmt.Errorf("original %q: %w", name, fs.ErrInvalid)
	}
	ctx, cancel := s.d.whileUp(ctx)
	defer cancel()
	id, err := s.openOriginal(ctx)
	if err != nil {
		return nil, s.d.infrastructure(ctx, "original "+name, err)
	}
	data, header, err := s.d.images.readFrom(ctx, id, path.Join(s.spec.Dir, name))
	switch {
	case errdefs.IsNotFound(err), err != nil && strings.Contains(err.Error(), "not a directory"):
		return nil, fmt.Errorf("original %s: %w", name, fs.ErrNotExist)
	case err != nil:
		return nil, s.d.infrastructure(ctx, "original "+name, err)
	case header.Typeflag == tar.TypeSymlink:
		return []byte(header.Linkname), nil
	case header.Typeflag != tar.TypeReg:
		return nil, fmt.Errorf("original %s: not a file: %w", name, fs.ErrNotExist)
	}
	return data, nil
}

func (s *Sandbox) openOriginal(ctx context.Context) (id string, err error) {
	s.original.mu.Lock()
	defer s.original.mu.Unlock()
	if s.original.id == "" {
		s.original.id, err = s.d.images.createIdle(ctx, s.image, s.spec)
	}
	return s.original.id, err
}

func (s *Sandbox) closeOriginal(ctx context.Context) error {
	s.original.mu.Lock()
	defer s.original.mu.Unlock()
	if s.original.id == "" {
		return nil
	}
	err := s.d.remove(ctx, s.original.id)
	if err == nil {
		s.original.id = ""
	}
	return err
}

// createIdle creates a container of an image, and does not start it.
func (m *images) createIdle(ctx context.Context, img image, s env.Spec) (string, error) {
	return m.d.create(ctx, client.ContainerCreateOptions{
		Name: "deepswe-original-" + fleet.Nonce(),
		Config: &container.Config{
			Image: img.id, Entrypoint: []string{"never-started"}, Labels: m.d.p.labels(kindOriginal, s.Run, s.Rollout),
		},
		HostConfig: &container.HostConfig{NetworkMode: "none", LogConfig: container.LogConfig{Type: "none"}},
	})
}

// read reads one file of an image through a container that is never started. It returns nil for a missing
// file.
func (m *images) read(ctx context.Context, img image, path string) ([]byte, error) {
	var data []byte
	err := m.lookInto(ctx, img, func(id string) (err error) {
		data, _, err = m.readFrom(ctx, id, path)
		return err
	})
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	return data, err
}

// lookInto creates a container of an image without starting it, calls look with it, and removes it.
func (m *images) lookInto(ctx context.Context, img image, look func(id string) error) error {
	id, err := m.createIdle(ctx, img, env.Spec{})
	if err != nil {
		return err
	}
	err = look(id)
	if failed := m.d.remove(ctx, id); failed != nil {
		m.d.p.log.Warn("cannot remove a helper container", "error", failed)
	}
	return err
}

// readFrom returns a file's content and tar header, without following a symbolic link.
func (m *images) readFrom(ctx context.Context, id, path string) ([]byte, *tar.Header, error) {
	result, err := m.d.cli.CopyFromContainer(ctx, id, client.CopyFromContainerOptions{SourcePath: path})
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

// contains reports whether an image contains a file, without running the image.
func (m *images) contains(ctx context.Context, ref, path string) (bool, error) {
	img, err := m.get(ctx, ref)
	if err != nil {
		return false, err
	}
	err = m.lookInto(ctx, img, func(id string) error {
		_, err := m.d.cli.ContainerStatPath(ctx, id, client.ContainerStatPathOptions{Path: path})
		return err
	})
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	return err == nil, m.d.infrastructure(ctx, "look into "+ref, err)
}

// user is the user that commands run as. The guest looks up the user's home and name in the image.
type user struct{ uid, gid int }

// commandUser returns the user that a sandbox's commands run as: the image's user, if that is not root; otherwise
// user 1000, if the repository is copied in and can thus belong to any user; otherwise root without capabilities.
func (m *images) commandUser(ctx context.Context, img image, s env.Spec) (user, error) {
	if s.User != "" {
		img.user = s.User
	}
	if name, _, _ := strings.Cut(img.user, ":"); name == "" || name == "root" || name == "0" {
		if s.CopyIn != "" {
			return user{1000, 1000}, nil
		}
		return user{}, nil
	}
	m.mu.Lock()
	known, ok := m.users[img.id+" "+img.user]
	m.mu.Unlock()
	if ok {
		return known, nil
	}
	passwd, err := m.read(ctx, img, "/etc/passwd")
	if err != nil {
		return user{}, err
	}
	group, err := m.read(ctx, img, "/etc/group")
	if err != nil {
		return user{}, err
	}
	u, err := lookupUser(img.user, passwd, group)
	if err != nil {
		return user{}, fmt.Errorf("image %s: %w", img.ref, err)
	}
	m.mu.Lock()
	m.users[img.id+" "+img.user] = u
	m.mu.Unlock()
	return u, nil
}

// lookupUser resolves an image's User ("name" or "uid", optionally followed by ":group" or ":gid"), as starting a
// container does.
func lookupUser(spec string, passwd, group []byte) (user, error) {
	name, groupName, hasGroup := strings.Cut(spec, ":")
	u := user{uid: -1}
	if uid, err := strconv.Atoi(name); err == nil && uid >= 0 {
		u.uid = uid
	}
	for fields := range entries(passwd, 4) {
		uid, err := strconv.Atoi(fields[2])
		gid, gidErr := strconv.Atoi(fields[3])
		if err != nil || gidErr != nil || (fields[0] != name && uid != u.uid) {
			continue
		}
		u = user{uid, gid}
		break
	}
	if u.uid < 0 {
		return user{}, fmt.Errorf("its user %q is not in its /etc/passwd", name)
	}
	if !hasGroup {
		return u, nil
	}
	if gid, err := strconv.Atoi(groupName); err == nil && gid >= 0 {
		u.gid = gid
		return u, nil
	}
	for fields := range entries(group, 3) {
		if gid, err := strconv.Atoi(fields[2]); err == nil && fields[0] == groupName {
			u.gid = gid
			return u, nil
		}
	}
	return user{}, fmt.Errorf("its group %q is not in its /etc/group", groupName)
}

// entries yields the lines of a passwd or group file that have at least n fields.
func entries(file []byte, n int) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for line := range strings.Lines(string(file)) {
			if fields := strings.Split(strings.TrimSpace(line), ":"); len(fields) >= n && !yield(fields) {
				return
			}
		}
	}
}
