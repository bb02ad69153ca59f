package env

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"deepswe/env/guest"
)

// GuestSandbox is a Sandbox behind a guest: what every provider hands out. It marks the loss of the guest as
// ErrInfrastructure, so that the layers above need not know about guests.
type GuestSandbox struct {
	client *guest.Client
	remove func(ctx context.Context) error

	once   sync.Once
	closed chan struct{}
	err    error
}

var _ Sandbox = (*GuestSandbox)(nil)

// NewGuestSandbox returns the sandbox that the client talks to. Close hangs up and then calls remove, once, with a
// context that is not done yet; remove has its own deadline and may be nil.
func NewGuestSandbox(client *guest.Client, remove func(ctx context.Context) error) *GuestSandbox {
	return &GuestSandbox{client: client, remove: remove, closed: make(chan struct{})}
}

// lost adds ErrInfrastructure to the errors that say that the guest is gone.
func lost(err error) error {
	if errors.Is(err, guest.ErrClosed) {
		return fmt.Errorf("%w: %w", ErrInfrastructure, err)
	}
	return err
}

// Guest is the client itself, for what a provider does with its own sandboxes.
func (s *GuestSandbox) Guest() *guest.Client { return s.client }

// Dir is the absolute path of the repository inside the sandbox.
func (s *GuestSandbox) Dir() string { return s.client.Dir() }

// Run executes a command line in a fresh shell.
func (s *GuestSandbox) Run(ctx context.Context, c Command) (Result, error) {
	r, err := s.client.Run(ctx, c)
	return r, lost(err)
}

// Read returns a regular file's bytes and its description.
func (s *GuestSandbox) Read(ctx context.Context, path string, o ReadOptions) ([]byte, FileInfo, error) {
	data, info, err := s.client.Read(ctx, path, o)
	return data, info, lost(err)
}

// Write replaces or creates a regular file.
func (s *GuestSandbox) Write(ctx context.Context, path string, data []byte, o WriteOptions) (FileInfo, error) {
	info, err := s.client.Write(ctx, path, data, o)
	return info, lost(err)
}

// List returns a directory's entries.
func (s *GuestSandbox) List(ctx context.Context, path string, o ListOptions) (Listing, error) {
	l, err := s.client.List(ctx, path, o)
	return l, lost(err)
}

// Search returns the lines that contain a text.
func (s *GuestSandbox) Search(ctx context.Context, q Query) (Matches, error) {
	m, err := s.client.Search(ctx, q)
	return m, lost(err)
}

// Tree describes every file below root.
func (s *GuestSandbox) Tree(ctx context.Context, root string, o TreeOptions) ([]FileInfo, error) {
	files, err := s.client.Tree(ctx, root, o)
	return files, lost(err)
}

// Unpack extracts a tar stream below dir.
func (s *GuestSandbox) Unpack(ctx context.Context, dir string, tar io.Reader) error {
	return lost(s.client.Unpack(ctx, dir, tar))
}

// Ping answers when the guest is alive.
func (s *GuestSandbox) Ping(ctx context.Context) error { return lost(s.client.Ping(ctx)) }

// Original answers ErrUnsupported: only a provider of images can do better.
func (s *GuestSandbox) Original(_ context.Context, path string) ([]byte, error) {
	return nil, fmt.Errorf("original %s: %w: it has no image to read it from", path, ErrUnsupported)
}

// Close hangs up and removes the sandbox. Every call, also one that comes while another is at it, returns when that is
// done, with the same error.
func (s *GuestSandbox) Close(ctx context.Context) error {
	s.once.Do(func() {
		defer close(s.closed)
		s.err = s.client.Close()
		if s.remove != nil {
			s.err = errors.Join(s.err, s.remove(context.WithoutCancel(ctx)))
		}
	})
	<-s.closed
	return s.err
}
