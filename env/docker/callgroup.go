package docker

import (
	"context"
	"sync"
	"time"
)

// patience is how long a caller whose context has ended waits for its work to be undone. That takes longer only on
// a daemon that does not respond.
const patience = 10 * time.Second

// callGroup runs one call per key at a time and shares its result among all callers. A call continues while any
// caller waits for it. When the last one gives up, the call is cancelled, and that caller waits for it to end.
type callGroup[T any] struct {
	mu  sync.Mutex
	all map[string]*call[T]
}

type call[T any] struct {
	waiting int
	cancel  context.CancelFunc
	done    chan struct{}
	value   T
	err     error
}

// do joins the call for a key, or starts it. work runs on a goroutine counted by counts, under a context that ends
// with life but has no single caller's deadline.
func (g *callGroup[T]) do(
	ctx, life context.Context, counts *sync.WaitGroup, key string, work func(context.Context) (T, error),
) (T, error) {
	g.mu.Lock()
	if g.all == nil {
		g.all = map[string]*call[T]{}
	}
	c := g.all[key]
	if c == nil {
		c = &call[T]{done: make(chan struct{})}
		var during context.Context
		during, c.cancel = context.WithCancel(life)
		g.all[key] = c
		counts.Go(func() {
			defer c.cancel()
			c.value, c.err = work(during)
			g.mu.Lock()
			g.forget(key, c)
			g.mu.Unlock()
			close(c.done)
		})
	}
	c.waiting++
	g.mu.Unlock()

	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
	}
	g.mu.Lock()
	c.waiting--
	last := c.waiting == 0
	if last {
		// New callers must not join work that is being cancelled.
		c.cancel()
		g.forget(key, c)
	}
	g.mu.Unlock()
	if last {
		select {
		case <-c.done:
		case <-time.After(patience):
		}
	}
	var none T
	return none, context.Cause(ctx)
}

func (g *callGroup[T]) forget(key string, c *call[T]) {
	if g.all[key] == c {
		delete(g.all, key)
	}
}
