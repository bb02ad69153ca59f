package rl

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"deepswe/agent/trajectory"
)

// Batch describes a planned batch of rollouts. Counts are of rollouts unless stated otherwise.
type Batch struct {
	Rollouts int
	// Dispositions counts rollouts by how the batch uses them.
	Dispositions map[Disposition]int
	// Stops counts all rollouts by stop reason, MaskedStops the masked ones, and DroppedStops those that the filter
	// dropped.
	Stops, MaskedStops, DroppedStops map[trajectory.StopReason]int
	// Versions counts all by the policy that sampled them.
	Versions map[Version]int
	// NotGraded counts rollouts without a reward because they were not to be graded.
	NotGraded int
	// Duplicates have the task, group and attempt of an earlier rollout.
	Duplicates int
	// Reward is over all that have one, TrainedReward over the trained.
	Reward, TrainedReward Spread
	Groups                Groups
	// Advantage and its magnitude are over the trained.
	Advantage, AdvantageSize Spread
	// Turns, Sampled and Environment (tokens) and Length (of all tokens in its rows) are over all that have a reward or
	// were not graded.
	Turns, Sampled, Environment, Length Spread
	// Shape adds up the shapes of the rollouts that have rows.
	Shape Shape
	// TrainedTokens and TrainedRows count only those of trained rollouts.
	TrainedTokens, TrainedRows int
	// Values holds the single values that Reward, Turns, Sampled, Environment and Length summarise, by the names of
	// their metrics.
	Values map[string][]float64
}

// Groups counts groups. The solve counts are of all groups as they were sampled, before any filter, over members with a
// reward; a member with a reward of at least 1 solved its task.
type Groups struct {
	Total, SolveNone, SolvePartial, SolveAll int
	// Uniform groups have two or more members, all with the same reward; Singletons have one. Both are counted after the
	// filter, whether they are dropped or kept.
	Uniform, Singletons int
	// Effective groups have a trained member with an advantage that is not zero.
	Effective int
	// Dropped groups lost all their members after the filter: to Singleton, MinGroup or DropUniform.
	Dropped int
}

// Spread is the mean and the extremes of some values; all 0 if there are none.
type Spread struct {
	N             int
	Sum, Min, Max float64
}

func (s *Spread) add(v float64) {
	s.Min, s.Max = widen(s.N, s.Min, s.Max, 1, v, v)
	s.N++
	s.Sum += v
}

// Mean returns 0 if there are no values.
func (s Spread) Mean() float64 { return ratio(s.Sum, float64(s.N)) }

// Quantiles adds the 10th, 50th and 90th percentile of some values, interpolated between the nearest two, and their
// standard deviation with n-1 in the denominator, under a name. There are none without a value.
func Quantiles(m map[string]float64, name string, values []float64) {
	if len(values) == 0 {
		return
	}
	sorted, sum := slices.Sorted(slices.Values(values)), 0.0
	for _, v := range sorted {
		sum += v
	}
	for _, p := range []int{10, 50, 90} {
		at := float64(p) / 100 * float64(len(sorted)-1)
		low, share := int(at), at-math.Floor(at)
		high := min(low+1, len(sorted)-1)
		m[fmt.Sprintf("%s/p%d", name, p)] = sorted[low] + share*(sorted[high]-sorted[low])
	}
	m[name+"/std"] = 0
	if len(sorted) > 1 {
		m[name+"/std"] = sampleStd(sorted, sum/float64(len(sorted)))
	}
}

// ratio is 0 where b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// summarize describes a planned batch; groups are the groups after filtering.
func (a *Algorithm) summarize(members []Member, placements []Placement, groups [][]int) Batch {
	b := Batch{
		Rollouts: len(members), Dispositions: map[Disposition]int{}, Stops: map[trajectory.StopReason]int{},
		MaskedStops: map[trajectory.StopReason]int{}, DroppedStops: map[trajectory.StopReason]int{},
		Versions: map[Version]int{}, Values: map[string][]float64{},
	}
	type id struct {
		group   GroupKey
		attempt int
	}
	seen := map[id]bool{}
	for i, m := range members {
		k := id{m.GroupKey(), m.Attempt}
		if seen[k] {
			b.Duplicates++
		}
		seen[k] = true
		b.count(m, placements[i])
	}
	b.Groups.solved(members)
	for _, g := range groups {
		a.countGroup(&b.Groups, g, members, placements)
	}
	return b
}

