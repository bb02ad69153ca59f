package tinker

import (
	"cmp"
	"context"
	"math"
	"slices"

	"deepswe/rl"
)

// ForwardBackward evaluates the objective over the rows. Step sends the gradient.
func (t *Trainer) ForwardBackward(ctx context.Context, rows []rl.Row, o rl.Objective) (rl.Stats, error) {
	if err := t.accepts(rows, o); err != nil {
		return rl.Stats{}, err
	}
	if err := t.ready(ctx); err != nil {
		return rl.Stats{}, err
	}
	current, err := t.forward(ctx, rows)
	if err != nil {
		return rl.Stats{}, err
	}
	slope := make([][]float64, len(rows))
	for i := range rows {
		slope[i] = make([]float64, len(rows[i].IDs))
	}
	// For a decoupled objective: no weight has changed since the policy was published.
	stats, err := rl.Loss(rows, current, current, o, slope)
	if err != nil {
		return rl.Stats{}, err
	}
	t.last = o
	for i := range rows {
		t.broken = t.broken || slices.ContainsFunc(slope[i], infinite)
		if s := (share{&rows[i], current[i], slope[i]}); s.hasGradient() {
			t.pending = append(t.pending, s)
		}
	}
	return stats, nil
}

// accepts returns an error for rows or objectives that cannot be computed correctly.
func (t *Trainer) accepts(rows []rl.Row, o rl.Objective) error {
	const path = "forward_backward"
	switch {
	case len(rows) == 0:
		return invalidf(path, "an empty batch")
	case o.Decoupled && t.moved:
		return invalidf(path, "the objective is decoupled, and the weights have changed since they were published; "+
			"to fix: set optimizer.minibatches and optimizer.epochs to 1, or decoupled to false")
	case len(t.pending) > 0 && t.last != o:
		return invalidf(path, "the parts of an update have different objectives")
	}
	if err := t.limits.checkAll(rows); err != nil {
		return err
	}
	if err := Supports(o); err != nil {
		return invalidf(path, "%v", err)
	}
	return nil
}

// Forward returns the log-probabilities that the current weights give to the rows' trained tokens.
func (t *Trainer) Forward(ctx context.Context, rows []rl.Row) ([][]float64, error) {
	if err := t.limits.checkAll(rows); err != nil {
		return nil, err
	}
	if err := t.ready(ctx); err != nil {
		return nil, err
	}
	return t.forward(ctx, rows)
}

// forward returns the trainer's log-probabilities of the rows; only those with a trained token are sent.
func (t *Trainer) forward(ctx context.Context, rows []rl.Row) ([][]float64, error) {
	out := make([][]float64, len(rows))
	var sent []rl.Row
	for i, r := range rows {
		if trained(&r) > 0 {
			sent = append(sent, r)
		} else {
			out[i] = make([]float64, len(r.IDs))
		}
	}
	if len(sent) == 0 {
		return out, nil
	}
	logprobs, err := t.model.forward(ctx, sent)
	if err != nil {
		return nil, err
	}
	for i := range out {
		if out[i] == nil {
			out[i], logprobs = logprobs[0], logprobs[1:]
		}
	}
	return out, nil
}

// Step sends the gradient and applies it. From then on, turns that the server samples wait until the next Publish.
func (t *Trainer) Step(ctx context.Context, o rl.Optimizer) (rl.StepStats, error) {
	shares, broken := t.pending, t.broken
	t.pending, t.broken = nil, false
	scale := cmp.Or(o.Scale, 1)
	if broken || infinite(scale) {
		return rl.StepStats{GradientNorm: math.NaN(), Skipped: true}, nil
	}
	a, err := adamOf(o)
	if err != nil {
		return rl.StepStats{}, err
	}
	if err := t.ready(ctx); err != nil {
		return rl.StepStats{}, err
	}
	var rows []rl.Row
	for i := range shares {
		rows = append(rows, *shares[i].row)
	}
	if len(shares) > 0 {
		in := gradientOf(shares, t.probe.Normalisation, scale)
		if _, err := t.backward(ctx, in, rows); err != nil {
			return rl.StepStats{}, err
		}
	}
	return t.apply(ctx, a, rows)
}

// apply makes the server's optimizer step. rows are the rows of the gradient that the server has accumulated.
func (t *Trainer) apply(ctx context.Context, a adam, rows []rl.Row) (rl.StepStats, error) {
	if err := t.gate.shut(ctx); err != nil {
		return rl.StepStats{}, lost(&Error{Operation: "optim_step", Kind: errUnavailable,
			Detail: "turns under way did not end: " + err.Error()})
	}
	t.moved = true
	norm, known, err := t.model.step(ctx, a)
	switch {
	case err != nil:
		return rl.StepStats{}, err
	case known && math.IsNaN(norm):
		return t.unsound(ctx, rows)
	case known && norm == 0 && len(rows) > 0:
		return rl.StepStats{}, lost(faultf("optim_step", "the norm of the gradient is 0, although %d rows have a gradient: "+
			"the server executed the operations in another order", len(rows)))
	}
	return rl.StepStats{GradientNorm: norm}, nil
}

// backward sends the gradient of an update, and returns the log-probabilities of the rows' tokens in the shape of their
// ids. It refuses those that are not finite: a step after them would break the server for every model, at any learning
// rate.
func (t *Trainer) backward(ctx context.Context, in passInput, rows []rl.Row) ([][]float64, error) {
	out, err := t.model.pass(ctx, "forward_backward", in, true)
	if err != nil {
		return nil, err
	}
	current := make([][]float64, len(out))
	for i, logprobs := range out {
		current[i] = append([]float64{0}, logprobs...)
		for k, lp := range current[i] {
			if rows[i].Mask[k] != 0 && infinite(lp) {
				t.model.dirty = false
				return nil, lost(faultf("forward_backward", "a logprob of %s is not finite; to fix: restart the server, whose "+
					"gradient is broken", nameOf(&rows[i])))
			}
		}
	}
	return current, nil
}

// unsound finds out whether the server has skipped a step whose gradient was not finite, or has broken its weights with
// it.
func (t *Trainer) unsound(ctx context.Context, rows []rl.Row) (rl.StepStats, error) {
	if len(rows) > 0 {
		if _, err := t.model.forward(ctx, rows[:1]); err != nil {
			return rl.StepStats{}, lost(err)
		}
	}
	return rl.StepStats{GradientNorm: math.NaN(), Skipped: true}, nil
}

// adamOf fills in the defaults, and returns an error for values that servers refuse.
func adamOf(o rl.Optimizer) (adam, error) {
	a := adam{
		LearningRate: o.LearningRate, Beta1: cmp.Or(o.Beta1, 0.9), Beta2: cmp.Or(o.Beta2, 0.999),
		Epsilon: cmp.Or(o.Epsilon, 1e-8), WeightDecay: o.WeightDecay, ClipNorm: o.ClipNorm,
	}
	for name, v := range map[string]float64{
		"learning rate": a.LearningRate, "beta1": a.Beta1, "beta2": a.Beta2, "epsilon": a.Epsilon,
		"weight decay": a.WeightDecay, "clip norm": a.ClipNorm,
	} {
		if !(v >= 0) || math.IsInf(v, 1) || name[:2] == "be" && v >= 1 {
			return a, invalidf("optim_step", "%s is %v", name, v)
		}
	}
	return a, nil
}
