package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"deepswe/rl"
)

// shards is the number of partial gradients of a pass. It is fixed, and they are added up in order, so that the sum
// does not depend on how many goroutines filled them.
const shards = 8

// Forward returns the logprobs of the rows' trained tokens under the current weights. The rows are the policy's own, as
// for ForwardBackward.
func (p *Trainer) Forward(ctx context.Context, rows []rl.Row) ([][]float64, error) {
	logprobs := make([][]float64, len(rows))
	err := p.parallel(ctx, len(rows), func(i int) (err error) {
		_, logprobs[i], err = p.forward(&rows[i])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("embedded policy: forward: %w", err)
	}
	return logprobs, nil
}

// forward returns the logprobs of a row's trained tokens under the current weights.
func (p *Trainer) forward(r *rl.Row) (pass, []float64, error) {
	x, err := p.plan(*r)
	if err != nil {
		return x, nil, fmt.Errorf("row %d of attempt %d at task %s: %w", r.Row, r.Attempt, r.Task, err)
	}
	logprobs := make([]float64, len(r.IDs))
	x.forward(p.network, p.weights, r.IDs, logprobs)
	return x, logprobs, nil
}

// ForwardBackward accumulates the gradient over the rows. They must be the policy's own: it returns an error for an
// answer that cannot have been sampled with its vocabulary and windows. If the objective is decoupled, the old policy
// is the published one.
func (p *Trainer) ForwardBackward(ctx context.Context, rows []rl.Row, o rl.Objective) (rl.Pass, error) {
	passes := make([]pass, len(rows))
	logprobs := make([][]float64, len(rows))
	old, slope := make([][]float64, len(rows)), make([][]float64, len(rows))
	err := p.parallel(ctx, len(rows), func(i int) (err error) {
		passes[i], logprobs[i], err = p.forward(&rows[i])
		slope[i] = make([]float64, len(rows[i].IDs))
		if err == nil && o.Decoupled {
			old[i] = make([]float64, len(rows[i].IDs))
			x := pass{turns: passes[i].turns, trains: passes[i].trains}
			x.forward(p.network, p.published.weights, rows[i].IDs, old[i])
		}
		return err
	})
	if err != nil {
		return rl.Pass{}, fmt.Errorf("embedded policy: forward: %w", err)
	}
	stats, err := rl.Loss(rows, logprobs, old, o, slope)
	if err != nil {
		return rl.Pass{}, fmt.Errorf("embedded policy: %w", err)
	}
	for i := range passes {
		for _, entropy := range passes[i].entropies {
			stats.Entropy += entropy
			stats.EntropyTokens++
			stats.Loss -= o.Entropy * rows[i].Scale * entropy
		}
	}
	if err := p.backward(ctx, rows, passes, slope, o.Entropy); err != nil {
		return rl.Pass{}, fmt.Errorf("embedded policy: backward: %w", err)
	}
	return rl.Pass{Stats: stats, Logprobs: logprobs}, nil
}

// pass is the work on one row: the replies with a trained token, their decoders, and the entropies at the trained
// tokens in order.
type pass struct {
	turns     []turn
	trains    []bool // for each place of the row
	decoders  []decoder
	entropies []float64
}

// plan finds the trained tokens of a row and refuses what this network cannot have sampled.
func (p *Trainer) plan(r rl.Row) (pass, error) {
	if len(r.Mask) != len(r.IDs) {
		return pass{}, fmt.Errorf("%d ids and a mask of %d", len(r.IDs), len(r.Mask))
	}
	if err := p.readable(r.IDs); err != nil {
		return pass{}, err
	}
	out := pass{trains: make([]bool, len(r.IDs))}
	trained, found := 0, 0
	for t, m := range r.Mask {
		if m != 0 {
			out.trains[t] = true
			trained++
		}
	}
	if trained == 0 {
		return out, nil
	}
	for _, turn := range p.tokens.turns(r.IDs) {
		n := 0
		for t := turn.start; t < turn.end; t++ {
			if !out.trains[t] {
				continue
			}
			n++
			switch {
			case int(r.IDs[t]) >= p.tokens.spoken():
				return pass{}, fmt.Errorf("token %d is trained, but a policy cannot sample id %d", t, r.IDs[t])
			case t-turn.start >= p.options.Reply:
				return pass{}, fmt.Errorf("token %d is trained, but is beyond the %d tokens of an answer", t, p.options.Reply)
			}
		}
		if n == 0 {
			continue
		}
		if err := p.network.check(turn.context); err != nil {
			return pass{}, fmt.Errorf("before token %d: %w", turn.start, err)
		}
		found += n
		out.turns = append(out.turns, turn)
	}
	if found != trained {
		return pass{}, fmt.Errorf("%d of %d trained tokens are outside an answer", trained-found, trained)
	}
	return out, nil
}

// forward sets logprobs at the trained tokens and keeps the decoders.
func (x *pass) forward(n network, w []float64, ids []int32, logprobs []float64) {
	x.decoders, x.entropies = x.decoders[:0], x.entropies[:0]
	for _, turn := range x.turns {
		d := n.beginContext(w, turn.context)
		for t := turn.start; t < x.end(turn); t++ {
			lp, entropy := d.predict(true)
			if x.trains[t] {
				logprobs[t] = lp[ids[t]]
				x.entropies = append(x.entropies, entropy)
			}
			d.push(ids[t])
		}
		x.decoders = append(x.decoders, d)
	}
}

// end returns the position after the last trained token of a turn.
func (x *pass) end(t turn) int {
	end := t.end
	for end > t.start && !x.trains[end-1] {
		end--
	}
	return end
}

// backward adds the gradient of a loss with the given derivatives with respect to the log-probabilities to g.
func (x *pass) backward(ids []int32, dlogprobs []float64, dentropy float64, g []float64) {
	for i, turn := range x.turns {
		from, to := turn.start, x.end(turn)
		x.decoders[i].backward(ids[from:to], x.trains[from:to], dlogprobs[from:to], dentropy, g)
	}
}

func (p *Trainer) backward(ctx context.Context, rows []rl.Row, passes []pass, dlogprobs [][]float64,
	entropy float64) error {
	n := min(shards, len(rows))
	for len(p.partial) < n {
		p.partial = append(p.partial, make([]float64, len(p.weights)))
	}
	err := p.parallel(ctx, n, func(k int) error {
		g := p.partial[k]
		clear(g)
		for i := k * len(rows) / n; i < (k+1)*len(rows)/n; i++ {
			passes[i].backward(rows[i].IDs, dlogprobs[i], -entropy*rows[i].Scale, g)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, g := range p.partial[:n] {
		add(p.gradient, g)
	}
	p.pending = p.pending || n > 0
	return nil
}

// Step applies the accumulated gradient with Adam and clears it. A gradient that is not finite changes nothing, the
// count of steps included.
func (p *Trainer) Step(_ context.Context, o rl.Optimizer) (rl.StepStats, error) {
	for name, v := range map[string]float64{"learning rate": o.LearningRate, "scale of the gradient": o.Scale} {
		if !(v >= 0) || math.IsInf(v, 1) {
			return rl.StepStats{}, fmt.Errorf("embedded policy: %s %g: want a number from 0", name, v)
		}
	}
	o.Beta1, o.Beta2, o.Epsilon = cmp.Or(o.Beta1, 0.9), cmp.Or(o.Beta2, 0.999), cmp.Or(o.Epsilon, 1e-8)
	scale := cmp.Or(o.Scale, 1)
	norm := scale * math.Sqrt(dot(p.gradient, p.gradient))
	stats := rl.StepStats{GradientNorm: norm}
	defer func() {
		clear(p.gradient)
		p.pending = false
	}()
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		stats.Skipped = true
		return stats, nil
	}
	factor := scale
	if o.ClipNorm > 0 && norm > o.ClipNorm {
		factor = scale * (o.ClipNorm / norm)
	}
	p.steps++
	bias1 := 1 - math.Pow(o.Beta1, float64(p.steps))
	bias2 := 1 - math.Pow(o.Beta2, float64(p.steps))
	for i, g := range p.gradient {
		g *= factor
		p.first[i] = o.Beta1*p.first[i] + (1-o.Beta1)*g
		p.second[i] = o.Beta2*p.second[i] + (1-o.Beta2)*g*g
		update := p.first[i]/bias1/(math.Sqrt(p.second[i]/bias2)+o.Epsilon) + o.WeightDecay*p.weights[i]
		p.weights[i] -= o.LearningRate * update
	}
	return stats, nil
}

// Publish returns a model that samples from the current weights. A fresh policy is version 0, and each publication of
// changed weights increments it. Unchanged weights keep their version, so that a resumed run counts on as if it had
// never stopped.
func (p *Trainer) Publish(context.Context) (rl.Policy, error) {
	if !slices.Equal(p.published.weights, p.weights) {
		p.publish(p.published.version + 1)
	}
	return rl.Policy{Model: sampler{p, p.published}, Version: p.published.version}, nil
}

// Close does nothing.
func (p *Trainer) Close() error { return nil }

// parallel calls do for 0 to n-1 from at most p.options.Workers goroutines and returns their errors in that order.
func (p *Trainer) parallel(ctx context.Context, n int, do func(int) error) error {
	errs := make([]error, n)
	var g errgroup.Group
	g.SetLimit(p.options.Workers)
	for i := range n {
		g.Go(func() error {
			if errs[i] = ctx.Err(); errs[i] == nil {
				errs[i] = do(i)
			}
			return nil
		})
	}
	_ = g.Wait() // errs has the errors in order
	return errors.Join(errs...)
}

// Accepts refuses a row that this network cannot have sampled.
func (p *Trainer) Accepts(r *rl.Row) error {
	_, err := p.plan(*r)
	return err
}
