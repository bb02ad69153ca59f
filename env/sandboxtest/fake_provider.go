package sandboxtest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"deepswe/env"
)

// FakeProvider hands out fakes, with the files of the Spec's CopyIn in them. It remembers what it was asked for.
type FakeProvider struct {
	// OnStart, when set, gets every fake before it is handed out; its error fails the start.
	OnStart func(s env.Spec, f *Fake) error
	// Caps is what Capabilities answers.
	Caps env.Capabilities

	mu      sync.Mutex
	started []env.Spec
	fakes   []*Fake
}

var _ env.Provider = (*FakeProvider)(nil)

// Name is "fake".
func (p *FakeProvider) Name() string { return "fake" }

// Capabilities returns Caps.
func (p *FakeProvider) Capabilities() env.Capabilities { return p.Caps }

// Start returns a new fake.
func (p *FakeProvider) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start a fake sandbox: %w", err)
	}
	f := NewFake(nil)
	if s.Dir != "" {
		f.dir = filepath.Clean(s.Dir)
	}
	if s.CopyIn != "" {
		if err := f.copyIn(s.CopyIn); err != nil {
			return nil, fmt.Errorf("start a fake sandbox: %w", err)
		}
	}
	if p.OnStart != nil {
		if err := p.OnStart(s, f); err != nil {
			return nil, fmt.Errorf("start a fake sandbox: %w", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started, p.fakes = append(p.started, s), append(p.fakes, f)
	return f, nil
}

func (f *Fake) copyIn(dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(p)
			f.Put(rel, FakeFile{Target: target})
			return err
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		data, err := os.ReadFile(p)
		f.Put(rel, FakeFile{Data: data, Mode: info.Mode().Perm()})
		return err
	})
}

// Started are the Specs so far, in order.
func (p *FakeProvider) Started() []env.Spec {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]env.Spec(nil), p.started...)
}

// Open counts the fakes that nobody has closed yet.
func (p *FakeProvider) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	open := 0
	for _, f := range p.fakes {
		f.mu.Lock()
		if !f.closed {
			open++
		}
		f.mu.Unlock()
	}
	return open
}

// Prefetch does nothing.
func (p *FakeProvider) Prefetch(context.Context, env.Spec) error { return nil }

// Reap finds nothing: a fake ends with its process.
func (p *FakeProvider) Reap(context.Context, env.ReapOptions) ([]env.Leftover, error) {
	return nil, nil
}

// Close does nothing.
func (p *FakeProvider) Close() error { return nil }
