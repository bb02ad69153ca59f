package tinker

import (
	"context"
	"errors"
	"sync"
)

// errClosed is the error of turns after the trainer was closed.
var errClosed = errors.New("the trainer is closed")

// gate prevents sampling between an update and its publication. Servers would sample an older session from weights that
// are just changing, or load it into the trainer. A new gate is shut.
type gate struct {
	mu     sync.Mutex
	open   chan struct{} // closed while turns may begin
	idle   chan struct{} // closed when the last turn has ended after shut; nil while the gate is open
	inside int
	closed bool
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

// tryEnter begins a turn if the gate is open.
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

// enter waits until the gate is open, and begins a turn.
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

// shut closes the gate, and waits until all turns have ended.
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

// release opens the gate.
func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

// close lets all present and future calls of enter fail.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.release()
}
