package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"deepswe/env"
)

// rank is the order of starts in a cluster that has no room for all. Finished work waits for its grading and for a
// pod with its original files; no work waits for an agent's sandbox yet, and nobody for one that is started ahead of
// time.
type rank int

const (
	rankAhead rank = iota
	rankAgent
	rankGrading
	rankOriginal
	ranks
)

func rankOf(s env.Spec) rank {
	if s.Grading {
		return rankGrading
	}
	return rankAgent
}

// queue counts the starts that wait for room.
type queue [ranks]atomic.Int64

// letsPass reports whether a start has to wait for others that go first.
func (q *queue) letsPass(r rank) bool {
	for r++; r < ranks; r++ {
		if q[r].Load() > 0 {
			return true
		}
	}
	return false
}

func (q *queue) len() (n int) {
	for r := range q {
		n += int(q[r].Load())
	}
	return n
}

// turn is a start's place in the queue.
type turn struct {
	c    *cluster
	rank rank
	// giveWay, unless nil, is called once when there is no room, and makes some.
	giveWay func()

	mu    sync.Mutex
	since time.Time // when there was no room for it first; zero if there was
	over  bool
	why   error // why there is no room
}

// errLetPass is why a sandbox is not created yet.
var errLetPass = errors.New("gradings and original files go first")

// lack queues a start for which there is no room, and removes what need not run. It tells the user why it waits.
func (t *turn) lack(ctx context.Context, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	if t.why == nil || !errors.Is(why, errLetPass) {
		t.why = why
	}
	if t.since.IsZero() {
		t.since = time.Now()
		t.c.queue[t.rank].Add(1)
		t.c.tellRoom()
		if t.giveWay != nil {
			t.giveWay()
		}
	}
	if t.rank != rankAhead {
		t.c.originals.closeIdle(ctx, t.c.log, originalSpared)
		if t.c.shed != nil {
			t.c.shed(ctx)
		}
	}
	if time.Since(t.since) > roomQuiet {
		t.c.full.Do(func() {
			t.c.log.Warn("the cluster has no room for all sandboxes at once: the others wait, which fewer --workers would avoid",
				"cluster", t.c.where(), "running", t.c.watch.placed(), "waiting", t.c.queue.len(), "why", t.why)
		})
	}
}

// end takes the start out of the queue. It waits for giveWay.
func (t *turn) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if !t.since.IsZero() {
		t.c.queue[t.rank].Add(-1)
		t.c.tellRoom()
	}
}

// How long a start may wait for room, counted from its first failure or, if that is later, from when the last pod of
// ours that had a node was gone: turnWait while pods of ours are on nodes, and roomWait otherwise. roomQuiet is how
// long it waits before the user is told.
const (
	roomWait  = 10 * time.Minute
	turnWait  = 2 * time.Hour
	roomQuiet = 2 * time.Second
)

// late returns an infrastructure failure if the start has waited for too long.
func (t *turn) late() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since.IsZero() {
		return nil
	}
	wait, since := t.c.roomWait, t.since
	if t.c.watch.placed() > 0 {
		wait = turnWait
	}
	t.c.watch.mu.Lock()
	if ended := t.c.watch.ended; ended.After(since) {
		since = ended
	}
	t.c.watch.mu.Unlock()
	if time.Since(since) < wait {
		return nil
	}
	return fmt.Errorf("%w: no room for the sandbox within %v: %w", env.ErrInfrastructure, wait, t.why)
}

// tellRoom shows how many sandboxes wait for room.
func (c *cluster) tellRoom() {
	if c.options.Progress == nil {
		return
	}
	waiting := c.queue.len()
	c.options.Progress(env.Progress{
		Action: env.Waiting, Host: c.where(), Layers: waiting, Ready: c.watch.placed(), Done: waiting == 0,
	})
}
