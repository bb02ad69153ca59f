package train

import (
	"context"
	"errors"
	"math"
	"sync/atomic"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/rl"
)

// stamped is a policy as a model whose replies say which version sampled them. Where the trainer behind it is lost, no
// other rollout can do better.
type stamped rl.Policy

func (p stamped) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	reply, err := p.Model.Complete(ctx, r)
	if errors.Is(err, rl.ErrTrainerLost) {
		return reply, run.Abort(err)
	}
	if t := reply.Tokens; err == nil && t != nil && t.PolicyVersion == nil {
		own := *t // the model may keep what it gave
		own.PolicyVersion = &p.Version
		reply.Tokens = &own
	}
	return reply, err
}

// live is the policy that was published last as a model: each call goes to the one of its moment, so that rollouts go
// on across a publication, and every turn says which version sampled it.
type live struct{ current atomic.Pointer[rl.Policy] }

func (l *live) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	return stamped(*l.current.Load()).Complete(ctx, r)
}

// turnsOf is a model for one rollout. Each of its turns has a seed of its own: with a common one, replies to similar
// prompts would be sampled with the same random numbers.
type turnsOf struct {
	agent.Model
	rollout string
}

func (n turnsOf) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	r.Rollout = n.rollout
	if seed := r.Sampling.Seed; seed != nil {
		turn := int64(0)
		for _, m := range r.Messages {
			if m.Role == agent.RoleAssistant {
				turn++
			}
		}
		r.Sampling.Seed = new((*seed + turn) & math.MaxInt64)
	}
	return n.Model.Complete(ctx, r)
}
