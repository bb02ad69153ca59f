package tinker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/env"
)

// Complete samples a turn. If this version has been unloaded, the newest samples it, as the reply's version shows. A
// server that fails is marked down, and another one is asked. The turn fails after more failures than there are
// servers, once the client's patience is over.
func (v *adapter) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	a, start := v.of, time.Now()
	for failures := 0; ; {
		reply, err := a.sample(ctx, v, r)
		if err == nil || ctx.Err() != nil || !atFault(err) {
			return reply, err
		}
		a.mu.Lock()
		all := len(a.replicas)
		a.mu.Unlock()
		if failures++; failures > all && time.Since(start) > a.client.patience {
			return reply, err
		}
	}
}

// sample samples a turn. While the server that was asked last is silent, another one is asked, too. The first reply
// counts, and servers that fail are marked down.
func (a *adapters) sample(ctx context.Context, v *adapter, r agent.Request) (agent.Reply, error) {
	own, s, err := a.beginTurn(ctx, v, r)
	if err != nil {
		return agent.Reply{}, err
	}
	type answer struct {
		reply agent.Reply
		err   error
	}
	asking, cancel := context.WithCancel(ctx)
	answers, asked := make(chan answer), 0
	defer func() {
		cancel()
		for ; asked > 0; asked-- {
			<-answers
		}
	}()
	ask := func(own *adapter, s *replica) {
		asked++
		go func() {
			reply, err := a.turn(asking, own, s, r)
			if err != nil && asking.Err() == nil && atFault(err) {
				a.markDown(s, err)
			}
			answers <- answer{reply, err}
		}()
	}
	ask(own, s)
	for {
		own, other, news := a.beside(v, s, r)
		if other != nil {
			ask(own, other)
			s = other
			continue
		}
		select {
		case got := <-answers:
			if asked--; got.err == nil || asked == 0 || ctx.Err() != nil || !atFault(got.err) {
				return got.reply, got.err
			}
			s = nil
		case <-news:
		}
	}
}

// beside begins a turn on another server if the last one is silent, or has failed, for which last is nil. Otherwise,
// or if there is no server, s is nil, and news is closed when that may have changed.
func (a *adapters) beside(v *adapter, last *replica, r agent.Request) (own *adapter, s *replica, news <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if last != nil && !last.silent() {
		return nil, nil, last.heard.Done()
	}
	if own, s = a.pick(v, r.Rollout); s == nil || s.silent() {
		return nil, nil, a.changed
	}
	own.calls++
	s.beginTurn()
	return own, s, nil
}

// beginTurn waits for a server and begins a turn on it. The wait does not count towards the rollout's time limit.
func (a *adapters) beginTurn(ctx context.Context, v *adapter, r agent.Request) (own *adapter, s *replica, err error) {
	find := func() bool {
		if own, s = a.pick(v, r.Rollout); s == nil {
			return false
		}
		own.calls++
		s.beginTurn()
		return true
	}
	a.mu.Lock()
	found := find()
	a.mu.Unlock()
	if found {
		return own, s, nil
	}
	if r.Waiting != nil {
		defer r.Waiting()()
	}
	return own, s, a.await(ctx, find)
}

// turn samples a turn that has begun.
func (a *adapters) turn(ctx context.Context, v *adapter, s *replica, r agent.Request) (agent.Reply, error) {
	start := time.Now()
	limited, done := a.limited(ctx, s, r)
	reply, err := v.ask(limited, s, r)
	done()
	a.mu.Lock()
	defer a.mu.Unlock()
	v.calls--
	s.calls--
	s.moved = time.Now()
	if err == nil {
		took := time.Since(start).Seconds()
		a.slowest = max(a.slowest, took/float64(max(reply.Usage.Completion, fewTokens)))
		s.pace = cmp.Or(s.pace, took)*0.8 + took*0.2
		s.pause = probeEvery
	}
	return reply, err
}

// fewTokens is the least length by which the time per token is computed. mostSlow is by what factor a turn may exceed
// the time that it would take at the slowest rate so far. One that takes longer is lost on its way, or on a server
// that answers others.
const (
	fewTokens = 16
	mostSlow  = 3
)

// limited returns a context that ends when a turn takes longer than its reply can. The limit grows with what other
// turns have taken meanwhile. done ends it.
func (a *adapters) limited(ctx context.Context, s *replica, r agent.Request) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	tokens := cmp.Or(r.MaxTokens, a.limits.length)
	if tokens == 0 {
		return ctx, func() { cancel(nil) }
	}
	left := func(took time.Duration) time.Duration {
		a.mu.Lock()
		defer a.mu.Unlock()
		longest := time.Duration(mostSlow * a.slowest * float64(tokens) * float64(time.Second))
		if a.slowest == 0 {
			longest = a.client.patience // the first replies may wait for a compiler
		}
		return max(longest, mostStill*a.probing) - took
	}
	begun := time.Now()
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			wait := left(time.Since(begun))
			if wait <= 0 {
				cancel(fmt.Errorf("%w: the sampler %s has given no reply of at most %d tokens in %s", agent.ErrModelUnavailable,
					s.url, tokens, time.Since(begun).Round(time.Second)))
				return
			}
			if env.Sleep(ctx, wait) != nil {
				return
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		watching.Wait()
	}
}

