package rl

import (
	"fmt"
	"maps"
	"slices"

	"deepswe/agent/trajectory"
)

// Metrics names the numbers of a batch for logs and plots. current is the policy that the batch trains, for the
// staleness of its rollouts; a version that is no number leaves that out. Fractions are of all rollouts of the batch.
func (b Batch) Metrics(current Version) map[string]float64 {
	n := float64(b.Rollouts)
	m := map[string]float64{
		"rollouts/total":             n,
		"rollouts/duplicates":        float64(b.Duplicates),
		"groups/total":               float64(b.Groups.Total),
		"groups/solve_none":          float64(b.Groups.SolveNone),
		"groups/solve_partial":       float64(b.Groups.SolvePartial),
		"groups/solve_all":           float64(b.Groups.SolveAll),
		"groups/uniform":             float64(b.Groups.Uniform),
		"groups/singleton":           float64(b.Groups.Singletons),
		"groups/effective":           float64(b.Groups.Effective),
		"groups/dropped":             float64(b.Groups.Dropped),
		"reward/mean_trained":        b.TrainedReward.Mean(),
		"advantage/abs_mean":         b.AdvantageSize.Mean(),
		"rows/total":                 float64(b.Shape.Rows),
		"rows/trained":               float64(b.TrainedRows),
		"rows/per_rollout":           ratio(float64(b.Shape.Rows), float64(b.Fates[Trained]+b.Fates[Masked])),
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
		m[name+"/mean"], m[name+"/min"], m[name+"/max"] = s.Mean(), s.Min, s.Max
	}
	for _, f := range []Fate{Trained, Masked, NoReward, Filtered, SmallGroup, UniformGroup} {
		m["rollouts/"+string(f)] = float64(b.Fates[f])
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

// staleness counts rollouts by how many versions they are behind the current policy, and those of which nobody knows.
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
		"mismatch/kl_k1":             ratio(s.MismatchKL1, n),
		"mismatch/kl_k3":             ratio(s.MismatchKL3, n),
		"mismatch/ratio_min":         s.MismatchMin,
		"mismatch/ratio_max":         s.MismatchMax,
		"corrections/vetoed_rows":    ratio(float64(s.VetoedRows), rows),
		"corrections/geometric_rows": ratio(float64(s.GeometricRows), rows),
		"corrections/masked_tokens":  ratio(float64(s.MaskedTokens), n),
		"corrections/truncated":      ratio(float64(s.TruncatedTokens), n),
	}
	if s.EntropyTokens > 0 {
		m["entropy/mean"] = s.Entropy / float64(s.EntropyTokens)
	}
	return m
}
