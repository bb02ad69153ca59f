package tinker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/rl"
)

// replica is a vLLM server with what is known about it. Its state is guarded by adapters.mu.
type replica struct {
	*vllm
	has map[*adapter]bool // what it has loaded
	// latest is the client for the adapter that was asked for last.
	latest *llm.Client
	// down is why the server gets no turns; nil if it gets turns. pause is the time until it is probed again.
	down  error
	since time.Time
	pause time.Duration
	// calls is the number of turns under way. pace is a moving average of the seconds per turn since the last
	// publication; 0 if none has succeeded.
	calls int
	pace  float64
	// moved is when the server last showed progress: a turn ended, or began beside no other, or its counters changed.
	// counted are these counters. left is set once the configuration no longer names the server.
	moved   time.Time
	counted string
	left    bool
	// heard ends when a probe is unanswered for longestSilence, and is replaced once the server answers. Until then, the
	// server gets new turns only if no other can take them, and its turns under way are given to another one, too.
	heard context.Context
	hush  context.CancelCauseFunc
	// life ends when the server has stopped answering, and with it end the requests that the server has accepted.
	life context.Context
	end  context.CancelCauseFunc
	// woken receives a value when the server goes down.
	woken chan struct{}
}

const (
	// longestProbe is how long a server may take to list its models. After mostMissed unanswered probes in a row, its
	// requests are ended.
	longestProbe = 10 * time.Second
	mostMissed   = 3
	// longestSilence is how long it may take before it counts as silent. If it is only busy, two servers sample the same
	// turns, which costs time and is not wrong.
	longestSilence = 2 * time.Second
	// probeEvery is the pause between two probes. It grows to longestPause for a server that is down.
	probeEvery   = time.Second
	longestPause = 5 * time.Second
)

func newReplica(address, key string) (*replica, error) {
	v, err := newVLLM(address, key)
	return &replica{
		vllm: v, has: map[*adapter]bool{}, down: errors.New("it was not asked yet"), since: time.Now(),
		pause: probeEvery, woken: make(chan struct{}, 1),
	}, err
}

// begin prepares the state of a server before it is used. The caller holds a.mu, or nobody else has the server yet.
func (a *adapters) begin(s *replica) {
	s.life, s.end = context.WithCancelCause(a.life)
	s.heard, s.hush = context.WithCancelCause(a.life)
}

// beginTurn records that a turn begins. The caller holds adapters.mu.
func (s *replica) beginTurn() {
	if s.calls == 0 {
		s.moved = time.Now()
	}
	s.calls++
}

// silent reports whether the server is late with its answer to a probe. The caller holds adapters.mu.
func (s *replica) silent() bool { return s.heard.Err() != nil }

// ready reports whether turns of a version may go to the server.
func (s *replica) ready(v *adapter) bool { return s.down == nil && s.has[v] }

// tend looks after a server until ctx ends or the server is dismissed: one that is down gets turns again once it
// answers and has loaded what is sampled, and one that has stopped answering is marked down.
func (a *adapters) tend(ctx context.Context, s *replica) {
	var looked time.Time // at its progress
	for missed := 0; ; {
		a.mu.Lock()
		if s.left && s.calls == 0 {
			a.mu.Unlock()
			a.dismiss(ctx, s)
			return
		}
		down, wait := s.down != nil && !s.left, probeEvery
		if down {
			wait = s.pause
			s.pause = min(2*s.pause, longestPause)
		}
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-s.woken:
			if !down {
				continue
			}
		case <-time.After(wait):
		}
		var err error
		if down {
			err = a.join(ctx, s)
		} else if err = a.listen(ctx, s); err == nil && time.Since(looked) >= a.probing/2 {
			err, looked = a.progress(ctx, s), time.Now()
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && down:
			a.markDown(s, err)
		case errors.Is(err, errStuck):
			a.abandon(s, err)
		}
		if !errors.Is(err, errUnanswered) {
			missed = 0
			continue
		}
		if missed++; missed == mostMissed {
			a.abandon(s, err)
		}
	}
}

