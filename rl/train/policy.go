package train

import (
	"context"
	"errors"
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
