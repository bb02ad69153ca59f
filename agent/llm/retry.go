package llm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"deepswe/env"
)

// The wait before the first retry is up to firstPause, and doubles up to longestPause: nine attempts span a minute or
// so, in which a server restarts or a rate limit passes.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 30 * time.Second
	// longestAsked caps the wait that a server asks for.
	longestAsked = 2 * time.Minute
)

// retry sends until it succeeds, the failure is permanent, or there were enough attempts.
func (c *Client) retry(ctx context.Context, retries int, send func(context.Context, *dialect) *Error) error {
	silences := 0
	for attempt := 1; ; attempt++ {
		sent := c.dialect.Load()
		failed := send(ctx, sent)
		if failed == nil {
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
		if failed.repeat == twice {
			silences++
		}
		if failed.repeat == never || attempt > retries || silences > 2 {
			return failed
		}
		wait := pause(attempt, failed.after)
		c.o.Log.WarnContext(ctx, fmt.Sprintf("%s: trying again in %s (attempt %d of %d failed)",
			failed.brief(), wait.Round(100*time.Millisecond), attempt, retries+1))
		if err := c.sleep(ctx, wait); err != nil {
			return err
		}
	}
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
// taken against the server's own clock where it sends one. 0 when nothing was asked.
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

// ended is the context's own error. Its cause stays with the context: callers tell an interrupt from a failure by
// context.Canceled.
func ended(ctx context.Context) error { return fmt.Errorf("ask the model: %w", ctx.Err()) }
