package tinker

import (
	"context"
	"errors"
	"math"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// errClosed is the error of a turn that is asked for after Close.
var errClosed = errors.New("the trainer is closed")

// gate prevents sampling between an update and its publication. Servers would sample an older session from weights that
// are just changing, or load it into the trainer. A new gate is shut. Turns may begin and end at any time; the other
// calls are made one at a time.
type gate struct {
	// turns are places for as many turns as there may ever be. A shut gate holds them all.
	turns  *semaphore.Weighted
	isShut bool
	closed atomic.Bool
}

const allTurns = math.MaxInt64

func newGate() *gate {
	g := &gate{turns: semaphore.NewWeighted(allTurns)}
	g.isShut = g.turns.TryAcquire(allTurns)
	return g
}

// tryEnter begins a turn if the gate is open.
func (g *gate) tryEnter() bool { return !g.closed.Load() && g.turns.TryAcquire(1) }

// enter waits until the gate is open, and begins a turn.
func (g *gate) enter(ctx context.Context) error {
	err := g.turns.Acquire(ctx, 1)
	if err == nil && g.closed.Load() {
		g.leave()
		return errClosed
	}
	return err
}

// leave ends a turn.
func (g *gate) leave() { g.turns.Release(1) }

// shut closes the gate, and waits until all turns have ended.
func (g *gate) shut(ctx context.Context) (err error) {
	if !g.isShut {
		err = g.turns.Acquire(ctx, allTurns)
		g.isShut = err == nil
	}
	return err
}

// release opens the gate.
func (g *gate) release() {
	if g.isShut {
		g.isShut = false
		g.turns.Release(allTurns)
	}
}

// close lets all present and future calls of enter fail.
func (g *gate) close() {
	g.closed.Store(true)
	g.release()
}
