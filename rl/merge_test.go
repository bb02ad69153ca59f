package rl

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// turn returns a turn in which each sampled id has a logprob of -(id/100).
func turn(prompt, completion []int32) Turn {
	t := Turn{PromptIDs: prompt, CompletionIDs: completion}
	for _, id := range completion {
		t.Logprobs = append(t.Logprobs, -float64(id)/100)
	}
	return t
}

func ids(ids ...int32) []int32 { return ids }

func shapeOf(turns []Turn, maxLength int) Shape {
	return Measure(&Rollout{Turns: turns, Reward: new(1.0)}, maxLength).Shape
}

func TestMerge(t *testing.T) {
	t.Parallel()
	first := turn(ids(1, 2), ids(10, 11))
	long := make([]int32, 20)
	for _, c := range []struct {
		name   string
		turns  []Turn
		max    int
		ids    [][]int32
		masks  []string
		splits Splits
	}{
		{"one turn", []Turn{first}, 0, [][]int32{{1, 2, 10, 11}}, []string{"0011"}, Splits{}},
		{"the next prompt extends the row", []Turn{first, turn(ids(1, 2, 10, 11, 3), ids(12))}, 0,
			[][]int32{{1, 2, 10, 11, 3, 12}}, []string{"001101"}, Splits{}},
		{"with nothing in between", []Turn{first, turn(ids(1, 2, 10, 11), ids(12))}, 0,
			[][]int32{{1, 2, 10, 11, 12}}, []string{"00111"}, Splits{}},
		{"history was compacted", []Turn{first, turn(ids(1, 9, 10, 11, 3), ids(12))}, 0,
			[][]int32{{1, 2, 10, 11}, {1, 9, 10, 11, 3, 12}}, []string{"0011", "000001"}, Splits{PromptDiverges: 1}},
		{"the completion was tokenised again", []Turn{first, turn(ids(1, 2, 10, 99, 3), ids(12))}, 0,
			[][]int32{{1, 2, 10, 11}, {1, 2, 10, 99, 3, 12}}, []string{"0011", "000001"}, Splits{CompletionDiverges: 1}},
		{"the same prompt was sampled again", []Turn{first, turn(ids(1, 2), ids(12))}, 0,
			[][]int32{{1, 2, 10, 11}, {1, 2, 12}}, []string{"0011", "001"}, Splits{PromptShorter: 1}},
		{"the row after a split goes on", []Turn{first, turn(ids(7), ids(12)), turn(ids(7, 12, 8), ids(13))}, 0,
			[][]int32{{1, 2, 10, 11}, {7, 12, 8, 13}}, []string{"0011", "0101"}, Splits{PromptDiverges: 1}},
		{"the maximum length cuts the end off", []Turn{first, turn(ids(1, 2, 10, 11, 3), ids(12, 13))}, 6,
			[][]int32{{1, 2, 10, 11, 3, 12}}, []string{"001101"}, Splits{}},
		{"and whole turns", []Turn{first, turn(ids(1, 2, 10, 11, 3), ids(12, 13))}, 3,
			[][]int32{{1, 2, 10}}, []string{"001"}, Splits{}},
		{"and may leave nothing to train", []Turn{first}, 1, [][]int32{{1}}, []string{"0"}, Splits{}},
		{"no turns", nil, 0, nil, nil, Splits{}},
		{"a stripped thought changes the token before it",
			[]Turn{turn(long, ids(2)), turn(append(slices.Clone(long[:19]), 9, 3), ids(4))}, 0,
			[][]int32{append(slices.Clone(long), 2), append(slices.Clone(long[:19]), 9, 3, 4)},
			[]string{strings.Repeat("0", 20) + "1", strings.Repeat("0", 21) + "1"}, Splits{CompletionDiverges: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows := Placement{Disposition: Trained}.Rows(Rollout{Task: "t", Turns: c.turns}, c.max)
			var gotIDs [][]int32
			var gotMasks []string
			for i, r := range rows {
				if r.Row != i || !r.Trained {
					t.Errorf("row %d: %+v", i, r)
				}
				gotIDs, gotMasks = append(gotIDs, r.IDs), append(gotMasks, maskOf(t, r))
			}
			if d := cmp.Diff(c.ids, gotIDs); d != "" {
				t.Errorf("ids (-want +got)\n%s", d)
			}
			if d := cmp.Diff(c.masks, gotMasks); d != "" {
				t.Errorf("masks (-want +got)\n%s", d)
			}
			if s := shapeOf(c.turns, c.max); s.Splits != c.splits || s.Rows != len(rows) {
				t.Errorf("shape %+v, want splits %+v", s, c.splits)
			}
		})
	}
}

// maskOf returns the mask as text, and checks the logprobs: those of turn where the mask is 1, and 0 elsewhere.
func maskOf(t *testing.T, r Row) (mask string) {
	t.Helper()
	for k, m := range r.Mask {
		mask += fmt.Sprint(m)
		if want := -float64(r.IDs[k]) / 100 * float64(m); r.Logprobs[k] != want {
			t.Errorf("row %d: logprob of id %d is %g, want %g", r.Row, r.IDs[k], r.Logprobs[k], want)
		}
	}
	return mask
}

