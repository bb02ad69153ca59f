package rl

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"deepswe/agent/trajectory"
)

// stdEpsilon keeps the division by a standard deviation of zero finite, as in GRPO's and verl's code.
const stdEpsilon = 1e-6

// Member is the part of a rollout that is needed to compute its advantage.
type Member struct {
	Task, Group   string
	Attempt       int
	Reward        *float64
	NotGraded     bool
	StopReason    trajectory.StopReason
	PolicyVersion Version
	Shape         Shape
}

// Measure returns the part of a rollout that [Algorithm.Plan] needs. maxLength is the algorithm's.
func Measure(r *Rollout, maxLength int) Member {
	m, _ := measured(r, maxLength)
	return m
}

// measured also returns the spans that [merge] turns into rows.
func measured(r *Rollout, maxLength int) (Member, []span) {
	m := Member{
		Task: r.Task, Group: r.Group, Attempt: r.Attempt, Reward: r.Reward, NotGraded: r.NotGraded,
		StopReason: r.StopReason, PolicyVersion: r.PolicyVersion,
	}
	if !m.graded() && !m.NotGraded {
		return m, nil
	}
	spans, splits := layout(r.Turns)
	m.Shape = measure(r.Turns, spans, splits, maxLength)
	return m, spans
}

func (m *Member) graded() bool { return m.Reward != nil }

// GroupKey identifies a group. Some harnesses number groups from 0 for each task, others throughout, so the task is
// part of it.
type GroupKey struct{ task, group string }

// GroupKey identifies the group of the rollout.
func (m *Member) GroupKey() GroupKey { return GroupKey{m.Task, m.Group} }

// Disposition is how a batch uses a rollout.
type Disposition string

const (
	// Trained rollouts have rows.
	Trained Disposition = "trained"
	// Masked rollouts have rows whose mask is zero everywhere.
	Masked Disposition = "masked"
	// NoReward rollouts were dropped because they have no reward.
	NoReward Disposition = "no_reward"
	// Filtered rollouts were dropped by the filter.
	Filtered Disposition = "filtered"
	// SmallGroup rollouts were dropped with a group of too few members.
	SmallGroup Disposition = "small_group"
	// UniformGroup rollouts were dropped with a group of equal rewards.
	UniformGroup Disposition = "uniform_group"
)

// HasRows reports whether such rollouts have rows.
func (d Disposition) HasRows() bool { return d == Trained || d == Masked }

// Placement is a rollout's place in its batch.
type Placement struct {
	Disposition Disposition
	// Advantage is also set for a masked rollout, where it has no effect.
	Advantage float64
	// Scale is the share of each of its tokens in the loss, by the aggregation mode.
	Scale float64
}

// Rows merges a rollout and places its rows; a dropped one has none. Turns share a row as long as each prompt starts
// with the previous prompt and completion. Rows longer than maxLength lose their end; 0 does not limit.
func (p Placement) Rows(r Rollout, maxLength int) []Row {
	spans, _ := layout(r.Turns)
	return p.rows(r, spans, maxLength)
}

// rows makes the placed rows of a rollout from its layout.
func (p Placement) rows(r Rollout, spans []span, maxLength int) []Row {
	if !p.Disposition.HasRows() {
		return nil
	}
	rows := merge(r, spans, maxLength)
	for i := range rows {
		row := &rows[i]
		row.Advantage, row.Scale = p.Advantage, p.Scale
		for t := range row.Advantages {
			row.Advantages[t] += p.Advantage * float64(row.Mask[t])
		}
		if row.Trained = p.Disposition == Trained; !row.Trained {
			clear(row.Mask)
			clear(row.Logprobs)
			row.Advantages = nil
		}
	}
	return rows
}

