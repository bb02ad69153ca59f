package tinker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"deepswe/agent"
)

// errStuck reports a server that lists its models and gives no replies.
var errStuck = errors.New("it lists its models, and gives no reply")

// mostStill is for how many times adapters.probing a server may have turns under way without one of them ending, and
// how long it may then take for one token.
const mostStill = 6

// progress returns errStuck for a server whose turns do not end and that does not sample one more token either. One
// whose counters change is not stuck: with few places and long replies it may do neither for minutes.
func (a *adapters) progress(ctx context.Context, s *replica) error {
	a.mu.Lock()
	busy := s.calls > 0
	a.mu.Unlock()
	if !busy {
		return nil
	}
	counting, cancel := context.WithTimeout(ctx, a.probing)
	defer cancel()
	counted := s.counts(counting)
	a.mu.Lock()
	if counted != "" && counted != s.counted {
		s.counted, s.moved = counted, time.Now()
	}
	still := time.Since(s.moved) > mostStill*a.probing
	a.mu.Unlock()
	if !still {
		return nil
	}
	return a.samples(ctx, s)
}

// samples asks a server for one token from the current adapter.
func (a *adapters) samples(ctx context.Context, s *replica) error {
	asking, cancel := context.WithTimeout(ctx, mostStill*a.probing)
	defer cancel()
	a.mu.Lock()
	v, calls := a.current, s.calls
	a.mu.Unlock()
	_, err := v.ask(asking, s, agent.Request{
		Messages: []agent.Message{{Role: agent.RoleUser, Content: "check"}}, Sampling: agent.OnPolicy(new(1.0)),
		MaxTokens: 1, Tokens: true,
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	if asking.Err() == nil || ctx.Err() != nil {
		s.moved = time.Now()
		return err
	}
	if calls > 0 && time.Since(s.moved) < mostStill*a.probing { // a turn has ended meanwhile
		return nil
	}
	return fmt.Errorf("%w for %s", errStuck, mostStill*a.probing)
}

// abandon puts a server aside, and ends its requests.
func (a *adapters) abandon(s *replica, err error) {
	a.markDown(s, err)
	a.mu.Lock()
	defer a.mu.Unlock()
	s.end(fmt.Errorf("%w: the sampler %s has stopped answering: %w", agent.ErrModelUnavailable, s.url, err))
}
