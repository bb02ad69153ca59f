package train

import (
	"context"

	"deepswe/agent"
	"deepswe/rl"
)

// stamped is a policy as a model whose replies say which version sampled them.
type stamped rl.Policy

func (p stamped) Complete(ctx context.Context, r agent.Request) (agent.Reply, error) {
	reply, err := p.Model.Complete(ctx, r)
	if t := reply.Tokens; err == nil && t != nil && t.PolicyVersion == nil {
		own := *t // the model may keep what it gave
		own.PolicyVersion = &p.Version
		reply.Tokens = &own
	}
	return reply, err
}
