package tinker

import (
	"context"
	"errors"
	"sync"
)

// errClosed is what a turn gets whose trainer was closed.
var errClosed = errors.New("the trainer is closed")

// gate lets turns through while the weights that sample stay as they are. Servers sample an older session from weights
// that are just changing, or put it back into the trainer, so nothing is sampled between an update and its publication.
// It begins shut.
type gate struct {
	mu     sync.Mutex
	open   chan struct{} // closed while turns may begin
	idle   chan struct{} // closed when the last turn has ended after shut; nil while the gate is open
	inside int
	closed bool
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

// tryEnter begins a turn if that need not wait.
func (g *gate) tryEnter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		return false
	}
	if g.closed {
		return false
	}
	g.inside++
	return true
}

// enter waits until turns may begin.
func (g *gate) enter(ctx context.Context) error {
	for {
		g.mu.Lock()
		if g.closed {
			g.mu.Unlock()
			return errClosed
		}
		open := g.open
		select {
		case <-open:
			g.inside++
			g.mu.Unlock()
			return nil
		default:
		}
		g.mu.Unlock()
		select {
		case <-open:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leave ends a turn.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// shut lets no further turn begin, and waits for those that have.
func (g *gate) shut(ctx context.Context) error {
	g.mu.Lock()
	select {
	case <-g.open:
		g.open = make(chan struct{})
	default:
	}
	if g.inside == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// release lets turns begin.
func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

// close turns away whoever waits and whoever comes.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.release()
}
