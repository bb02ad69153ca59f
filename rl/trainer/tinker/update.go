package tinker

import (
	"cmp"
	"context"
	"math"
	"slices"

	"deepswe/rl"
)

// ForwardBackward evaluates the objective over the rows, and sends the gradient if what the server divides it by is
// known already. Otherwise, Step sends it. Rows whose gradient the server can compute by itself need no forward pass
// before.
func (t *Trainer) ForwardBackward(ctx context.Context, rows []rl.Row, o rl.Objective) (rl.Pass, error) {
	if err := t.accepts(rows, o); err != nil {
		return rl.Pass{}, err
	}
	if err := t.ready(ctx); err != nil {
		return rl.Pass{}, err
	}
	now := !o.Estimated && !t.broken && !t.probe.Normalisation.Sequences
	current, slope := make([][]float64, len(rows)), make([][]float64, len(rows))
	for i := range rows {
		slope[i] = make([]float64, len(rows[i].IDs))
		if now && o.Plain() && computable(&rows[i]) {
			current[i] = rows[i].Logprobs // where the slope is the advantage, until the server has said its own
		}
	}
	if err := t.forward(ctx, rows, current); err != nil {
		return rl.Pass{}, err
	}
	// For a decoupled objective: no weight has changed since the policy was published.
	stats, err := rl.Loss(rows, current, current, o, slope)
	if err != nil {
		return rl.Pass{}, err
	}
	t.last = o
	var shares []share
	var places []int // of the shares among the rows
	for i := range rows {
		t.broken = t.broken || slices.ContainsFunc(slope[i], infinite)
		if slices.ContainsFunc(slope[i], func(d float64) bool { return d != 0 }) {
			shares = append(shares, share{row: &rows[i], logprobs: current[i], slope: slope[i]})
			places = append(places, i)
		}
	}
	if now && !t.broken {
		said, err := t.send(ctx, shares, 1)
		if err != nil {
			return rl.Pass{}, err
		}
		if o.Plain() {
			for i, place := range places {
				current[place] = said[i]
			}
			if stats, err = rl.Loss(rows, current, nil, o, nil); err != nil {
				return rl.Pass{}, lost(err)
			}
		}
	}
	t.pending = append(t.pending, shares...)
	return rl.Pass{Stats: stats, Logprobs: current}, nil
}

// send makes the server's gradient that of the shares times scale. It returns the log-probabilities of their rows.
func (t *Trainer) send(ctx context.Context, shares []share, scale float64) ([][]float64, error) {
	if len(shares) == 0 {
		return nil, nil
	}
	said, err := t.backward(ctx, gradientOf(shares, t.probe.Normalisation, scale), rowsOf(shares))
	for i := range shares {
		shares[i].sent = true
	}
	return said, err
}

func rowsOf(shares []share) []rl.Row {
	rows := make([]rl.Row, len(shares))
	for i := range shares {
		rows[i] = *shares[i].row
	}
	return rows
}

// accepts returns an error for rows or objectives that cannot be computed correctly.
func (t *Trainer) accepts(rows []rl.Row, o rl.Objective) error {
	const path = pathBackward
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
	out := make([][]float64, len(rows))
	return out, t.forward(ctx, rows, out)
}

// forward fills in the trainer's log-probabilities of the rows for which out has none. Rows without a trained token are
// not sent, and get zeros.
func (t *Trainer) forward(ctx context.Context, rows []rl.Row, out [][]float64) error {
	var sent []rl.Row
	for i, r := range rows {
		switch {
		case out[i] != nil:
		case r.TrainedTokens() > 0:
			sent = append(sent, r)
		default:
			out[i] = make([]float64, len(r.IDs))
		}
	}
	if len(sent) == 0 {
		return nil
	}
	logprobs, err := t.model.forward(ctx, sent)
	if err != nil {
		return err
	}
	for i := range out {
		if out[i] == nil {
			out[i], logprobs = logprobs[0], logprobs[1:]
		}
	}
	return nil
}

// Step sends what the server lacks of the gradient, and applies it. From then on, turns that the server samples wait
// until the next Publish.
func (t *Trainer) Step(ctx context.Context, o rl.Optimizer) (rl.StepStats, error) {
	shares, broken := t.pending, t.broken
	t.pending, t.broken = nil, false
	scale := cmp.Or(o.Scale, 1)
	isSent := func(s share) bool { return s.sent }
	switch isBroken := broken || infinite(scale); {
	case isBroken && slices.ContainsFunc(shares, isSent):
		return rl.StepStats{}, lost(faultf("optim_step",
			"a part of the gradient is not finite, and another is on the server"))
	case isBroken:
		return rl.StepStats{GradientNorm: math.NaN(), Skipped: true}, nil
	}
	a, err := adamOf(o)
	if err != nil {
		return rl.StepStats{}, err
	}
	if err := t.ready(ctx); err != nil {
		return rl.StepStats{}, err
	}
	rows := rowsOf(shares)
	if scale == 1 {
		shares = slices.DeleteFunc(shares, isSent)
	}
	if _, err := t.send(ctx, shares, scale); err != nil {
		return rl.StepStats{}, err
	}
	return t.apply(ctx, a, rows)
}

// apply makes the server's optimizer step. rows are the rows of the gradient that the server has accumulated.
func (t *Trainer) apply(ctx context.Context, a adam, rows []rl.Row) (rl.StepStats, error) {
	if err := t.gate.shut(ctx); err != nil {
		return rl.StepStats{}, lost(&Error{Operation: "optim_step", Kind: errUnavailable,
			Detail: "turns under way did not end", Cause: err})
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
	case !known:
		norm = math.NaN()
	}
	return rl.StepStats{GradientNorm: norm}, nil
}

// backward sends the gradient of an update, and returns the log-probabilities of the rows' tokens in the shape of their
// ids, with 0 for tokens that are not trained. It refuses those that are not finite: a step after them would break the
// server for every model, at any learning rate.
func (t *Trainer) backward(ctx context.Context, in passInput, rows []rl.Row) ([][]float64, error) {
	out, err := t.model.pass(ctx, pathBackward, in, true)
	if err != nil {
		return nil, err
	}
	current := make([][]float64, len(out))
	for i, logprobs := range out {
		current[i] = append([]float64{0}, logprobs...)
		for k, lp := range current[i] {
			switch {
			case rows[i].Mask[k] == 0:
				current[i][k] = 0
			case infinite(lp):
				t.model.dirty = false
				return nil, lost(faultf(pathBackward, "a logprob of %s is not finite; to fix: restart the server, whose "+
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
