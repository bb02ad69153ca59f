package train

import (
	"context"
	"maps"

	"deepswe/rl"
)

// probeRows limits the rows on which a step compares its policies. With 512 rollouts a step, they are an eighth of it:
// a forward pass over them takes the trainer a fortieth of the time of the update.
const probeRows = 64

// probe compares the log-probabilities of some rows' tokens: the sampler's, the trainer's before the first optimizer
// step, and the trainer's after the last one.
type probe struct {
	rows   []rl.Row
	fresh  [][]uint8   // marks the tokens that were sampled with the trainer's weights
	before [][]float64 // nil if the trainer has no weights
}

// takeRows adds rows, up to probeRows, with the logprobs that the trainer's weights give them; nil without weights.
// version is that of the weights.
func (p *probe) takeRows(rows []rl.Row, logprobs [][]float64, rollouts []rl.Rollout, version int64) {
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
	if logprobs == nil {
		return
	}
	for k := range n {
		i := trained[k*len(trained)/n] // spread over the groups
		r := &rows[i]
		p.rows, p.before = append(p.rows, *r), append(p.before, logprobs[i])
		p.fresh = append(p.fresh, rl.SampledBy(byID[id{r.Group, r.Attempt}], r, version))
	}
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
