package tinker

import (
	"context"
	"math"

	"deepswe/rl"
)

// exact is the largest difference between weights that count as equal. They are quotients of small integers.
const exact = 1e-9

// Imitate makes one update that lowers the cross-entropy of the rows' trained tokens, weighted by the scale of each
// row. If the server's own cross_entropy can express these weights, that takes one pass; otherwise it is done by
// ForwardBackward and Step. A server that divides each sequence by the sum of its weights cannot weight rows
// differently.
func (t *Trainer) Imitate(ctx context.Context, rows []rl.Row, o rl.Optimizer) (rl.Stats, rl.StepStats, error) {
	objective := rl.Objective{Surrogate: rl.CrossEntropy}
	weights, ok := t.weights(rows)
	if !ok || len(t.pending) > 0 || o.Scale != 0 {
		pass, err := t.ForwardBackward(ctx, rows, objective)
		if err != nil {
			return rl.Stats{}, rl.StepStats{}, err
		}
		step, err := t.Step(ctx, o)
		return pass.Stats, step, err
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
		if rows[i].TrainedTokens() == 0 {
			continue
		}
		d := datumOf(&rows[i])
		for k := range d.Inputs.Weights.Data {
			d.Inputs.Weights.Data[k] *= weights[i]
		}
		in.Data, sent = append(in.Data, d), append(sent, rows[i])
	}
	current, err := t.backward(ctx, in, sent)
	if err != nil {
		return rl.Stats{}, rl.StepStats{}, err
	}
	stats, err := rl.Loss(sent, current, nil, objective, nil)
	if err != nil {
		return rl.Stats{}, rl.StepStats{}, lost(err)
	}
	stats.Rows = len(rows)
	step, err := t.apply(ctx, a, sent)
	return stats, step, err
}

// weights returns, for each row, the weight of its trained tokens with which the server's cross_entropy has the
// gradient of the objective. ok is false if no such weights exist.
func (t *Trainer) weights(rows []rl.Row) (weights []float64, ok bool) {
	n := 0
	for i := range rows {
		if rows[i].TrainedTokens() > 0 {
			n++
		}
	}
	if n == 0 {
		return nil, false // servers hang on an empty batch
	}
	weights = make([]float64, len(rows))
	for i := range rows {
		tokens := rows[i].TrainedTokens()
		weights[i] = rows[i].Scale
		if t.probe.Normalisation.Sequences {
			weights[i] *= float64(n)
		}
		if !(weights[i] > 0) || math.IsInf(weights[i], 0) {
			return nil, false // servers may divide by the sum of weights
		}
		if !t.probe.Normalisation.Tokens || tokens == 0 {
			continue
		}
		// The server divides each row's loss by the sum of its weights, so only a sum of 1 can be expressed.
		if math.Abs(weights[i]*float64(tokens)-1) > exact {
			return nil, false
		}
		weights[i] = 1
	}
	return weights, true
}

// Accepts returns an error for a row that the server would misread, or that would break it. The error wraps
// rl.ErrTooLong if the row is only too long.
func (t *Trainer) Accepts(r *rl.Row) error { return t.limits.check(r) }
