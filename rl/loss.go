package rl

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"
)

// MaxLogRatio bounds every log-ratio before it is exponentiated, as verl does: beyond it a ratio is noise, and the
// token has no gradient.
const MaxLogRatio = 20

// Loss evaluates the objective over rows and, where grad is not nil, its gradient.
//
// current[i][t] is the logprob that the policy now gives to rows[i].IDs[t], and is ignored where Mask is 0; old[i][t]
// is the old policy's, and nil means the sampler's, Row.Logprobs. A Decoupled objective needs old; a trainer that
// makes one update per batch passes current for it. grad[i][t] is set to dLoss/dcurrent[i][t]; grad may be current
// itself, which is then overwritten. All have the shape of the rows' IDs.
//
// Rows are shared out over the processors, and neither the loss nor the gradient depends on their number. Nothing is
// checked for NaN: a NaN comes out as NaN, so that a step can be skipped.
func Loss(rows []Row, current, old [][]float64, o Objective, grad [][]float64) (Stats, error) {
	o, err := o.resolve()
	if err != nil {
		return Stats{}, err
	}
	if err := checkShapes(rows, current, old, o, grad); err != nil {
		return Stats{}, err
	}
	parts := make([]Stats, len(rows))
	parallel(len(rows), func(i int) {
		r := rowLoss{row: &rows[i], current: current[i], old: rows[i].Logprobs, o: &o}
		if o.Decoupled {
			r.old = old[i]
		}
		if grad != nil {
			r.grad = grad[i]
		}
		parts[i] = r.evaluate()
	})
	var s Stats
	for _, p := range parts {
		s.Add(p)
	}
	return s, nil
}

// wordStart is where a word begins in the name of a field.
var wordStart = regexp.MustCompile(`([a-z])([A-Z])`)

// resolve fills in the defaults and refuses invalid values.
func (o Objective) resolve() (Objective, error) {
	o.ClipLow, o.ClipHigh = cmp.Or(o.ClipLow, 0.2), cmp.Or(o.ClipHigh, 0.28)
	o.RatioMax = cmp.Or(o.RatioMax, 5)
	o.GatePositive, o.GateNegative = cmp.Or(o.GatePositive, 1), cmp.Or(o.GateNegative, 1.05)
	var err error
	o.Surrogate, err = choose(cmp.Or(o.Surrogate, PPO), append(sampledSurrogates(), CrossEntropy)...)
	if err != nil {
		return o, fmt.Errorf("objective: surrogate %w", err)
	}
	c := o.Corrections
	for _, numbers := range []any{o, c} {
		for f, v := range reflect.ValueOf(numbers).Fields() {
			if v.Kind() == reflect.Float64 && (!(v.Float() >= 0) || math.IsInf(v.Float(), 1)) {
				name := strings.ToLower(wordStart.ReplaceAllString(f.Name, "$1 $2"))
				return o, fmt.Errorf("objective: %s is %v; want 0 or more", name, v.Float())
			}
		}
	}
	truncates := c.TruncateToken > 0 || c.TruncateSequence > 0
	switch {
	case o.Surrogate == CrossEntropy && (o.Decoupled || c != (Corrections{}) || o.Entropy != 0 || o.MismatchPenalty != 0):
		return o, fmt.Errorf("objective: %s has no sampler, so neither decoupled, corrections, entropy nor mismatch penalty "+
			"apply", o.Surrogate)
	case o.ClipLow > 1:
		return o, fmt.Errorf("objective: clip low is %v; above 1 the lower bound of the ratio would be negative", o.ClipLow)
	case o.DualClip != 0 && o.DualClip <= 1:
		return o, fmt.Errorf("objective: dual clip is %v; want a number above 1, or 0 for off", o.DualClip)
	case c.TruncateToken > 0 && c.TruncateSequence > 0:
		return o, fmt.Errorf("objective: token and sequence truncation are both on; turn one off")
	case truncates && o.Surrogate != Reinforce && !o.Decoupled:
		return o, fmt.Errorf("objective: truncation would count the ratio of %s twice; set decoupled, "+
			"or take the surrogate %s", o.Surrogate, Reinforce)
	case c.TokenMax > 0 && c.TokenMin > c.TokenMax:
		return o, fmt.Errorf("objective: token min %v is above token max %v", c.TokenMin, c.TokenMax)
	case c.DivergenceTV > 0 && c.DivergenceKL > 0:
		return o, errors.New("objective: both divergences are bounded; turn one off")
	case o.RatioMin > o.RatioMax:
		return o, fmt.Errorf("objective: ratio min %v is above ratio max %v", o.RatioMin, o.RatioMax)
	case c.DivergenceLow > 0 && c.DivergenceTV == 0 && c.DivergenceKL == 0:
		return o, errors.New("objective: divergence low is the bound of a divergence for negative advantages; set " +
			"divergence tv or divergence kl as well")
	case c.ProductMax > 0 && c.ProductMin > c.ProductMax:
		return o, fmt.Errorf("objective: product min %v is above product max %v", c.ProductMin, c.ProductMax)
	case c.GeometricMax > 0 && c.GeometricMin > c.GeometricMax:
		return o, fmt.Errorf("objective: geometric min %v is above geometric max %v", c.GeometricMin, c.GeometricMax)
	}
	return o, nil
}