// list returns the names of the adapters that a server has loaded from this run's directory.
func (a *adapters) list(ctx context.Context, s *replica) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, a.probing)
	defer cancel()
	roots, err := s.loaded(ctx)
	maps.DeleteFunc(roots, func(_, root string) bool { return filepath.Dir(root) != a.dir })
	return slices.Collect(maps.Keys(roots)), err
}

// listen probes a server, which counts as silent from longestSilence on until it answers.
func (a *adapters) listen(ctx context.Context, s *replica) error {
	a.mu.Lock()
	hush := s.hush
	a.mu.Unlock()
	late := time.AfterFunc(longestSilence, func() {
		hush(fmt.Errorf("%w: the sampler %s has been silent for %s", agent.ErrModelUnavailable, s.url, longestSilence))
	})
	defer late.Stop()
	_, err := a.list(ctx, s)
	switch {
	case errors.Is(err, errUnanswered):
		hush(err)
	case err == nil:
		a.mu.Lock()
		defer a.mu.Unlock()
		a.hear(s)
	}
	return err
}

// hear ends the silence of a server that has answered. The caller holds a.mu.
func (a *adapters) hear(s *replica) {
	if s.silent() {
		s.heard, s.hush = context.WithCancelCause(a.life)
		a.broadcast()
	}
}

// join lets a server have turns again. Before that, it unloads adapters that this run or a killed one has left, loads
// those that are sampled, and samples a token.
func (a *adapters) join(ctx context.Context, s *replica) error {
	names, err := a.list(ctx, s)
	if err != nil {
		return err
	}
	a.mu.Lock()
	if s.life.Err() != nil {
		s.life, s.end = context.WithCancelCause(a.life)
	}
	left := slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(a.versions, func(v *adapter) bool { return v.name == name })
	})
	for v := range s.has {
		s.has[v] = false // it may have been restarted
	}
	a.mu.Unlock()
	for _, name := range left {
		if err := s.unload(ctx, name); err != nil {
			a.client.log.Debug("adapter not unloaded", "sampler", s.url, "adapter", name, "error", err)
		}
	}
	for sampled := false; ; {
		a.mu.Lock()
		// The last is the newest, which may be about to be published.
		i := slices.IndexFunc(a.versions, func(v *adapter) bool {
			return !s.has[v] && (v == a.current || v.holds > 0 || v == a.versions[len(a.versions)-1])
		})
		if i < 0 && (sampled || a.current == nil) {
			a.admit(s)
			a.mu.Unlock()
			return nil
		}
		if i < 0 {
			a.mu.Unlock()
			if err := a.samples(ctx, s); err != nil {
				return err
			}
			sampled = true
			continue
		}
		v := a.versions[i]
		a.mu.Unlock()
		if err := a.load(ctx, s, v); err != nil {
			return err
		}
	}
}

// admit lets a server have turns. The caller holds a.mu.
func (a *adapters) admit(s *replica) {
	if s.down != nil && a.current != nil {
		a.client.log.Info("a sampler is back", "sampler", s.url, "after", time.Since(s.since).Round(time.Second))
	}
	s.down = nil
	a.hear(s)
	a.broadcast()
}

// load loads a version into a server during the life of the server. If the version is unloaded everywhere meanwhile,
// it is unloaded here as well, and an error of loading does not count.
func (a *adapters) load(ctx context.Context, s *replica, v *adapter) error {
	ctx, done := a.while(ctx, s)
	defer done()
	err := a.loadListed(ctx, s, v)
	a.mu.Lock()
	unneeded := v.unloaded
	if err == nil && !unneeded {
		s.has[v] = true
		a.hear(s)
		a.broadcast()
	}
	a.mu.Unlock()
	switch {
	case err == nil && unneeded:
		return s.unload(ctx, v.name)
	case unneeded:
		return nil
	}
	return alive(ctx, err)
}