// ask samples from one server. One that was restarted loads the adapter again.
func (v *adapter) ask(ctx context.Context, s *replica, r agent.Request) (agent.Reply, error) {
	ctx, done := v.of.while(ctx, s)
	defer done()
	model, err := v.client(s)
	if err != nil {
		return agent.Reply{}, err
	}
	reply, err := model.Complete(ctx, r)
	if failed, ok := errors.AsType[*llm.Error](err); ok && failed.Status == http.StatusNotFound {
		if err := v.of.load(ctx, s, v); err != nil {
			return agent.Reply{}, err
		}
		reply, err = model.Complete(ctx, r)
	}
	if err == nil {
		err = v.misfit(s, reply)
	}
	return reply, alive(ctx, err)
}

// misfit returns an error for a reply that another version, or another model, has given.
func (v *adapter) misfit(s *replica, reply agent.Reply) error {
	if reply.Model != "" && reply.Model != v.name {
		return fmt.Errorf("%w: the sampler %s answered as %q, not as %q", agent.ErrModelUnavailable, s.url, reply.Model,
			v.name)
	}
	if reply.Tokens == nil {
		return nil
	}
	for _, id := range reply.Tokens.CompletionIDs {
		if v.of.limits.lacks(id) {
			return fmt.Errorf("%w: the sampler %s has sampled the id %d, and the trainer's model has %d ids: it has another "+
				"model", agent.ErrModelUnavailable, s.url, id, v.of.limits.vocabulary)
		}
	}
	return nil
}

// How turns are given to servers. A rollout stays where its conversation is cached unless another server would answer
// much earlier.
const (
	slack      = 4    // added to the calls, so that few make no difference
	leastPace  = 0.25 // seconds below which all are equally fast
	equal      = 1.5
	worthwhile = 3
	crowded    = 1e3 // factor on the delay of a server without room
	reluctance = 1e6 // factor on the delay of a silent one
)

// pick returns the server for a turn of a version; nil if there is none. If no server has the version, a turn of a
// held one goes to a server that has yet to load it, and any other turn is sampled from the current version. The
// caller holds a.mu.
func (a *adapters) pick(v *adapter, rollout string) (*adapter, *replica) {
	ready := func(s *replica) bool { return s.ready(v) }
	switch {
	case slices.ContainsFunc(a.replicas, ready):
	case v.holds > 0:
		ready = func(s *replica) bool { return s.down == nil }
	default:
		v = a.current
	}
	fastest := math.Inf(1)
	for _, s := range a.replicas {
		if ready(s) && s.pace > 0 {
			fastest = min(fastest, s.pace)
		}
	}
	if math.IsInf(fastest, 1) {
		fastest = leastPace
	}
	delay := func(s *replica) float64 {
		if !ready(s) {
			return math.Inf(1)
		}
		d := max(cmp.Or(s.pace, fastest), leastPace) * float64(s.calls+slack)
		if s.calls >= a.room {
			d *= crowded
		}
		if s.silent() {
			d *= reluctance
		}
		return d
	}
	least := math.Inf(1)
	for _, s := range a.replicas {
		least = min(least, delay(s))
	}
	if math.IsInf(least, 1) {
		return v, nil
	}
	if home := a.homes[rollout]; home != nil && delay(home) <= worthwhile*least {
		return v, home
	}
	for {
		s := a.replicas[a.next%len(a.replicas)]
		a.next++
		if delay(s) > equal*least {
			continue
		}
		if rollout != "" {
			if len(a.homes) >= maxHomes {
				clear(a.homes)
			}
			a.homes[rollout] = s
		}
		return v, s
	}
}

// maxHomes is the most rollouts to remember a server for.
const maxHomes = 1 << 16

// atFault reports whether an error is the server's, so that another server may answer.
func atFault(err error) bool {
	if errors.Is(err, llm.ErrNoExtension) {
		return false // so it is with any server of this model
	}
	if failed, ok := errors.AsType[*llm.Error](err); ok && failed.Status >= 400 && failed.Status < 500 {
		switch failed.Status {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout,
			http.StatusTooManyRequests:
		default:
			return false
		}
	}
	return errors.Is(err, agent.ErrModelUnavailable) || errors.Is(err, ErrSampler)
}
