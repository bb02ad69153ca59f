package docker

import (
	"context"
	"log/slog"
	"time"

	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"

	"deepswe/env"
)

// leaseInterval is how often the lease on a daemon is renewed.
const leaseInterval = 30 * time.Second

// waits are the time limits that tests shorten.
type waits struct {
	ping  time.Duration // for a quick answer of the daemon
	watch time.Duration // between two pings
	undo  time.Duration // for a start to be undone after its context has ended; a daemon that does not answer takes longer
	retry time.Duration // before a failed pull is retried, at first
}

func defaultWaits() waits {
	return waits{ping: 10 * time.Second, watch: 5 * time.Second, undo: patience, retry: 500 * time.Millisecond}
}

// watch follows a daemon while the provider lives: it notices containers that end and a daemon that goes down or comes
// back, and renews the lease.
func (d *daemon) watch() {
	d.p.work.Go(d.followEvents)
	ctx := d.p.life
	ping, lease := time.NewTicker(d.p.waits.watch), time.NewTicker(leaseInterval)
	defer ping.Stop()
	defer lease.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ping.C:
			d.check(ctx)
		case <-lease.C:
			if _, up := d.known(); !up {
				continue
			}
			if err := d.renewLease(ctx); err != nil && ctx.Err() == nil {
				d.p.log.Warn("renewing the lease", "host", d.host, "error", err)
			}
		}
	}
}

func (d *daemon) check(ctx context.Context) {
	d.mu.Lock()
	down, idle, waiting := d.down != nil, len(d.live)+d.coming == 0, len(d.orphans) > 0
	d.mu.Unlock()
	switch {
	case down:
		if d.usable(ctx) != nil {
			return
		}
	case idle && !waiting:
		return
	default:
		if d.recheck() {
			return
		}
	}
	if waiting {
		d.retryOrphans()
	}
}

// followEvents reads the daemon's events about our containers, and reconnects when the daemon is back.
func (d *daemon) followEvents() {
	ctx := d.p.life
	for ctx.Err() == nil {
		if _, up := d.known(); up {
			d.readEvents(ctx)
			if ctx.Err() == nil {
				d.recheck() // the stream only ends with the daemon
			}
		}
		_ = env.Sleep(ctx, 500*time.Millisecond)
	}
}

func (d *daemon) readEvents(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := d.cli.Events(ctx, client.EventsListOptions{Filters: make(client.Filters).
		Add("type", string(events.ContainerEventType)).
		Add("event", string(events.ActionDie), string(events.ActionOOM)).
		Add("label", labelOwner+"="+d.p.owner)})
	outOfMemory := map[string]bool{}
	for {
		select {
		case m := <-stream.Messages:
			if m.Action == events.ActionOOM {
				outOfMemory[m.Actor.ID] = true
				continue
			}
			d.mu.Lock()
			s := d.live[m.Actor.ID]
			d.mu.Unlock()
			if s != nil {
				s.reportEnd(m.Actor.Attributes["exitCode"], outOfMemory[m.Actor.ID])
			}
			delete(outOfMemory, m.Actor.ID)
		case err := <-stream.Err:
			d.p.log.Debug("the daemon's events ended", "host", d.host, "error", err)
			return
		}
	}
}

// markDown stops using the daemon. The connections to its sandboxes are closed, because a connection to a machine that
// is gone can stay silent for many minutes.
func (d *daemon) markDown(cause error) {
	d.mu.Lock()
	if d.down != nil || d.p.life.Err() != nil {
		d.mu.Unlock()
		return
	}
	d.down = cause
	level := slog.LevelWarn
	// A daemon that is shutting down still answers on open connections, and seems to come and go. Where the only daemon
	// has not served yet, the caller gets this very error.
	if time.Since(d.lastDown) < quiet || d.installation == nil && len(d.p.daemons) == 1 {
		level = slog.LevelDebug
	}
	d.lastDown = time.Now()
	if d.installation != nil {
		d.orphans[d.installation.lease] = struct{}{}
	}
	d.installation, d.images = nil, map[string]image{}
	if d.wentDown != nil {
		d.wentDown(cause)
	}
	cut := make([]*Sandbox, 0, len(d.live))
	for _, s := range d.live {
		cut = append(cut, s)
	}
	d.mu.Unlock()
	d.p.log.Log(d.p.life, level, "docker daemon out of use", "host", d.host, "sandboxes", len(cut), "error", cause)
	for _, s := range cut {
		_ = s.stream.Close()
	}
}

// whileUp returns a context that ends with ctx, and as soon as the daemon is marked down: a request to a machine that
// is gone may never return by itself.
func (d *daemon) whileUp(ctx context.Context) (context.Context, context.CancelFunc) {
	d.mu.Lock()
	up := d.up
	d.mu.Unlock()
	if up == nil {
		return ctx, func() {}
	}
	during, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(up, func() { cancel(context.Cause(up)) })
	return during, func() {
		stop()
		cancel(nil)
	}
}

// recheck pings the daemon after an error, and marks it down when it does not answer.
func (d *daemon) recheck() (gone bool) {
	ctx, cancel := context.WithTimeout(d.p.life, d.p.waits.ping)
	defer cancel()
	_, err := d.cli.Ping(ctx, client.PingOptions{})
	if err == nil || d.p.life.Err() != nil {
		return false
	}
	d.markDown(d.unreachable(err, ""))
	return true
}

// usable returns an error when the daemon is down. Then it greets the daemon again first, once for all callers.
func (d *daemon) usable(ctx context.Context) error {
	if _, up := d.known(); up {
		return nil
	}
	_, err := d.greeting.do(ctx, d.p.life, &d.p.work, "", func(ctx context.Context) (struct{}, error) {
		err := d.greet(ctx)
		if err == nil {
			d.p.log.Info("docker daemon back in use", "host", d.host)
		}
		return struct{}{}, err
	})
	return err
}
