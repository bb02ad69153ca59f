package docker

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"

	"deepswe/env"
	"deepswe/env/fleet"
)

// waits are the time limits that tests shorten.
type waits struct {
	ping  time.Duration // limit of a ping
	watch time.Duration // interval of pings
	undo  time.Duration // limit of undoing a cancelled start before returning
	retry time.Duration // first wait before retrying a pull
	back  time.Duration // how long a start waits for a daemon that worked before
}

func defaultWaits() waits {
	return waits{
		ping: 10 * time.Second, watch: 5 * time.Second, undo: patience, retry: 500 * time.Millisecond,
		back: 10 * time.Minute,
	}
}

// watch follows a daemon for the life of the provider. It notices when containers end and when the daemon goes down
// or comes back, and renews the lease.
func (d *daemon) watch() {
	d.p.work.Go(d.followEvents)
	ctx := d.p.life
	ping, lease := time.NewTicker(d.p.waits.watch), time.NewTicker(fleet.LeaseInterval)
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
			if err := d.installer.renew(ctx); err != nil && ctx.Err() == nil {
				d.p.log.Warn("cannot renew the lease", "host", d.host, "error", err)
			}
		}
	}
}

func (d *daemon) check(ctx context.Context) {
	coming, waiting := d.p.fleet.Coming(d), d.orphans.Len() > 0
	d.mu.Lock()
	idle := len(d.live)+coming == 0
	d.mu.Unlock()
	_, up := d.known()
	switch {
	case !up:
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
				d.recheck() // the stream ends only if the daemon goes down
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

// markDown stops using the daemon. It closes the connections to the daemon's sandboxes, because a connection to an
// unreachable machine can stay silent for many minutes.
func (d *daemon) markDown(cause error) {
	was, again := d.setDown(cause)
	if !was {
		return
	}
	level := slog.LevelWarn
	// A daemon that is shutting down still answers on open connections, so it seems to come and go. If the only
	// daemon has never been used yet, the caller gets this same error.
	if lost := d.installer.lose(); again || !lost && len(d.p.daemons) == 1 {
		level = slog.LevelDebug
	}
	d.images.forget()
	d.mu.Lock()
	cut := slices.Collect(maps.Values(d.live))
	d.mu.Unlock()
	d.p.log.Log(d.p.life, level, "docker daemon out of use until it answers again", "host", d.host,
		"sandboxes", len(cut), "error", cause)
	for _, s := range cut {
		_ = s.stream.Close()
	}
}

// recheck pings the daemon after an error, and marks it down if it does not answer.
func (d *daemon) recheck() (gone bool) {
	why := d.silence()
	if why != nil {
		d.markDown(why)
	}
	return why != nil
}
