package llm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"deepswe/env"
)

const (
	// still is how long a server may work on nothing while a whole answer is awaited: as long as a stream may be silent.
	still = idle
	// lookEvery is the time between two looks at a server's progress, each of which takes lookTimeout at most.
	lookEvery   = time.Minute
	lookTimeout = 30 * time.Second
)

// engineCounts are metrics of vLLM that change as long as its engine works.
var engineCounts = []string{"vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:kv_cache_usage_perc"}

// EngineCounts returns the counters of a vLLM's work in its page of metrics, as a text to compare; empty if it has
// none.
func EngineCounts(page string) string {
	var found strings.Builder
	for line := range strings.Lines(page) {
		name, _, _ := strings.Cut(line, "{")
		if slices.Contains(engineCounts, name) {
			found.WriteString(line)
		}
	}
	return found.String()
}

// progress is what a server has last shown of its work. Requests that wait at the same time share it.
type progress struct {
	asking sync.Mutex // held by whoever asks
	seen   atomic.Pointer[sighting]
}

// sighting is the server's last answer about its work.
type sighting struct {
	asked   time.Time
	counted string
	moved   time.Time // when the counters were seen to change, or the server answered without any
}

func (p *progress) last() sighting {
	if seen := p.seen.Load(); seen != nil {
		return *seen
	}
	return sighting{}
}

// watchRequest is like watch. If the limit is that of whole answers, the request also ends when the server makes no
// progress. The caller must call stop.
func (c *Client) watchRequest(ctx context.Context, limit time.Duration) (_ context.Context, w *watchdog, stop func()) {
	ctx, w = watch(ctx, limit)
	if limit < wholeAnswer {
		return ctx, w, w.stop
	}
	var looking sync.WaitGroup
	looking.Go(func() {
		for begun := time.Now(); env.Sleep(ctx, lookEvery) == nil; {
			moved := c.look(ctx)
			if ctx.Err() == nil && min(time.Since(begun), time.Since(moved)) > still {
				w.end(fmt.Errorf("%w: the server works on nothing for %s", errSilent, still))
			}
		}
	})
	return ctx, w, func() {
		w.stop()
		looking.Wait()
	}
}

// look returns when the server last showed progress: it answered with other counters than before, or has none.
func (c *Client) look(ctx context.Context) (moved time.Time) {
	p := &c.progress
	if !p.asking.TryLock() {
		return p.last().moved
	}
	defer p.asking.Unlock()
	last := p.last()
	if time.Since(last.asked) < lookEvery/2 {
		return last.moved
	}
	counted, answered := c.counts(ctx)
	if last.asked = time.Now(); answered && (counted == "" || counted != last.counted) {
		last.counted, last.moved = counted, last.asked
	}
	p.seen.Store(&last)
	return last.moved
}

// counts returns the server's counters, and whether it answered at all.
func (c *Client) counts(ctx context.Context) (counted string, answered bool) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	x := &exchange{http: c.http}
	err := c.do(ctx, x, c.root()+"/metrics")
	if err != nil {
		return "", x.status != 0
	}
	return EngineCounts(string(x.raw)), true
}
