package train

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/rl"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// publisher lets rollouts sample from the trainer's weights.
type publisher struct {
	trainer part.Trainer
	// policy is the last published policy; live samples with it, and switches when another is published.
	policy rl.Policy
	live   live
}

// publish makes rollouts sample from the trainer's current weights.
func (p *publisher) publish(ctx context.Context) (err error) {
	if p.policy, err = p.trainer.Publish(ctx); err == nil {
		current := p.policy
		p.live.current.Store(&current)
	}
	return err
}

// finish publishes the policy of an update. The context is one of [stopping.finishing]: if it ends before the
// publication does, the policy is not published, which is no error.
func (p *publisher) finish(ctx context.Context) (published bool, err error) {
	err = p.publish(ctx)
	if ctx.Err() != nil && err != nil && !errors.Is(err, rl.ErrApart) {
		return false, nil
	}
	return err == nil, err
}

const versionMetric = "policy/version"

// describe adds the metrics of the policy's publication.
func (p *publisher) describe(values map[string]float64) {
	if gap := p.policy.Gap; gap.Tokens > 0 {
		values["publish/gap_mean"], values["publish/gap_max"] = gap.Mean, gap.Max
	}
	if gauges := p.trainer.Gauges; gauges != nil {
		maps.Copy(values, gauges())
	}
	values[versionMetric] = float64(p.policy.Version)
}

// rollouts converts outcomes into the algorithm's rollouts.
func (p *publisher) rollouts(outcomes []run.Outcome) []rl.Rollout {
	rollouts := make([]rl.Rollout, len(outcomes))
	for i, o := range outcomes {
		rollouts[i] = record.RolloutOf(o, rl.VersionNumber(p.policy.Version))
	}
	return rollouts
}

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
