package llm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"deepswe/agent"
	"deepswe/env"
)

// The wait before the first retry is up to firstPause, and doubles up to longestPause: nine attempts span a minute or
// so, in which a server restarts or a rate limit passes.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 30 * time.Second
	// longestAsked caps the wait that a server asks for. A small number of retries caps it further, because a caller
	// that allows few can ask another server.
	longestAsked = 2 * time.Minute
)

// patience is how long a failed request is repeated. waiting is called before a wait for a server that is gone, and
// the function that it returns after the wait.
type patience struct {
	retries int
	outage  time.Duration
	waiting func() (over func())
}

func (c *Client) patience(r agent.Request) patience {
	return patience{retries: c.o.MaxRetries, outage: c.o.Patience, waiting: r.Waiting}
}

// goneAfter is how many attempts it takes to see that a server is gone.
const goneAfter = 2

// retry sends until it succeeds, the failure is permanent, or there were enough attempts. Those that found no server do
// not count as long as there is patience to wait for it.
func (c *Client) retry(ctx context.Context, p patience, send func(context.Context, *dialect) *Error) error {
	silences, retries := 0, p.retries
	var waited time.Duration
	for attempt := 1; ; attempt++ {
		sent := c.dialect.Load()
		failed := send(ctx, sent)
		if failed == nil {
			c.found(ctx)
			return nil
		}
		if ctx.Err() != nil { // it failed because the caller gave up
			return ended(ctx)
		}
		failed.Attempts = attempt
		if c.learn(sent, failed) {
			attempt--
			continue
		}
		if failed.gone && attempt >= min(goneAfter, retries+1) && waited < p.outage {
			start := time.Now()
			if err := c.wait(ctx, p, failed); err != nil {
				return err
			}
			waited += time.Since(start)
			attempt = 0
			continue
		}
		if failed.repeat == twice {
			silences++
		}
		if failed.repeat == never || attempt > retries || silences > 2 {
			return failed
		}
		wait := pause(attempt, min(failed.after, firstPause<<min(retries, 8)))
		c.o.Log.WarnContext(ctx, fmt.Sprintf("%s: trying again in %s (attempt %d of %d failed)",
			failed.brief(), wait.Round(100*time.Millisecond), attempt, retries+1))
		if err := c.sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// wait reports the pause to the caller, and waits.
func (c *Client) wait(ctx context.Context, p patience, failed *Error) error {
	if p.waiting != nil {
		over := p.waiting()
		defer over()
	}
	return c.awaitServer(ctx, p.outage, failed)
}

// pause is the wait before the next attempt: anything up to the doubled limit (the "full jitter" of Brooker,
// Exponential Backoff And Jitter, 2015), so that rollouts that failed together do not return together; and at least
// what the server asked for, within the cap.
func pause(attempt int, asked time.Duration) time.Duration {
	jitter := rand.N(env.Backoff(attempt, firstPause, longestPause) + 1)
	if asked <= 0 {
		return jitter
	}
	return min(asked+jitter/4, longestAsked)
}

// retryAfter reads how long a server asks to wait: Retry-After in seconds or as a date, or retry-after-ms. A date is
// compared with the server's clock if it sends the time. It returns 0 if the server asks for no wait.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(strings.TrimSpace(h.Get("Retry-After-Ms")), 64); err == nil && ms > 0 && ms < 1e9 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	asked := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseFloat(asked, 64); err == nil {
		if seconds > 0 && seconds < 1e6 {
			return time.Duration(seconds * float64(time.Second))
		}
		return 0
	}
	at, err := http.ParseTime(asked)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return max(at.Sub(now), 0)
}

func sleep(ctx context.Context, d time.Duration) error {
	if env.Sleep(ctx, d) != nil {
		return ended(ctx)
	}
	return nil
}

// ended returns the context's error, not its cause, because callers distinguish an interrupt from a failure by
// context.Canceled.
func ended(ctx context.Context) error { return fmt.Errorf("ask the model: %w", ctx.Err()) }