// drawTurns draws turns, some of which extend the turn before.
func drawTurns(t *rapid.T) []Turn {
	some := func(name string, least, most int) []int32 {
		return rapid.SliceOfN(rapid.Int32Range(0, 2), least, most).Draw(t, name)
	}
	var turns []Turn
	for k := range rapid.IntRange(1, 6).Draw(t, "turns") {
		prompt := some("prompt", 1, 12)
		if k > 0 && rapid.IntRange(0, 2).Draw(t, "extends") > 0 {
			last := turns[k-1]
			prompt = slices.Concat(last.PromptIDs, last.CompletionIDs, some("environment", 0, 4))
		}
		turns = append(turns, turn(prompt, some("completion", 1, 300)))
	}
	return turns
}

// Every sampled token is trained exactly once, with its own logprob and after its own prompt.
func TestMergeKeepsWhatWasSampled(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		turns := drawTurns(t)
		rows := Placement{Disposition: Trained}.Rows(Rollout{Turns: turns}, 0)
		shape := shapeOf(turns, 0)
		k, total := 0, 0
		for _, r := range rows {
			total += len(r.IDs)
			for p := 0; p < len(r.IDs); {
				if r.Mask[p] == 0 {
					p++
					continue
				}
				n := len(turns[k].CompletionIDs)
				if !slices.Equal(r.IDs[:p], turns[k].PromptIDs) || !slices.Equal(r.IDs[p:p+n], turns[k].CompletionIDs) ||
					!slices.Equal(r.Logprobs[p:p+n], turns[k].Logprobs) || slices.Contains(r.Mask[p:p+n], 0) {
					t.Fatalf("turn %d %+v is not at %d of row %+v", k, turns[k], p, r)
				}
				k, p = k+1, p+n
			}
		}
		if k != len(turns) {
			t.Fatalf("%d of %d turns are trained", k, len(turns))
		}
		if shape.Prompt+shape.Sampled+shape.Environment != total || shape.Trained != shape.Sampled ||
			shape.Rows != len(rows) ||
			shape.Splits.Total() != len(rows)-1 {
			t.Fatalf("shape %+v of %d rows with %d tokens", shape, len(rows), total)
		}
	})
}

// Measure counts the trained tokens that Rows then makes.
func TestMeasureAgreesWithMerge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		turns := drawTurns(t)
		limit := rapid.IntRange(1, 40).Draw(t, "limit")
		trained := 0
		for _, r := range (Placement{Disposition: Trained}).Rows(Rollout{Turns: turns}, limit) {
			if len(r.IDs) > limit {
				t.Fatalf("a row of %d tokens, the limit is %d", len(r.IDs), limit)
			}
			for _, m := range r.Mask {
				trained += int(m)
			}
		}
		if s := shapeOf(turns, limit); s.Trained != trained {
			t.Fatalf("%d trained tokens were measured, there are %d", s.Trained, trained)
		}
	})
}

// A rollout has the same weight in the loss whether it is in one row or split into several.
func TestSplittingDoesNotChangeTheWeight(t *testing.T) {
	t.Parallel()
	whole := []Turn{turn(ids(1), ids(2, 3)), turn(ids(1, 2, 3, 4), ids(5)), turn(ids(1, 2, 3, 4, 5, 6), ids(7, 8))}
	broken := []Turn{whole[0], turn(ids(9, 3, 4), ids(5)), turn(ids(8, 5, 6), ids(7, 8))}
	reward := func(r float64) *float64 { return &r }
	for _, mode := range []string{"constant_length", "token_mean", "sequence_mean_token_sum", "sequence_mean_token_mean"} {
		weigh := func(turns []Turn) (weight float64) {
			rows, _, err := preset(t, "rloo", "aggregation="+mode).Rows([]Rollout{
				{Task: "t", Attempt: 0, Reward: reward(1), StopReason: "submitted", Turns: turns},
				{Task: "t", Attempt: 1, Reward: reward(0), StopReason: "submitted", Turns: whole},
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				if r.Attempt == 0 {
					for _, m := range r.Mask {
						weight += r.Advantage * r.Scale * float64(m)
					}
				}
			}
			return weight
		}
		if a, b := weigh(whole), weigh(broken); !near(a, b) || a == 0 {
			t.Errorf("%s: %g in one row, %g in three", mode, a, b)
		}
	}
}

func TestMaskedRolloutsHaveRowsWithoutATrainedToken(t *testing.T) {
	t.Parallel()
	reward := 1.0
	rows, _, err := preset(t,
		"grpo++").Rows([]Rollout{{Task: "t", Reward: &reward, StopReason: "timeout", Turns: []Turn{turn(ids(1), ids(2, 3))}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1 || rows[0].Trained || slices.Contains(rows[0].Mask,
		1) || rows[0].Reward != 1 || slices.ContainsFunc(rows[0].Logprobs, func(x float64) bool { return x != 0 }) {
		t.Errorf("rows %+v", rows)
	}
}
