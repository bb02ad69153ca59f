// Package images lets tests start sandboxes from an image without a container: the image is a directory of the host,
// and the program in a sandbox is the test binary itself.
package images

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"deepswe/env"
	"deepswe/env/guest"
	"deepswe/env/guest/inside"
	"deepswe/env/local"
	"deepswe/env/testkit"
)

// Main is the TestMain of a package whose tests use New. run are the tests, m.Run or another.
func Main(run func() int) {
	if len(os.Args) > 1 && os.Args[1] == guest.Arg {
		os.Exit(inside.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(run())
}

// Provider starts sandboxes on the host. Each has a copy of Dir, whatever image it asks for.
type Provider struct {
	env.Provider
	Dir string

	starts atomic.Int32
}

var _ env.Provider = (*Provider)(nil)

// New returns a provider with an image that contains the files, by path. It is closed at the end of the test, which is
// skipped if this machine cannot start sandboxes.
func New(t testing.TB, files map[string]string) *Provider {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		testkit.WriteFile(t, filepath.Join(dir, name), text)
	}
	p, err := Open(dir)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Open is New for an existing directory, in a process without a test.
func Open(dir string) (*Provider, error) {
	host, err := local.NewHost(local.Options{})
	if err != nil {
		return nil, fmt.Errorf("open the host: %w", err)
	}
	return &Provider{Provider: host, Dir: dir}, nil
}

// Start starts a sandbox with a copy of the directory.
func (p *Provider) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	p.starts.Add(1)
	s.Image, s.CopyIn = "", p.Dir
	sb, err := p.Provider.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	return original{sb, p.Dir}, nil
}

// Starts returns the number of calls of Start.
func (p *Provider) Starts() int { return int(p.starts.Load()) }

// original is a sandbox whose originals are the files of the image.
type original struct {
	env.Sandbox
	dir string
}

func (o original) Original(_ context.Context, path string) ([]byte, error) {
	return os.ReadFile(filepath.Join(o.dir, path))
}
