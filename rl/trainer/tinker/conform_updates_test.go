package tinker_test

import (
	"math"
	"testing"

	"deepswe/rl"
	"deepswe/rl/trainer/tinker"
	"deepswe/rl/trainer/trainertest"
)

// sampledRows returns rows that the trainer's first policy has sampled.
func (c *conformance) sampledRows(t *testing.T, trainer *tinker.Trainer) []rl.Row {
	t.Helper()
	p, err := trainer.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c.rows(t, p)
}

// losses takes the same step in several ways, each from the same initial weights.
func (c *conformance) losses(t *testing.T) {
	first := c.open(t, "", nil)
	defer first.Close()
	rows := c.sampledRows(t, first)
	before, err := first.Forward(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	want := c.after(t, first, rows, len(rows), 1)
	if far(before, want) < 100*trainertest.Tolerance {
		t.Fatalf("the step changed logprobs by %.3g only", far(before, want))
	}
	for _, v := range []struct {
		name   string
		change func(*tinker.Options)
		part   int
		scale  float64
	}{
		{"in requests of one row", func(o *tinker.Options) { o.Model.ChunkBytes = 1 }, len(rows), 1},
		{"in parts of an update, scaled", nil, 1, 0.5},
	} {
		t.Run(v.name, func(t *testing.T) {
			trainer := c.open(t, "", v.change)
			defer trainer.Close()
			got := c.after(t, trainer, rows, v.part, v.scale)
			if d := far(want, got); d > trainertest.Tolerance {
				t.Errorf("logprobs differ by %.3g after the step", d)
			} else {
				t.Logf("after the step logprobs differ by %.2g", d)
			}
		})
	}
}

// streamed takes two steps whose gradients are sent at once, row by row as they come, or in part only when the total is
// known. The trainers assume that the server sums; if it does not, all gradients change in the same way. The last way
// is skipped on a server that averages over rows, which a correction would count twice.
func (c *conformance) streamed(t *testing.T) {
	sampler := c.open(t, "", nil)
	defer sampler.Close()
	rows := c.sampledRows(t, sampler)
	var norm float64
	var want [][]float64
	for _, way := range []struct {
		name      string
		part      int
		estimated bool
		scale     float64
	}{{"at once", len(rows), true, 1}, {"row by row", 1, false, 1}, {"another total", 3, false, 0.8}} {
		if way.scale != 1 && c.known.Normalisation.Sequences {
			continue
		}
		t.Run(way.name, func(t *testing.T) {
			trainer := c.open(t, "", func(o *tinker.Options) { o.Known = &tinker.Probe{} })
			defer trainer.Close()
			var err error
			var got rl.StepStats
			for range 2 {
				for from := 0; from < len(rows); from += way.part {
					part := append([]rl.Row(nil), rows[from:min(from+way.part, len(rows))]...)
					for i := range part {
						part[i].Scale /= way.scale
					}
					o := rl.Objective{Estimated: way.estimated}
					if _, err := trainer.ForwardBackward(t.Context(), part, o); err != nil {
						t.Fatal(err)
					}
				}
				o := c.optimizer()
				o.Scale = way.scale
				if got, err = trainer.Step(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			logprobs, err := trainer.Forward(t.Context(), rows)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				norm, want = got.GradientNorm, logprobs
			}
			d, apart := far(want, logprobs), math.Abs(got.GradientNorm/norm-1)
			if d > trainertest.Tolerance || apart > trainertest.Tolerance {
				t.Errorf("after the steps logprobs differ by %.3g, and the norm by a share of %.3g", d, apart)
			}
			t.Logf("after the steps logprobs differ by %.2g, and the norm of the gradient, %.6g, by a share of %.2g", d,
				got.GradientNorm, apart)
		})
	}
}

// plain are objectives with one gradient. The server computes it itself for the first, and the client for the second,
// whose bound is never reached.
var plain = [2]rl.Objective{
	{Surrogate: "importance_sampling"}, {Surrogate: "importance_sampling", Corrections: rl.Corrections{VetoAbove: 1e300}},
}

// single compares the server's own loss with the gradient that the client computes, where the policy is not the
// sampler's. The trainers assume that the server sums.
func (c *conformance) single(t *testing.T) {
	sampler := c.open(t, "", nil)
	defer sampler.Close()
	rows := c.sampledRows(t, sampler)
	for i := range rows {
		for k, m := range rows[i].Mask {
			rows[i].Logprobs[k] += 0.5 * float64(m) * math.Sin(float64(7*i+k))
		}
	}
	var after [2]outcome
	for way, o := range plain {
		trainer := c.open(t, "", func(o *tinker.Options) { o.Known = &tinker.Probe{} })
		defer trainer.Close()
		after[way] = takeStep(t, trainer, rows, o, c.optimizer())
	}
	after[0].compare(t, after[1], trainertest.Tolerance)
}

// outcome is what a step has computed and done.
type outcome struct {
	pass  rl.Pass
	norm  float64
	after [][]float64
}

func takeStep(t *testing.T, trainer *tinker.Trainer, rows []rl.Row, o rl.Objective, by rl.Optimizer) (out outcome) {
	t.Helper()
	var step rl.StepStats
	pass, err := trainer.ForwardBackward(t.Context(), rows, o)
	if err == nil {
		step, err = trainer.Step(t.Context(), by)
	}
	if err == nil {
		out.after, err = trainer.Forward(t.Context(), rows)
	}
	if err != nil {
		t.Fatal(err)
	}
	out.pass, out.norm = pass, step.GradientNorm
	return out
}

// compare compares with another outcome, large metrics and the norm relatively.
func (o outcome) compare(t *testing.T, other outcome, within float64) {
	t.Helper()
	a, b := o.pass.Metrics(), other.pass.Metrics()
	for name, v := range b {
		if d := math.Abs(v - a[name]); !(d <= within*max(1, math.Abs(v))) {
			t.Errorf("%s is %v, want %v", name, a[name], v)
		}
	}
	before, after := far(o.pass.Logprobs, other.pass.Logprobs), far(o.after, other.after)
	norm, moved := math.Abs(o.norm/other.norm-1), far(o.after, o.pass.Logprobs)
	if !(max(before, after, norm) <= within) || moved < 100*within {
		t.Error("they are not the same")
	}
	t.Logf("logprobs differ by %.2g before the step and %.2g after it, which moved them by %.2g, and the norm, %.6g, by a "+
		"share of %.2g", before, after, moved, o.norm, norm)
}

// imitation compares the server's own cross_entropy with the gradient that the client computes, with equal weights for
// all tokens and with equal weights for all rows.
func (c *conformance) imitation(t *testing.T) {
	sampler := c.open(t, "", nil)
	defer sampler.Close()
	p, err := sampler.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows := c.rows(t, p)
	tokens := 0
	for i := range rows {
		// The rows get different numbers of trained tokens.
		mask := rows[i].Mask
		for k, left := 0, i; k < len(mask) && left > 0; k++ {
			if mask[k] != 0 {
				mask[k] = 0
				left--
			}
		}
		tokens += sum(mask)
	}
	before, err := sampler.Forward(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	for name, scale := range map[string]func(r *rl.Row) float64{
		"tokens": func(*rl.Row) float64 { return 1 / float64(tokens) },
		"rows":   func(r *rl.Row) float64 { return 1 / float64(len(rows)) / float64(sum(r.Mask)) },
	} {
		t.Run(name, func(t *testing.T) {
			for i := range rows {
				rows[i].Scale = scale(&rows[i])
			}
			var after [2][][]float64
			for way := range after {
				trainer := c.open(t, "", nil)
				defer trainer.Close()
				objective := rl.Objective{Surrogate: rl.CrossEntropy}
				if way == 0 {
					_, _, err = trainer.Imitate(t.Context(), rows, c.optimizer())
				} else if _, err = trainer.ForwardBackward(t.Context(), rows, objective); err == nil {
					_, err = trainer.Step(t.Context(), c.optimizer())
				}
				if err == nil {
					after[way], err = trainer.Forward(t.Context(), rows)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if d := far(after[0], after[1]); d > trainertest.Tolerance {
				t.Errorf("logprobs differ by %.3g after the step", d)
			} else {
				t.Logf("after the step logprobs differ by %.2g, and by %.2g from those before it", d, far(before, after[0]))
			}
			if far(before, after[0]) < 100*trainertest.Tolerance {
				t.Error("the step changed nothing")
			}
		})
	}
}

func (c *conformance) checkpoints(t *testing.T) {
	dir := t.TempDir()
	trainer := c.open(t, dir, nil)
	p, err := trainer.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows := c.rows(t, p)
	saved := c.after(t, trainer, rows, len(rows), 1)
	if _, err := trainer.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := trainer.Save(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	next := c.after(t, trainer, rows, len(rows), 1)
	if err := trainer.Load(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if err := trainer.Close(); err != nil {
		t.Fatal(err)
	}
	other := c.open(t, dir, nil)
	defer other.Close()
	if err := other.Load(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	restored, err := other.Forward(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	if d := far(saved, restored); d > 0 {
		t.Errorf("logprobs differ by %.3g from the saved ones", d)
	}
	if p, err := other.Publish(t.Context()); err != nil || p.Version != 1 {
		t.Errorf("the restored policy is version %d, %v", p.Version, err)
	}
	if d := far(next, c.after(t, other, rows, len(rows), 1)); d > 1e-6 {
		t.Errorf("the step after the checkpoint differs by %.3g: the optimizer was not restored", d)
	}
	if err := other.Remove(t.Context(), "one"); err != nil {
		t.Error(err)
	}
	if err := other.Load(t.Context(), "one"); err == nil {
		t.Error("a removed checkpoint was loaded")
	}
}

// after takes a step in parts of some rows, with their scale divided by scale, and returns the logprobs after it.
func (c *conformance) after(t *testing.T, trainer *tinker.Trainer, rows []rl.Row, part int, scale float64) [][]float64 {
	t.Helper()
	for from := 0; from < len(rows); from += part {
		scaled := append([]rl.Row(nil), rows[from:min(from+part, len(rows))]...)
		for i := range scaled {
			scaled[i].Scale /= scale
		}
		same, err := trainer.Forward(t.Context(), scaled)
		if err != nil {
			t.Fatal(err)
		}
		pass, err := trainer.ForwardBackward(t.Context(), scaled, rl.Objective{})
		if err != nil {
			t.Fatal(err)
		}
		if d := far(same, pass.Logprobs); d > trainertest.Tolerance {
			t.Errorf("the gradient was computed from logprobs that differ by %.3g from those of a forward pass", d)
		}
	}
	o := c.optimizer()
	o.Scale = scale
	if _, err := trainer.Step(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	logprobs, err := trainer.Forward(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	return logprobs
}

// far returns the largest difference.
func far(a, b [][]float64) float64 {
	worst := 0.0
	for i := range a {
		for t := range a[i] {
			worst = max(worst, math.Abs(a[i][t]-b[i][t]))
		}
	}
	return worst
}

func sum(mask []uint8) int {
	n := 0
	for _, m := range mask {
		n += int(m)
	}
	return n
}
