package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"deepswe/env"
	"deepswe/env/guest"
)

// original is a second pod of an image that no agent ever uses, for reading the image's original files. All
// sandboxes of the image share it, and it is removed when it has been idle for a while.
type original struct {
	mu      sync.Mutex
	sandbox *Sandbox // nil until needed
	used    time.Time
}

// How long an idle pod for original files is kept: originalKept, or originalSpared where another pod needs its place.
const (
	originalKept   = 10 * time.Minute
	originalSpared = 5 * time.Second
)

// Original implements env.Origin. It returns the content of a file in the image, or the target of a symbolic link. If
// the cluster has no room for another pod, the sandbox is closed to make room.
func (s *Sandbox) Original(ctx context.Context, name string) ([]byte, error) {
	spec := s.launch.spec
	if spec.CopyIn != "" {
		return nil, fmt.Errorf("original %s: %w: the repository was copied in from %s", name, env.ErrUnsupported, spec.CopyIn)
	}
	if !filepath.IsLocal(name) || strings.ContainsRune(name, 0) {
		return nil, fmt.Errorf("original %q: %w", name, fs.ErrInvalid)
	}
	o := s.c.originals.of(spec)
	o.mu.Lock()
	defer o.mu.Unlock()
	for again := false; ; again = true {
		if err := o.open(ctx, s); err != nil {
			return nil, fmt.Errorf("original %s: %w", name, err)
		}
		data, err := readOriginal(ctx, o.sandbox, path.Join(spec.Dir, name))
		if err == nil || again || ctx.Err() != nil || !errors.Is(err, guest.ErrClosed) {
			return data, err
		}
		// The pod has ended meanwhile. It will be started again when needed.
		_ = o.close(ctx)
	}
}

// originals holds the entries of a cluster for original files, by image.
type originals struct {
	mu  sync.Mutex
	all map[string]*original
}

// of returns the entry for the original files of a spec's image.
func (o *originals) of(s env.Spec) *original {
	s.Run, s.Rollout, s.Limits = "", "", env.Limits{}
	key, _ := json.Marshal(s) // strings and numbers can always be encoded
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all[string(key)] == nil {
		o.all[string(key)] = &original{}
	}
	return o.all[string(key)]
}

// open starts the pod for the original files of a sandbox's image if it does not run. The caller holds mu.
func (o *original) open(ctx context.Context, of *Sandbox) error {
	o.used = time.Now()
	if o.sandbox != nil {
		return nil
	}
	c, spec := of.c, of.launch.spec
	spec.Rollout = ""
	// If all kept a pod while they wait for another one, they would wait for ever.
	sandbox, err := c.start(ctx, kindOriginal, spec, rankOriginal, func() {
		if err := of.Close(ctx); err != nil {
			c.log.Debug("cannot close a sandbox to make room for its original", "pod", of.launch.name, "error", err)
		}
	})
	if err != nil {
		return err
	}
	if err := sandbox.copyAndPrepare(ctx); err != nil {
		return errors.Join(err, sandbox.Close(ctx))
	}
	o.sandbox, o.used = sandbox, time.Now()
	return nil
}

func (o *original) close(ctx context.Context) error {
	sandbox := o.sandbox
	o.sandbox = nil
	if sandbox == nil {
		return nil
	}
	return sandbox.Close(ctx)
}

// closeIdle removes the pods that have been idle for longer than kept.
func (o *originals) closeIdle(ctx context.Context, log *slog.Logger, kept time.Duration) {
	for _, one := range o.list() {
		if !one.mu.TryLock() {
			continue // in use
		}
		if time.Since(one.used) > kept {
			if err := one.close(ctx); err != nil {
				log.Warn("cannot remove a pod for original files", "error", err)
			}
		}
		one.mu.Unlock()
	}
}

// close removes all pods.
func (o *originals) close(ctx context.Context) error {
	var failures error
	for _, one := range o.list() {
		one.mu.Lock()
		failures = errors.Join(failures, one.close(ctx))
		one.mu.Unlock()
	}
	return failures
}

func (o *originals) list() []*original {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.all))
}

// readOriginal reads one file without following a symbolic link.
func readOriginal(ctx context.Context, s *Sandbox, at string) ([]byte, error) {
	const most = 4 << 30
	data, _, err := s.Read(ctx, at, env.ReadOptions{Limit: most, NoFollow: true})
	switch {
	case err == nil:
		return data, nil
	case errors.Is(err, guest.ErrNotRegular):
		listing, listErr := s.List(ctx, path.Dir(at), env.ListOptions{Hidden: true, Limit: 1_000_000})
		for _, entry := range listing.Entries {
			if entry.Path == at && entry.Kind == env.KindSymlink {
				return []byte(entry.Target), nil
			}
		}
		return nil, fmt.Errorf("original %s: not a file: %w", at, errors.Join(fs.ErrNotExist, listErr))
	case errors.Is(err, guest.ErrNotDirectory), errors.Is(err, guest.ErrIsDirectory):
		return nil, fmt.Errorf("original %s: %w", at, fs.ErrNotExist)
	}
	return nil, fmt.Errorf("original %w", err)
}
