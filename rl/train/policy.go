package train

import (
	"context"
	"errors"
	"sync/atomic"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/rl"
)

// stamped makes a policy a model whose replies carry the policy's version. Without a trainer or a sampler, all rollouts
// end, because none of them can be sampled any more.
type stamped rl.Policy

func (p stamped) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	reply, err := p.Model.Complete(ctx, r)
	if errors.Is(err, rl.ErrTrainerLost) || errors.Is(err, rl.ErrUnsampled) {
		return reply, run.Abort(err)
	}
	if t := reply.Tokens; err == nil && t != nil && t.PolicyVersion == nil {
		own := *t // the model may keep the original
		own.PolicyVersion = &p.Version
		reply.Tokens = &own
	}
	return reply, err
}

// live makes the last published policy a model. Each call goes to the policy of that moment, so rollouts go on when
// another is published, and every turn carries the version that sampled it.
type live struct{ current atomic.Pointer[rl.Policy] }

func (l *live) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	return stamped(*l.current.Load()).Complete(ctx, r)
}
