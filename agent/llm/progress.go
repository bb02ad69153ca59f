package llm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	probing sync.Mutex // held by whoever asks

	mu      sync.Mutex
	asked   time.Time
	counted string
	moved   time.Time
}

// watchRequest is watch with a limit. A request with that for whole answers ends as well if the server works on
// nothing. The caller must call stop.
func (c *Client) watchRequest(ctx context.Context, limit time.Duration) (_ context.Context, w *watchdog, stop func()) {
	ctx, w = watch(ctx, limit)
	if limit < wholeAnswer {
		return ctx, w, w.stop
	}
	var looking sync.WaitGroup
	looking.Go(func() {
		for begun := time.Now(); env.Sleep(ctx, lookEvery) == nil; {
			if moved := c.look(ctx); ctx.Err() == nil && time.Since(later(begun, moved)) > still {
				w.end(fmt.Errorf("%w: the server works on nothing for %s", errSilent, still))
			}
		}
	})
	return ctx, w, func() {
		w.stop()
		looking.Wait()
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// look returns when the server last showed progress: it answered with other counters than before, or has none.
func (c *Client) look(ctx context.Context) (moved time.Time) {
	p := &c.progress
	if p.probing.TryLock() {
		defer p.probing.Unlock()
		p.mu.Lock()
		due := time.Since(p.asked) >= lookEvery/2
		p.mu.Unlock()
		if due {
			counted, answered := c.counts(ctx)
			p.mu.Lock()
			if p.asked = time.Now(); answered && (counted == "" || counted != p.counted) {
				p.counted, p.moved = counted, p.asked
			}
			p.mu.Unlock()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.moved
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