// count adds one rollout.
func (b *Batch) count(m Member, p Placement) {
	b.Dispositions[p.Disposition]++
	b.Stops[m.StopReason]++
	b.Versions[m.PolicyVersion]++
	switch p.Disposition {
	case Masked:
		b.MaskedStops[m.StopReason]++
	case Filtered:
		b.DroppedStops[m.StopReason]++
	case Trained:
		b.TrainedReward.add(*m.Reward)
		b.Advantage.add(p.Advantage)
		b.AdvantageSize.add(math.Abs(p.Advantage))
		b.TrainedTokens += m.Shape.Trained
		b.TrainedRows += m.Shape.Rows
	}
	add := func(s *Spread, name string, v float64) {
		s.add(v)
		b.Values[name] = append(b.Values[name], v)
	}
	switch {
	case m.graded():
		add(&b.Reward, "reward", *m.Reward)
	case m.NotGraded:
		b.NotGraded++
	default:
		return
	}
	add(&b.Turns, "turns", float64(m.Shape.Turns))
	add(&b.Sampled, "tokens/sampled", float64(m.Shape.Sampled))
	add(&b.Environment, "tokens/environment", float64(m.Shape.Environment))
	add(&b.Length, "length", float64(m.Shape.Prompt+m.Shape.Sampled+m.Shape.Environment))
	if p.Disposition.HasRows() {
		b.Shape.add(m.Shape)
	}
}

func (s *Shape) add(o Shape) {
	s.Turns += o.Turns
	s.Rows += o.Rows
	s.Prompt += o.Prompt
	s.Sampled += o.Sampled
	s.Environment += o.Environment
	s.Trained += o.Trained
	s.TruncatedRows += o.TruncatedRows
	s.TruncatedTokens += o.TruncatedTokens
	s.ZeroLogprobs += o.ZeroLogprobs
	s.Splits.add(o.Splits)
}

// solved counts the groups by how many of their members solved the task.
func (g *Groups) solved(members []Member) {
	type tally struct{ members, solved int }
	tallies := map[GroupKey]tally{}
	for _, m := range members {
		if m.Reward == nil {
			continue
		}
		t := tallies[m.GroupKey()]
		t.members++
		if *m.Reward >= 1 {
			t.solved++
		}
		tallies[m.GroupKey()] = t
	}
	g.Total = len(tallies)
	for _, t := range tallies {
		switch t.solved {
		case 0:
			g.SolveNone++
		case t.members:
			g.SolveAll++
		default:
			g.SolvePartial++
		}
	}
}

// countGroup adds one group that the filter left.
func (a *Algorithm) countGroup(g *Groups, group []int, members []Member, placements []Placement) {
	if !placements[group[0]].Disposition.HasRows() {
		g.Dropped++
	}
	same, effective := true, false
	reward := func(i int) float64 {
		f := placements[i].Disposition
		// The members of a dropped group no longer have the disposition that the filter gave them.
		if a.Filter[members[i].StopReason] == Mask {
			f = Masked
		}
		return a.baselineReward(members[i], f)
	}
	for _, i := range group {
		same = same && reward(i) == reward(group[0])
		effective = effective || placements[i].Disposition == Trained && placements[i].Advantage != 0
	}
	switch {
	case len(group) == 1:
		g.Singletons++
	case same:
		g.Uniform++
	}
	if effective {
		g.Effective++
	}
}

