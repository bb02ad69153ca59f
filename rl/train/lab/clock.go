package lab

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"time"
)

// clock is virtual time. Events happen in the order of their times, and those of the same time in the order in which
// they were requested, so that the same events always lead to the same figures.
type clock struct {
	now    time.Duration
	asked  int
	coming moments
}

type moment struct {
	at    time.Duration
	order int
	do    func()
}

// after calls do when some time has passed.
func (c *clock) after(d time.Duration, do func()) {
	c.asked++
	heap.Push(&c.coming, moment{c.now + max(0, d), c.asked, do})
}

// until lets time pass until done reports true, and returns how long that took.
func (c *clock) until(ctx context.Context, done func() bool) (time.Duration, error) {
	start := c.now
	for n := 1; !done(); n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if len(c.coming) == 0 {
			return 0, errors.New("deadlock: no event is left")
		}
		next := heap.Pop(&c.coming).(moment)
		if c.now = next.at; c.now > horizon {
			return 0, fmt.Errorf("the run takes more than %.0f years", horizon.Hours()/24/365)
		}
		next.do()
	}
	return c.now - start, nil
}

// horizon is when simulated time ends: a single latency, at most config.MaxLatency, fits in a Duration after it.
const horizon = time.Duration(1) << 62

// moments is a heap of coming events, the next first.
type moments []moment

func (m moments) Len() int      { return len(m) }
func (m moments) Swap(i, j int) { m[i], m[j] = m[j], m[i] }
func (m moments) Less(i, j int) bool {
	return m[i].at < m[j].at || m[i].at == m[j].at && m[i].order < m[j].order
}
func (m *moments) Push(v any) { *m = append(*m, v.(moment)) }
func (m *moments) Pop() any {
	last := len(*m) - 1
	v := (*m)[last]
	(*m)[last] = moment{} // lets what it refers to be garbage-collected
	*m = (*m)[:last]
	return v
}

// gate lets a limited number in at once, in the order in which they came, and knows how many were in it over time. A
// limit of 0 means no limit.
type gate struct {
	clock   *clock
	limit   int
	in      int
	peak    int
	waiting []func()
	// sum is the total time that all have been in the gate until since, in seconds. idle is how long at least one place
	// was free.
	sum         float64
	idle, since time.Duration
}

// enter calls do as soon as there is room. The place is taken until leave is called.
func (g *gate) enter(do func()) {
	if g.limit > 0 && g.in >= g.limit {
		g.waiting = append(g.waiting, do)
		return
	}
	g.change(1)
	do()
}

func (g *gate) leave() {
	g.change(-1)
	if len(g.waiting) > 0 {
		next := g.waiting[0]
		g.waiting = g.waiting[1:]
		g.change(1)
		next()
	}
}

func (g *gate) change(n int) {
	passed := g.clock.now - g.since
	g.sum += float64(g.in) * passed.Seconds()
	if g.in < g.limit {
		g.idle += passed
	}
	g.in, g.since = g.in+n, g.clock.now
	g.peak = max(g.peak, g.in)
}

// Use says how many of something were in use at once.
type Use struct {
	Mean float64
	Peak int
}

// use returns the use of the gate until now.
func (g *gate) use() Use {
	g.change(0)
	return Use{Mean: g.sum / g.clock.now.Seconds(), Peak: g.peak}
}