func checkShapes(rows []Row, current, old [][]float64, o Objective, grad [][]float64) error {
	if len(current) != len(rows) {
		return fmt.Errorf("loss: logprobs of %d rows for %d rows", len(current), len(rows))
	}
	if o.Decoupled && len(old) != len(rows) {
		return fmt.Errorf("loss: the objective is decoupled and needs the old policy's logprobs of all %d rows, not of %d",
			len(rows), len(old))
	}
	if grad != nil && len(grad) != len(rows) {
		return fmt.Errorf("loss: gradients of %d rows for %d rows", len(grad), len(rows))
	}
	for i := range rows {
		r := &rows[i]
		n := len(r.IDs)
		ok := len(r.Mask) == n && len(r.Logprobs) == n && len(current[i]) == n
		ok = ok && (r.Advantages == nil || len(r.Advantages) == n)
		ok = ok && (!o.Decoupled || len(old[i]) == n) && (grad == nil || len(grad[i]) == n)
		if !ok {
			return fmt.Errorf("loss: row %d of task %s attempt %d has %d ids, "+
				"but a mask, logprobs, advantages or gradient of another length", r.Row, r.Task, r.Attempt, n)
		}
	}
	return nil
}

// rowLoss evaluates one row. grad is nil if no gradient is wanted, and may be the same slice as current.
type rowLoss struct {
	row          *Row
	current, old []float64
	grad         []float64
	o            *Objective
	whole        rowRatio // of GSPO
	advantage    float64  // of the token that is evaluated
}

func (r *rowLoss) evaluate() Stats {
	if r.o.Surrogate == CrossEntropy {
		return r.imitate()
	}
	s := Stats{Rows: 1}
	weight, keep := 1.0, true
	if r.o.Corrections != (Corrections{}) {
		weight, keep = r.correct(&s)
	}
	limit := r.o.Corrections.TruncateToken
	if r.o.Surrogate == GSPO {
		r.whole = r.rowRatio()
	}
	for t, m := range r.row.Mask {
		if m == 0 {
			if r.grad != nil {
				r.grad[t] = 0
			}
			continue
		}
		r.advantage = r.row.AdvantageOf(t)
		d := clampLog(r.current[t] - r.old[t])
		ratio := math.Exp(d)
		s.add(d, ratio)
		var value, slope float64
		if keep && r.keepsToken(&s, t) {
			value, slope = r.surrogate(&s, r.current[t], d, ratio, r.advantage*r.row.Scale)
			w := weight
			if limit > 0 {
				w = min(math.Exp(clampLog(r.trainer(t)-r.row.Logprobs[t])), limit)
			}
			value, slope = w*value, w*slope
		}
		if penalty := r.o.MismatchPenalty * r.row.Scale; penalty > 0 {
			apart := clampLog(r.current[t] - r.row.Logprobs[t])
			value, slope = value-penalty*apart*apart, slope-2*penalty*apart
		}
		s.Loss -= value
		if r.grad != nil {
			r.grad[t] = -slope
		}
	}
	return s
}

