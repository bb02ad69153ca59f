package ranking

import (
	"fmt"
	"math"
	"slices"

	"deepswe/verify/plot"
	"deepswe/verify/rank"
	"deepswe/verify/swe"
)

// Curve is a rate for each k. A task with fewer than k candidates counts with all that it has; Tasks of a point is how
// many tasks have k.
type Curve struct {
	Name   string         `json:"name"`
	Points []swe.Estimate `json:"points"`
}

// ExecThenScore is the name of the curve of tests alone, with ties broken by score.
const ExecThenScore = "exec, then score"

// Oracle is the name of the curve of Pass@k, which a verifier without errors would reach.
const Oracle = "oracle"

// curves computes Best@k for every verifier with recorded scores or results, over the tasks whose truth is known.
func (r *Ranking) curves() []Curve {
	sets, most := r.known()
	curves := []Curve{}
	if len(sets) == 0 {
		return curves
	}
	has := func(what func(rank.Scored) bool) bool {
		return slices.ContainsFunc(sets, func(s []rank.Scored) bool { return slices.ContainsFunc(s, what) })
	}
	scored := has(func(c rank.Scored) bool { return c.Score != nil })
	tested := has(func(c rank.Scored) bool { return c.Tests != nil })
	for _, v := range rank.Verifiers() {
		if v.Judges() && !scored || v.Tests() && !tested {
			continue
		}
		rule := rank.Rule{Verifier: v, Top: r.Rule.Top}
		curves = append(curves, curve(string(v), sets, most, rule.BestAtK))
		if v == rank.Exec && scored { // the hybrid rule without a cut
			rule = rank.Rule{Verifier: rank.Hybrid, Top: math.MaxInt}
			curves = append(curves, curve(ExecThenScore, sets, most, rule.BestAtK))
		}
	}
	return append(curves, curve(Oracle, sets, most, func(cs []rank.Scored, k int) float64 {
		solved := 0
		for _, c := range cs {
			solved += countIf(c.Solved)
		}
		return swe.PassAtK(len(cs), solved, k)
	}))
}

// known returns the candidates of every task whose truth is known, and the maximum number of candidates.
func (r *Ranking) known() (sets [][]rank.Scored, most int) {
	for _, c := range r.contests {
		var set []rank.Scored
		for i, one := range c.candidates() {
			if solved := c.set.Entries[i].Solved; solved != nil {
				set = append(set, rank.Scored{Candidate: one, Solved: *solved})
			}
		}
		if len(set) > 0 {
			sets = append(sets, set)
			most = max(most, len(set))
		}
	}
	return sets, most
}

// Up to allK, every k has a point. Beyond it, only powers of two and the last k have one.
const allK = 32

func curve(name string, sets [][]rank.Scored, most int, at func([]rank.Scored, int) float64) Curve {
	c := Curve{Name: name}
	for k := 1; k <= most; k++ {
		if k > allK && k != most && k&(k-1) != 0 {
			continue
		}
		var rates []float64
		made, enough := 0, 0
		for _, set := range sets {
			rates = append(rates, at(set, min(k, len(set))))
			made += len(set)
			enough += countIf(len(set) >= k)
		}
		point := swe.MeanRate(k, rates, made)
		point.Tasks = enough
		c.Points = append(c.Points, point)
	}
	return c
}

// Table returns the curves as a table: a column for each k that is a power of two, and for the last. The first row is
// the head, the second one the number of tasks with k candidates. It is empty without curves.
func (rep *Report) Table() [][]string {
	if len(rep.Curves) == 0 {
		return nil
	}
	points := rep.Curves[0].Points
	rows := [][]string{{"best of"}, {"tasks with as many"}}
	for _, c := range rep.Curves {
		rows = append(rows, []string{c.Name})
	}
	for i, p := range points {
		if p.K&(p.K-1) != 0 && i != len(points)-1 {
			continue
		}
		rows[0], rows[1] = append(rows[0], fmt.Sprint(p.K)), append(rows[1], fmt.Sprint(p.Tasks))
		for n, c := range rep.Curves {
			rows[n+2] = append(rows[n+2], plot.Percent(c.Points[i].Rate))
		}
	}
	return rows
}
