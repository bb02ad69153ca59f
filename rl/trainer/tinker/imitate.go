package tinker

import (
	"context"
	"fmt"
	"math"

	"deepswe/rl"
)

// exact is how far the weights of two rows may differ that are to count alike: they are quotients of small integers.
const exact = 1e-9

// Imitate makes one update that lowers the cross-entropy of the rows' trained tokens, each times its row's scale. Where
// the server's own cross_entropy can be given these weights, that is one pass; else it is what ForwardBackward and Step
// do. A server that divides each sequence by the sum of its weights cannot weigh rows against each other, so there all
// rows have to count alike.
func (t *Trainer) Imitate(ctx context.Context, rows []rl.Row, o rl.Optimizer) (rl.Stats, rl.StepStats, error) {
	objective := rl.Objective{Surrogate: rl.CrossEntropy}
	weights, ok := t.weights(rows)
	if !ok || len(t.pending) > 0 || o.Scale != 0 {
		stats, err := t.ForwardBackward(ctx, rows, objective)
		if err != nil {
			return stats, rl.StepStats{}, err
		}
		step, err := t.Step(ctx, o)
		return stats, step, err
	}
	if err := t.accepts(rows, objective); err != nil {
		return rl.Stats{}, rl.StepStats{}, err
	}
	a, err := adamOf(o)
	if err != nil {
		return rl.Stats{}, rl.StepStats{}, err
	}
	if err := t.ready(ctx); err != nil {
		return rl.Stats{}, rl.StepStats{}, err
	}
	in := passInput{Loss: string(rl.CrossEntropy)}
	var sent []rl.Row
	for i := range rows {
		if trained(&rows[i]) == 0 {
			continue
		}
		d := datumOf(&rows[i])
		for k := range d.Inputs.Weights.Data {
			d.Inputs.Weights.Data[k] *= weights[i]
		}
		in.Data, sent = append(in.Data, d), append(sent, rows[i])
	}
	out, err := t.model.pass(ctx, "forward_backward", in, true)
	if err != nil {
		return rl.Stats{}, rl.StepStats{}, err
	}
	current := make([][]float64, len(sent))
	for i, logprobs := range out {
		if err := t.sound(&sent[i], logprobs); err != nil {
			return rl.Stats{}, rl.StepStats{}, err
		}
		current[i] = append([]float64{0}, logprobs...)
	}
	stats, err := rl.Loss(sent, current, nil, objective, nil)
	if err != nil {
		return rl.Stats{}, rl.StepStats{}, lost(err)
	}
	stats.Rows = len(rows)
	step, err := t.apply(ctx, a, sent)
	return stats, step, err
}

// weights are what the server's cross_entropy has to be given for each trained token of a row, so that its gradient is
// the objective's. ok is false where there are none.
func (t *Trainer) weights(rows []rl.Row) (weights []float64, ok bool) {
	n := 0
	for i := range rows {
		if trained(&rows[i]) > 0 {
			n++
		}
	}
	if n == 0 {
		return nil, false // servers hang on an empty batch
	}
	weights = make([]float64, len(rows))
	for i := range rows {
		tokens := trained(&rows[i])
		weights[i] = rows[i].Scale
		if t.probe.Normalisation.Sequences {
			weights[i] *= float64(n)
		}
		if !(weights[i] > 0) || math.IsInf(weights[i], 0) {
			return nil, false // a sum of weights that is not above 0 makes some servers explode
		}
		if !t.probe.Normalisation.Tokens || tokens == 0 {
			continue
		}
		// The server divides by the sum of the weights, whatever they are.
		if math.Abs(weights[i]*float64(tokens)-1) > exact {
			return nil, false
		}
		weights[i] = 1
	}
	return weights, true
}

// sound refuses log-probabilities after which a step would break the server for every model, at any learning rate.
func (t *Trainer) sound(r *rl.Row, logprobs floats) error {
	if !broken(r, logprobs) {
		return nil
	}
	t.model.dirty = false
	return lost(&Error{Operation: "forward_backward", Kind: ErrServer,
		Detail: fmt.Sprintf("a logprob of attempt %d at task %s is not finite; to fix: restart the server, whose "+
			"gradient is broken", r.Attempt, r.Task)})
}

// Accepts refuses a row that the server would compute something else from, or break on. Its error wraps rl.ErrTooLong
// where the row is only longer than the server takes.
func (t *Trainer) Accepts(r *rl.Row) error { return t.limits.check(r) }