// Metrics returns the numbers of a batch by name, for logs and plots. current is the version of the policy that the
// batch trains, for the staleness of rollouts; if it is not a number, there is no staleness. Fractions are shares of
// all rollouts in the batch. If no rollout was graded, the rewards are left out rather than 0.
func (b Batch) Metrics(current Version) map[string]float64 {
	n := float64(b.Rollouts)
	m := map[string]float64{
		"rollouts/total":             n,
		"rollouts/duplicates":        float64(b.Duplicates),
		"rollouts/not_graded":        float64(b.NotGraded),
		"groups/total":               float64(b.Groups.Total),
		"groups/solve_none":          float64(b.Groups.SolveNone),
		"groups/solve_partial":       float64(b.Groups.SolvePartial),
		"groups/solve_all":           float64(b.Groups.SolveAll),
		"groups/uniform":             float64(b.Groups.Uniform),
		"groups/singleton":           float64(b.Groups.Singletons),
		"groups/effective":           float64(b.Groups.Effective),
		"groups/dropped":             float64(b.Groups.Dropped),
		"advantage/abs_mean":         b.AdvantageSize.Mean(),
		"rows/total":                 float64(b.Shape.Rows),
		"rows/trained":               float64(b.TrainedRows),
		"rows/per_rollout":           ratio(float64(b.Shape.Rows), float64(b.Dispositions[Trained]+b.Dispositions[Masked])),
		"rows/truncated":             float64(b.Shape.TruncatedRows),
		"rows/turns_per_row":         ratio(float64(b.Shape.Turns), float64(b.Shape.Rows)),
		"tokens/trained":             float64(b.TrainedTokens),
		"tokens/truncated":           float64(b.Shape.TruncatedTokens),
		"tokens/sampled_ratio":       ratio(b.Sampled.Sum, b.Length.Sum),
		"turns/zero_logprobs":        float64(b.Shape.ZeroLogprobs),
		"splits/total":               float64(b.Shape.Splits.Total()),
		"splits/prompt_shorter":      float64(b.Shape.Splits.PromptShorter),
		"splits/prompt_diverges":     float64(b.Shape.Splits.PromptDiverges),
		"splits/completion_diverges": float64(b.Shape.Splits.CompletionDiverges),
	}
	for name, s := range map[string]Spread{
		"reward": b.Reward, "advantage": b.Advantage, "turns": b.Turns, "length": b.Length,
		"tokens/sampled": b.Sampled, "tokens/environment": b.Environment,
	} {
		if s.N > 0 {
			m[name+"/mean"], m[name+"/min"], m[name+"/max"] = s.Mean(), s.Min, s.Max
		}
		Quantiles(m, name, b.Values[name])
	}
	if b.TrainedReward.N > 0 {
		m["reward/mean_trained"] = b.TrainedReward.Mean()
	}
	for _, f := range []Disposition{Trained, Masked, NoReward, Filtered, SmallGroup, UniformGroup} {
		m["rollouts/"+string(f)] = float64(b.Dispositions[f])
	}
	// Every known reason is there at every step, so that no plot keeps an old value.
	for _, r := range slices.Concat(trajectory.StopReasons(), slices.Collect(maps.Keys(b.Stops))) {
		m["stop/"+string(r)] = ratio(float64(b.Stops[r]), n)
		m["masked/"+string(r)] = ratio(float64(b.MaskedStops[r]), n)
		m["dropped/"+string(r)] = ratio(float64(b.DroppedStops[r]), n)
	}
	b.staleness(current, m)
	return m
}

// staleness counts rollouts by the number of versions that they are older than the current policy, and those of unknown
// age.
func (b Batch) staleness(current Version, m map[string]float64) {
	now, ok := current.Number()
	if !ok {
		return
	}
	var s Spread
	unknown := 0
	for v, c := range b.Versions {
		then, ok := v.Number()
		if !ok {
			unknown += c
			continue
		}
		for range c {
			s.add(float64(now - then))
		}
		m[fmt.Sprintf("staleness/%d", now-then)] += float64(c)
	}
	m["staleness/mean"], m["staleness/max"], m["staleness/unknown"] = s.Mean(), s.Max, float64(unknown)
}

// Metrics names the numbers of a forward/backward pass. What corrections masked is a fraction of the rows, all else of
// the trained tokens.
func (s Stats) Metrics() map[string]float64 {
	n, rows := float64(s.Tokens), float64(s.Rows)
	m := map[string]float64{
		"loss/total":                 s.Loss,
		"loss/clip_fraction":         ratio(float64(s.ClippedLow+s.ClippedHigh), n),
		"loss/clip_fraction_low":     ratio(float64(s.ClippedLow), n),
		"loss/clip_fraction_high":    ratio(float64(s.ClippedHigh), n),
		"loss/clip_fraction_dual":    ratio(float64(s.DualClipped), n),
		"loss/kl_k1":                 ratio(s.KL1, n),
		"loss/kl_k3":                 ratio(s.KL3, n),
		"loss/ratio_min":             s.RatioMin,
		"loss/ratio_max":             s.RatioMax,
		"corrections/vetoed_rows":    ratio(float64(s.VetoedRows), rows),
		"corrections/geometric_rows": ratio(float64(s.GeometricRows), rows),
		"corrections/product_rows":   ratio(float64(s.ProductRows), rows),
		"corrections/masked_tokens":  ratio(float64(s.MaskedTokens), n),
		"corrections/truncated":      ratio(float64(s.TruncatedTokens), n),
		"corrections/outside":        ratio(float64(s.RatioTokens), n),
		"corrections/divergent":      ratio(float64(s.DivergentTokens), n),
	}
	if s.EntropyTokens > 0 {
		m["entropy/mean"] = s.Entropy / float64(s.EntropyTokens)
	}
	return m
}
