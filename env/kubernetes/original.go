package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
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
	o := s.c.originalOf(spec)
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

// originalOf returns the entry for the original files of a spec's image.
func (c *cluster) originalOf(s env.Spec) *original {
	s.Run, s.Rollout, s.Limits = "", "", env.Limits{}
	key, _ := json.Marshal(s) // strings and numbers can always be encoded
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.originals[string(key)]
	if o == nil {
		o = &original{}
		c.originals[string(key)] = o
	}
	return o
}

// open starts the pod for the original files of a sandbox's image if it does not run. The caller holds mu.
func (o *original) open(ctx context.Context, of *Sandbox) error {
	o.used = time.Now()
	if o.sandbox != nil {
		return nil
	}
	c, spec := of.c, of.launch.spec
	spec.Rollout = ""
	// Who keeps a pod while waiting for another one waits for ever if all do.
	sandbox, err := c.start(ctx, kindOriginal, spec, rankOriginal, func() {
		if err := of.Close(ctx); err != nil {
			c.log.Debug("giving the place of a sandbox to its original", "pod", of.launch.name, "error", err)
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

// closeIdleOriginals removes the pods for original files that have been idle for longer than kept.
func (c *cluster) closeIdleOriginals(ctx context.Context, kept time.Duration) {
	for _, o := range c.allOriginals() {
		if !o.mu.TryLock() {
			continue // in use
		}
		if time.Since(o.used) > kept {
			if err := o.close(ctx); err != nil {
				c.log.Warn("removing a pod for original files", "error", err)
			}
		}
		o.mu.Unlock()
	}
}

func (c *cluster) closeOriginals(ctx context.Context) error {
	var failures error
	for _, o := range c.allOriginals() {
		o.mu.Lock()
		failures = errors.Join(failures, o.close(ctx))
		o.mu.Unlock()
	}
	return failures
}

func (c *cluster) allOriginals() []*original {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*original, 0, len(c.originals))
	for _, o := range c.originals {
		all = append(all, o)
	}
	return all
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
