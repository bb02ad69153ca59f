package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"deepswe/env"
)

// Sandbox is a running container. Its verbs are the guest's.
type Sandbox struct {
	*env.GuestSandbox

	d      *daemon
	id     string
	image  image
	spec   env.Spec
	user   user
	stream *stream

	// leaving is closed when Close begins: from then on the end of the stream needs no reason.
	leaving chan struct{}
	leave   sync.Once
	// ended is closed when the daemon reports the end of the container's first process; exit and oom are set before.
	ended   chan struct{}
	endOnce sync.Once
	exit    string
	oom     bool

	original originals

	mu     sync.Mutex
	closed bool
}

var _ env.Sandbox = (*Sandbox)(nil)

// ID is the container's.
func (s *Sandbox) ID() string { return s.id }

// Close removes the container, and waits until it is gone.
func (s *Sandbox) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.leave.Do(func() { close(s.leaving) })
	// The container is removed before the guest is hung up on, which would end it at the same time.
	err := errors.Join(s.d.remove(ctx, s.id), s.original.close(ctx))
	s.d.unregister(s)
	s.closed = err == nil
	return errors.Join(err, s.GuestSandbox.Close(ctx))
}

// gone explains why the stream to the guest ended.
func (s *Sandbox) gone(err error) error {
	if _, up := s.d.known(); !up {
		return fmt.Errorf("the docker daemon at %s went away", s.d.host)
	}
	// The daemon reports the end of a container a moment after the end of its stream.
	select {
	case <-s.leaving:
		return errors.New("the sandbox was closed")
	case <-s.ended:
	case <-time.After(300 * time.Millisecond):
		return fmt.Errorf("the connection to the container broke: %w", err)
	}
	why := "the container ended with exit code " + s.exit
	if s.oom {
		why = fmt.Sprintf("the container ran out of memory (limit %d MiB)", s.limits().Memory>>20)
	}
	if said := strings.TrimSpace(s.stream.stderr.String()); said != "" {
		why += ": " + said
	}
	return errors.New(why)
}

// end is called when the daemon reports that the container has ended.
func (s *Sandbox) end(exit string, oom bool) {
	s.endOnce.Do(func() {
		s.exit, s.oom = exit, oom
		close(s.ended)
	})
}

// claim gives a sandbox that was started ahead of time to the rollout of a spec. Labels cannot be changed any more, so
// the container is renamed.
func (s *Sandbox) claim(ctx context.Context, spec env.Spec) {
	s.spec.Rollout, s.spec.CopyIn = spec.Rollout, spec.CopyIn
	ctx, cancel := context.WithTimeout(ctx, s.d.p.waits.ping)
	defer cancel()
	_, err := s.d.cli.ContainerRename(ctx, s.id, client.ContainerRenameOptions{NewName: sandboxName(spec)})
	if err != nil {
		s.d.p.log.Warn("renaming a container", "error", err)
	}
}