// loadListed loads a version, and once more if the server does not list it then. The response to a request for
// loading proves nothing: the server may have another adapter of that name.
func (a *adapters) loadListed(ctx context.Context, s *replica, v *adapter) error {
	for try := 1; ; try++ {
		if err := s.load(ctx, a.client.newTries(), v.name, v.dir); err != nil {
			return err
		}
		listing, cancel := context.WithTimeout(ctx, a.probing)
		roots, err := s.loaded(listing)
		cancel()
		if err != nil || roots[v.name] == v.dir {
			return err
		}
		if try == 2 {
			return fmt.Errorf("%w: the sampler %s says that it has loaded %s from %s, and does not list it",
				agent.ErrModelUnavailable, s.url, v.name, v.dir)
		}
		if err := s.unload(ctx, v.name); err != nil {
			return fmt.Errorf("%w: %w", agent.ErrModelUnavailable, err)
		}
	}
}

// while returns a context that also ends with the server's life.
func (a *adapters) while(ctx context.Context, s *replica) (_ context.Context, done func()) {
	a.mu.Lock()
	life := s.life
	a.mu.Unlock()
	return during(ctx, life)
}

// during returns a context that also ends with another one, with the cause of that.
func during(ctx, other context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() { stop(); cancel(nil) }
}

// alive returns the error of a request, or why the server's life has ended.
func alive(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, agent.ErrModelUnavailable) {
		return cause
	}
	return err
}

// markDown gives a server no more turns until it answers again.
func (a *adapters) markDown(s *replica, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := s.down == nil
	s.down = err
	if !first {
		return
	}
	s.since = time.Now()
	a.client.log.Warn("a sampler is put aside", "sampler", s.url, "left", len(a.answering()), "error", err)
	select {
	case s.woken <- struct{}{}:
	default:
	}
	a.broadcast()
}

// broadcast wakes all who wait for a server. The caller holds a.mu.
func (a *adapters) broadcast() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// await waits until found, which is called with a.mu held, reports a server. It fails when the client's patience ends
// and, before the first publication, as soon as all servers refuse.
func (a *adapters) await(ctx context.Context, found func() bool) error {
	begun := time.Now()
	late, remind := time.NewTimer(a.client.patience), time.NewTicker(remindEvery)
	defer late.Stop()
	defer remind.Stop()
	for {
		a.mu.Lock()
		if found() {
			a.mu.Unlock()
			return nil
		}
		changed, refused := a.changed, a.current == nil
		var causes []error
		for _, s := range a.replicas {
			causes = append(causes, s.down)
			refused = refused && errors.Is(s.down, ErrSampler)
		}
		a.mu.Unlock()
		failed := fmt.Errorf("%w: %w", agent.ErrModelUnavailable, errors.Join(causes...))
		if refused {
			return failed
		}
		select {
		case <-changed:
		case <-remind.C:
			a.remind(time.Since(begun), failed)
		case <-late.C:
			return fmt.Errorf("%w for %s: %w", rl.ErrUnsampled, a.client.patience, failed)
		case <-ctx.Done():
			return ctx.Err()
		case <-a.life.Done():
			return errClosed
		}
	}
}

// remindEvery is the time between two warnings that no server samples.
const remindEvery = time.Minute

// remind warns that no server samples. Of the many turns that wait for one, only the first warns.
func (a *adapters) remind(waited time.Duration, failed error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.reminded) < remindEvery/2 {
		return
	}
	a.reminded = time.Now()
	a.client.log.Warn("no sampler answers", "for", waited.Round(time.Second), "the run stops after", a.client.patience,
		"error", failed)
}

// each calls do for several servers at once and waits for all.
func each(servers []*replica, do func(s *replica)) {
	var all sync.WaitGroup
	for _, s := range servers {
		all.Go(func() { do(s) })
	}
	all.Wait()
}