// imitate is the cross-entropy of the trained tokens.
func (r *rowLoss) imitate() Stats {
	s := Stats{Rows: 1}
	for t, m := range r.row.Mask {
		slope := 0.0
		if m != 0 {
			s.Tokens++
			s.Loss -= r.row.Scale * r.current[t]
			slope = -r.row.Scale
		}
		if r.grad != nil {
			r.grad[t] = slope
		}
	}
	return s
}

// correct applies the corrections for whole rows, before the tokens are evaluated. It returns the row's weight (1
// except with TruncateSequence) and whether to keep the row.
func (r *rowLoss) correct(s *Stats) (weight float64, keep bool) {
	c := &r.o.Corrections
	var sum, clamped float64
	low, high, n := 0.0, 0.0, 0
	truncated := 0
	for t, m := range r.row.Mask {
		if m == 0 {
			continue
		}
		raw := r.trainer(t) - r.row.Logprobs[t]
		d := clampLog(raw)
		ratio := math.Exp(d)
		low, high = widen(n, low, high, 1, ratio, ratio)
		n++
		sum += raw
		clamped += d
		if c.TruncateToken > 0 && ratio > c.TruncateToken {
			truncated++
		}
	}
	if n == 0 {
		return 1, true
	}
	mean := math.Exp(clamped / float64(n))
	switch {
	case c.VetoBelow > 0 && low < c.VetoBelow, c.VetoAbove > 0 && high > c.VetoAbove:
		s.VetoedRows, s.MaskedTokens = 1, n
		return 0, false
	case mean < c.GeometricMin, c.GeometricMax > 0 && mean > c.GeometricMax:
		s.GeometricRows, s.MaskedTokens = 1, n
		return 0, false
	}
	product := math.Exp(clampLog(sum))
	if product < c.ProductMin || c.ProductMax > 0 && product > c.ProductMax {
		s.ProductRows, s.MaskedTokens = 1, n
		return 0, false
	}
	s.TruncatedTokens = truncated
	if c.TruncateSequence == 0 {
		return 1, true
	}
	if product > c.TruncateSequence {
		s.TruncatedTokens = n
	}
	return min(product, c.TruncateSequence), true
}

// keepsToken applies the corrections for single tokens.
func (r *rowLoss) keepsToken(s *Stats, t int) bool {
	c := &r.o.Corrections
	if c.TokenMin > 0 || c.TokenMax > 0 {
		m := math.Exp(clampLog(r.trainer(t) - r.row.Logprobs[t]))
		if m < c.TokenMin || c.TokenMax > 0 && m > c.TokenMax {
			s.RatioTokens++
			return false
		}
	}
	if c.DivergenceTV == 0 && c.DivergenceKL == 0 {
		return true
	}
	p, q := math.Exp(min(0, r.current[t])), math.Exp(min(0, r.row.Logprobs[t]))
	if r.advantage > 0 && p <= q || r.advantage < 0 && p >= q || r.advantage == 0 {
		return true
	}
	bound := max(c.DivergenceTV, c.DivergenceKL) // one of them is on
	if r.advantage < 0 && c.DivergenceLow > 0 {
		bound = c.DivergenceLow
	}
	if c.DivergenceTV > 0 && math.Abs(p-q) > bound || c.DivergenceKL > 0 && binaryKL(q, p) > bound {
		s.DivergentTokens++
		return false
	}
	return true
}

// binaryKL is KL(q || p) of two events with these probabilities. It is infinite where p rules out what q does not.
func binaryKL(q, p float64) float64 {
	part := func(q, p float64) float64 {
		if q == 0 {
			return 0
		}
		return q * math.Log(q/p)
	}
	return part(q, p) + part(1-q, 1-p)
}

// trainer is the trainer's logprob that corrections compare with the sampler's.
func (r *rowLoss) trainer(t int) float64 {
	if r.o.Decoupled {
		return r.old[t]
	}
	return r.current[t]
}

// clampLog bounds a log-ratio and keeps NaN.
func clampLog(d float64) float64 {
	return max(-MaxLogRatio, min(MaxLogRatio, d))
}

// parallel calls do(0) to do(n-1), each once, from as many goroutines as there are processors, and returns when all are
// done. What do(i) computes must depend on i alone.
func parallel(n int, do func(i int)) {
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		g.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = g.Wait() // no call fails
}
