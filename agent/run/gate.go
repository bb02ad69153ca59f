package run

import (
	"context"
	"sync/atomic"
	"time"

	"deepswe/agent"
)

// Limits bound what happens at once. Zero is no bound.
type Limits struct {
	// Models are calls of the model, Sandboxes those of agents, Gradings the sandboxes in which patches are graded. A
	// rollout may hold its sandbox while it waits for a model or for grading, never the other way round.
	Models    int
	Sandboxes int
	Gradings  int
}

// Gates are the gates of a run, one for each kind of thing that is scarce.
type Gates struct {
	Model   *Gate
	Sandbox *Gate
	Grading *Gate
}

// NewGates opens gates for the limits.
func NewGates(l Limits) Gates {
	return Gates{Model: NewGate(l.Models), Sandbox: NewGate(l.Sandboxes), Grading: NewGate(l.Gradings)}
}

// Gate lets a bounded number in at a time, first come, first served.
type Gate struct {
	places  chan struct{}
	inside  atomic.Int64
	waiting atomic.Int64
}

// NewGate makes a gate for n at a time; without bound when n is not positive.
func NewGate(n int) *Gate {
	g := &Gate{}
	if n > 0 {
		g.places = make(chan struct{}, n)
	}
	return g
}

// Enter waits for a place. The caller calls leave once, when it is done. The time spent waiting is charged to the
// rollout whose context it is. The error is the context's. A nil Gate has no bound.
func (g *Gate) Enter(ctx context.Context) (leave func(), err error) {
	if g == nil {
		g = &Gate{}
	}
	if g.places == nil {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		g.inside.Add(1)
		return func() { g.inside.Add(-1) }, nil
	}
	start := time.Now()
	g.waiting.Add(1)
	defer g.waiting.Add(-1)
	select {
	case g.places <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if w, ok := ctx.Value(waitKey{}).(*atomic.Int64); ok {
		w.Add(int64(time.Since(start)))
	}
	g.inside.Add(1)
	return func() {
		g.inside.Add(-1)
		<-g.places
	}, nil
}

// Inside and Waiting count who is in and who wants in, for people to watch.
func (g *Gate) Inside() int  { return int(g.inside.Load()) }
func (g *Gate) Waiting() int { return int(g.waiting.Load()) }

// waitKey holds the *atomic.Int64 in a rollout's context that counts the nanoseconds spent at gates.
type waitKey struct{}

// Guard returns the model behind the gate.
func (g *Gate) Guard(m agent.Model) agent.Model { return guarded{gate: g, model: m} }

type guarded struct {
	gate  *Gate
	model agent.Model
}

func (g guarded) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	leave, err := g.gate.Enter(ctx)
	if err != nil {
		return agent.Reply{}, err
	}
	defer leave()
	return g.model.Complete(ctx, r)
}
