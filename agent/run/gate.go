package run

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"deepswe/agent"
)

// Gates limit what a run does at once. A nil gate is no limit.
type Gates struct {
	// Model limits calls of the model, Sandbox the sandboxes of agents, and Grading those for grading. A rollout
	// may keep its sandbox while it waits for a model or for grading, never the other way round.
	Model   *Gate
	Sandbox *Gate
	Grading *Gate
}

// Gate admits a limited number at a time, first come, first served.
type Gate struct {
	limit func() int

	mu     sync.Mutex
	inside int
	queue  []chan struct{} // closed on admission, the oldest first
}

// NewGate returns a gate for n at a time, or nil if n is not positive.
func NewGate(n int) *Gate {
	if n <= 0 {
		return nil
	}
	return NewVaryingGate(func() int { return n })
}

// NewVaryingGate returns a gate whose limit may change. It is asked for whenever somebody comes or leaves; below 1, it
// counts as 1. Nobody has to leave if it falls.
func NewVaryingGate(limit func() int) *Gate { return &Gate{limit: limit} }

// Enter waits to be admitted. The caller has to call leave once. The waiting time is added to Times.Queue of the
// rollout whose context ctx is. The error is the context's.
func (g *Gate) Enter(ctx context.Context) (leave func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if g == nil {
		return func() {}, nil
	}
	start := time.Now()
	admitted := make(chan struct{})
	g.mu.Lock()
	g.queue = append(g.queue, admitted)
	g.admit()
	g.mu.Unlock()
	select {
	case <-admitted:
	case <-ctx.Done():
		g.giveUp(admitted)
		return nil, context.Cause(ctx)
	}
	if w, ok := ctx.Value(waitKey{}).(*waits); ok {
		w.all.Add(int64(time.Since(start)))
	}
	return g.leave, nil
}

// admit admits those who have waited longest, as far as there is room. The caller holds g.mu.
func (g *Gate) admit() {
	for len(g.queue) > 0 && g.inside < max(1, g.limit()) {
		close(g.queue[0])
		g.queue = g.queue[1:]
		g.inside++
	}
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.admit()
}

// giveUp takes somebody out of the queue, or out of the gate if it has just admitted them.
func (g *Gate) giveUp(admitted chan struct{}) {
	g.mu.Lock()
	i := slices.Index(g.queue, admitted)
	if i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
	}
	g.mu.Unlock()
	if i < 0 {
		g.leave()
	}
}

// waitKey is the key of the *waits in a rollout's context.
type waitKey struct{}

// waits are the nanoseconds that a rollout waited at gates, and those of them that it waited to call the model.
type waits struct{ all, model atomic.Int64 }

// settle completes the times of a rollout that took the given time in this process. The Runner's times include the
// waits for the model, and what a resumed rollout did earlier.
func (t *Times) settle(w *waits, took time.Duration) {
	t.Queue = time.Duration(w.all.Load()).Seconds()
	t.Model = max(0, t.Model-time.Duration(w.model.Load()).Seconds())
	t.Total = max(took.Seconds(), t.Queue+t.Model+t.Environment+t.Reward)
}

// Guard returns a model whose calls pass through the gate.
func (g *Gate) Guard(m agent.Model) agent.Model { return guarded{gate: g, model: m} }

type guarded struct {
	gate  *Gate
	model agent.Model
}

func (g guarded) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	start := time.Now()
	leave, err := g.gate.Enter(ctx)
	if w, ok := ctx.Value(waitKey{}).(*waits); ok && g.gate != nil {
		w.model.Add(int64(time.Since(start)))
	}
	if err != nil {
		return agent.Reply{}, err
	}
	defer leave()
	return g.model.Complete(ctx, r)
}