// Rows turns the rollouts of a batch, all in memory, into training rows in the order of the rollouts. Rollouts that
// were dropped have none. See [Algorithm.Plan] for what is computed; a batch that does not fit into memory is planned
// with [Measure] and merged with [Placement.Rows].
func (a Algorithm) Rows(rollouts []Rollout) ([]Row, Batch, error) {
	members := make([]Member, len(rollouts))
	spans := make([][]span, len(rollouts))
	errs := make([]error, len(rollouts))
	parallel(len(rollouts), func(i int) {
		if errs[i] = a.Accepts(&rollouts[i]); errs[i] == nil {
			members[i], spans[i] = measured(&rollouts[i], a.MaxLength)
		}
	})
	for i, err := range errs {
		if err != nil {
			r := &rollouts[i]
			return nil, Batch{}, fmt.Errorf("rollout %d (task %s, attempt %d): %w", i, r.Task, r.Attempt, err)
		}
	}
	placements, batch, err := a.Plan(members)
	if err != nil {
		return nil, Batch{}, err
	}
	start := make([]int, len(rollouts)+1)
	for i, p := range placements {
		start[i+1] = start[i]
		if p.Disposition.HasRows() {
			start[i+1] += members[i].Shape.Rows
		}
	}
	rows := make([]Row, start[len(rollouts)])
	parallel(len(rollouts), func(i int) {
		copy(rows[start[i]:start[i+1]], placements[i].rows(rollouts[i], spans[i], a.MaxLength))
	})
	return rows, batch, nil
}

// Plan places the rollouts of a batch: which are dropped or masked, their advantages within their groups, and their
// share in the loss. A group is the rollouts with the same task and group. placements[i] belongs to members[i]; the
// order of members matters for nothing else.
func (a Algorithm) Plan(members []Member) (placements []Placement, batch Batch, err error) {
	if a, err = a.resolve(); err != nil {
		return nil, Batch{}, err
	}
	placements = make([]Placement, len(members))
	groups := a.group(members, placements)
	for _, g := range groups {
		a.advantages(g, members, placements)
	}
	if err := a.scales(members, placements); err != nil {
		return nil, Batch{}, err
	}
	return placements, a.summarize(members, placements, groups), nil
}

// group applies the filter and gathers the rest by task and group, in order of appearance. Each group is a list of
// indices.
func (a *Algorithm) group(members []Member, placements []Placement) [][]int {
	at := map[GroupKey]int{}
	var groups [][]int
	for i, m := range members {
		switch mode := a.Filter[m.StopReason]; {
		case !m.graded() && !m.NotGraded, m.NotGraded && a.Grades(m.StopReason):
			placements[i].Disposition = NoReward
			continue
		case mode == Drop:
			placements[i].Disposition = Filtered
			continue
		case mode == Mask:
			placements[i].Disposition = Masked
		default:
			placements[i].Disposition = Trained
		}
		g, ok := at[m.GroupKey()]
		if !ok {
			g = len(groups)
			at[m.GroupKey()] = g
			groups = append(groups, nil)
		}
		groups[g] = append(groups[g], i)
	}
	return groups
}

func (a *Algorithm) advantages(group []int, members []Member, placements []Placement) {
	n := len(group)
	drop := func(f Disposition) {
		for _, i := range group {
			placements[i].Disposition = f
		}
	}
	rewards := make([]float64, n)
	for k, i := range group {
		rewards[k] = a.baselineReward(members[i], placements[i].Disposition)
	}
	switch {
	case n < a.MinGroup, n == 1 && a.Singleton == singletonDrop:
		drop(SmallGroup)
		return
	case n > 1 && a.DropUniform && slices.Min(rewards) == slices.Max(rewards):
		drop(UniformGroup)
		return
	}
	// The penalties are ignored when checking for uniform groups: DAPO defines these by correctness.
	sum := 0.0
	for k, i := range group {
		if placements[i].Disposition == Trained || a.MaskedReward == recordedReward {
			shape := members[i].Shape
			rewards[k] += a.Overlong.penalty(shape.Sampled) + a.Steps.penalty(shape.Turns, rewards[k])
		}
		sum += rewards[k]
	}
	divisor := 1.0
	switch mean := sum / float64(n); {
	case a.Normalise == ByStd:
		divisor = sampleStd(rewards, mean) + stdEpsilon
	case a.Normalise == ByMean && mean > 0:
		divisor = mean
	case a.Normalise == ByMean:
		divisor = math.Inf(+1)
	}
	for k, i := range group {
		placements[i].Advantage = (rewards[k] - a.baseline(rewards[k], sum, n)) / divisor
	}
}

