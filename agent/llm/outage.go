package llm

import (
	"context"
	"fmt"
	"sync"
	"time"

	"deepswe/agent"
)

// outage is the state that the requests of a client share while its server is gone.
type outage struct {
	mu   sync.Mutex
	back chan struct{} // closed when the server is back; nil while it is not gone
	// began is when a request first found it gone.
	began time.Time
	// probing holds a value while one of the waiting requests asks for the server.
	probing chan struct{}
}

const (
	// probeEvery is the time between two looks for a server that is gone, remindEvery between two warnings about it.
	probeEvery  = 3 * time.Second
	remindEvery = time.Minute
)

// join returns a channel that is closed when the server is back, when it was found gone, and whether the caller is the
// first to miss it.
func (o *outage) join() (back <-chan struct{}, began time.Time, first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if first = o.back == nil; first {
		o.back, o.began = make(chan struct{}), time.Now()
	}
	return o.back, o.began, first
}

// end wakes all who wait. It returns how long the server was gone; over is false if it was not.
func (o *outage) end() (lasted time.Duration, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.back == nil {
		return 0, false
	}
	close(o.back)
	o.back = nil
	return time.Since(o.began), true
}

// found ends the outage, if there is one. It is called wherever the server has answered.
func (c *Client) found(ctx context.Context) {
	if lasted, over := c.outage.end(); over {
		c.o.Log.InfoContext(ctx, fmt.Sprintf("the model endpoint %s is back after %s", c.name, lasted.Round(time.Second)))
	}
}

// awaitServer waits until the server answers again, or has been gone for as long as patience. Only one of the waiting
// requests at a time probes it. The error is ctx's own, failed if the server stays gone, or one that says that it has
// changed (see [Client.Pin]).
func (c *Client) awaitServer(ctx context.Context, patience time.Duration, failed *Error) error {
	back, began, first := c.outage.join()
	if first {
		c.o.Log.WarnContext(ctx, fmt.Sprintf("%s: waiting up to %s for the server", failed.brief(),
			patience.Round(time.Second)))
	}
	late := time.NewTimer(patience - time.Since(began))
	defer late.Stop()
	select {
	case <-back:
		return c.sameServer()
	case <-late.C:
		return failed
	case <-ctx.Done():
		return ended(ctx)
	case c.outage.probing <- struct{}{}:
	}
	defer func() { <-c.outage.probing }()
	reminded := time.Now()
	for {
		select {
		case <-back: // another request found it first
			return c.sameServer()
		case <-late.C:
			return failed
		default:
		}
		if err := c.sleep(ctx, probeEvery); err != nil {
			return err
		}
		if c.answers(ctx) {
			break
		}
		if now := time.Now(); now.Sub(reminded) >= remindEvery {
			reminded = now
			c.o.Log.WarnContext(ctx, fmt.Sprintf("the model endpoint %s is still gone after %s", c.name,
				now.Sub(began).Round(time.Second)))
		}
	}
	c.found(ctx)
	return c.sameServer()
}

// answers reports whether the server is back, and records whether it is a different one.
func (c *Client) answers(ctx context.Context) bool {
	pinned := c.pinned.Load()
	if pinned == nil {
		_, err := c.list(ctx, patience{})
		return err == nil
	}
	now, err := c.identify(ctx, patience{})
	if err != nil {
		return false
	}
	c.versionless.Store(false)
	if change := pinned.Change(now); change != "" {
		c.changed.CompareAndSwap(nil, &Error{
			Endpoint: c.name, Attempts: 1, sentinel: agent.ErrModelChanged, Message: change,
			Hint: "serve what the run began with, and resume it",
		})
	}
	return true
}

// sameServer returns an error if the server came back with another identity.
func (c *Client) sameServer() error {
	if e := c.changed.Load(); e != nil {
		return e
	}
	return nil
}
