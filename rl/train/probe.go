package train

import (
	"context"
	"maps"

	"deepswe/rl"
)

// probeRows limits the rows on which a step compares its policies. With 512 rollouts a step, they are an eighth of it:
// two forward passes over them take the trainer a twentieth of the time of the update.
const probeRows = 64

// probe compares the log-probabilities of some rows' tokens: the sampler's, the trainer's before the first optimizer
// step, and the trainer's after the last one.
type probe struct {
	rows   []rl.Row
	fresh  [][]uint8   // marks the tokens that were sampled with the trainer's weights
	before [][]float64 // nil if the trainer has no weights
}

// takeRows adds rows that the trainer has not learned from, up to probeRows. version is that of the trainer's weights.
func (p *probe) takeRows(ctx context.Context, t rl.Trainer, rows []rl.Row, rollouts []rl.Rollout, version int64) error {
	type id struct {
		group   string
		attempt int
	}
	byID := make(map[id]*rl.Rollout, len(rollouts))
	for i := range rollouts {
		byID[id{rollouts[i].Group, rollouts[i].Attempt}] = &rollouts[i]
	}
	var trained []int
	for i := range rows {
		if rows[i].Trained {
			trained = append(trained, i)
		}
	}
	n := min(len(trained), probeRows-len(p.rows))
	if n == 0 {
		return nil
	}
	chosen, fresh := make([]rl.Row, n), make([][]uint8, n)
	for k := range n {
		chosen[k] = rows[trained[k*len(trained)/n]] // spread over the groups
		r := &chosen[k]
		fresh[k] = rl.SampledBy(byID[id{r.Group, r.Attempt}], r, version)
	}
	logprobs, err := t.Forward(ctx, chosen)
	if err != nil || logprobs == nil {
		return err
	}
	p.rows, p.fresh, p.before = append(p.rows, chosen...), append(p.fresh, fresh...), append(p.before, logprobs...)
	return nil
}

// values returns the metrics of the comparison after the last optimizer step: mismatch/* compares the sampler with the
// trainer at equal weights, off_policy/* the sampler's weights at the time with the trainer's before the update, and
// update/* the trainer's before and after the update.
func (p *probe) values(ctx context.Context, t rl.Trainer) (map[string]float64, error) {
	if len(p.rows) == 0 {
		return nil, nil
	}
	after, err := t.Forward(ctx, p.rows)
	if err != nil {
		return nil, err
	}
	sampled, masks := make([][]float64, len(p.rows)), make([][]uint8, len(p.rows))
	for i, r := range p.rows {
		sampled[i], masks[i] = r.Logprobs, r.Mask
	}
	values := rl.Between(sampled, p.before, p.fresh).Metrics("mismatch")
	if values == nil {
		values = map[string]float64{"mismatch/tokens": 0}
	}
	maps.Copy(values, rl.Between(sampled, p.before, masks).Metrics("off_policy"))
	maps.Copy(values, rl.Between(p.before, after, masks).Metrics("update"))
	return values, nil
}