func (a *Algorithm) baselineReward(m Member, f Disposition) float64 {
	if f == Masked && a.MaskedReward != recordedReward {
		return 0
	}
	if factor, ok := a.RewardFactor[m.StopReason]; ok {
		return factor * *m.Reward
	}
	return *m.Reward
}

// baseline returns the baseline of a reward in a group of n rewards with the given sum.
func (a *Algorithm) baseline(reward, sum float64, n int) float64 {
	switch {
	case a.Baseline == NoBaseline:
		return 0
	case n == 1 && a.Singleton == singletonSelf:
		return reward
	case n == 1:
		return 0
	case a.Baseline == Mean:
		return sum / float64(n)
	default:
		return (sum - reward) / float64(n-1)
	}
}

// sampleStd is the standard deviation with n-1 in the denominator; of one value it is 1, as in verl.
func sampleStd(x []float64, mean float64) float64 {
	if len(x) == 1 {
		return 1
	}
	squares := 0.0
	for _, v := range x {
		squares += (v - mean) * (v - mean)
	}
	return math.Sqrt(squares / float64(len(x)-1))
}

// scales gives every rollout that has rows its share by the aggregation mode.
func (a *Algorithm) scales(members []Member, placements []Placement) error {
	rollouts, tokens := 0, 0
	for i, p := range placements {
		if !p.Disposition.HasRows() {
			continue
		}
		rollouts++
		if p.Disposition == Trained {
			tokens += members[i].Shape.Trained
		}
		if s := members[i].Shape; s.TruncatedRows > 0 && a.Overflow == refuse {
			return fmt.Errorf("attempt %d of task %s: %d rows are longer than the maximum length of %d by %d tokens in all; "+
				"raise it, or set overflow=truncate",
				members[i].Attempt, members[i].Task, s.TruncatedRows, a.MaxLength, s.TruncatedTokens)
		}
	}
	for i := range placements {
		p := &placements[i]
		if !p.Disposition.HasRows() {
			continue
		}
		own := 0
		if p.Disposition == Trained {
			own = members[i].Shape.Trained
		}
		p.Scale = a.Aggregation.scale(rollouts, a.MaxLength, tokens, own)
	}
	return nil
}

// Divisor is the part of the normalisation that depends on the batch: the number of rollouts with rows, or of trained
// tokens. If parts of a batch are planned separately, multiply the scale of each part by its divisor over the divisor
// of the whole batch.
func (a Algorithm) Divisor(b Batch) float64 {
	if a.Aggregation == tokenMean {
		return float64(b.TrainedTokens)
	}
	return float64(b.Dispositions[Trained] + b.Dispositions[Masked])
}

// Total is the divisor of a batch of rollouts if all of them have rows. sure is false if it depends on the rollouts
// themselves.
func (a Algorithm) Total(rollouts int) (total float64, sure bool) {
	drops := a.DropUniform || slices.Contains(slices.Collect(maps.Values(a.Filter)), Drop)
	return float64(rollouts), a.Aggregation != tokenMean && !drops
}

// scale is the share of each trained token of a rollout with own of them, in a batch with these numbers of rollouts and
// trained tokens. Without a trained token it is 0.
func (m Aggregation) scale(rollouts, maxLength, tokens, own int) float64 {
	divisor := 0.0
	switch m {
	case constantLength:
		divisor = float64(rollouts) * float64(maxLength)
	case tokenMean:
		divisor = float64(tokens)
	case sequenceMeanTokenSum:
		divisor = float64(rollouts)
	case sequenceMeanTokenMean:
		divisor = float64(rollouts) * float64(own)
	}
	if divisor == 0 {
		return 0
	}
	return 1 / divisor
}
