package rl

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"deepswe/agent/trajectory"
)

// If all tokens of a row have the row's advantage, the loss is the same as without token advantages.
func TestEqualAdvantages(t *testing.T) {
	t.Parallel()
	for name, o := range objectives {
		rows, current, old := randomRows(rand.New(rand.NewPCG(3, 4)), 12, 9, 0.4)
		want, got := like(current), like(current)
		scalar, err := Loss(rows, current, old, o, want)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			rows[i].Advantages = slices.Repeat([]float64{rows[i].Advantage}, len(rows[i].IDs))
			rows[i].Advantage = math.NaN() // must not be used
		}
		tokens, err := Loss(rows, current, old, o, got)
		if err != nil || tokens != scalar {
			t.Errorf("%s: %+v, %v; want %+v", name, tokens, err, scalar)
		}
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("%s: the gradient of row %d is %v, want %v", name, i, got[i], want[i])
			}
		}
	}
}

// On-policy distillation of the example: a token's advantage is the teacher's log-probability minus the sampler's. The
// numbers came from numpy.
func TestAdvantagesOfTokens(t *testing.T) {
	t.Parallel()
	teacher := logs([][]float64{{.70, .45, .20}, {.50, .25, .80}, {.95, .30, .40}, {.20, .85, .30}})
	rows := exampleRows()
	for i := range rows {
		rows[i].Advantages = make([]float64, 3)
		for k := range rows[i].Advantages {
			rows[i].Advantages[k] = teacher[i][k] - rows[i].Logprobs[k]
		}
	}
	if got := rows[2].Advantages; math.Abs(got[1]-1.791759) > 1e-6 || math.Abs(got[2]+0.223144) > 1e-6 {
		t.Fatalf("advantages %v", got)
	}
	s, err := Loss(rows, logs(exampleCurrent), nil, Objective{Surrogate: importanceSampling}, nil)
	if err != nil || math.Abs(s.Loss+0.462543) > 1e-6 {
		t.Errorf("loss %.6f, %v; want -0.462543", s.Loss, err)
	}
	rows[1].Advantages = rows[1].Advantages[:2]
	if _, err = Loss(rows, logs(exampleCurrent), nil, Objective{}, nil); err == nil {
		t.Error("2 advantages for 3 tokens were accepted")
	}
}

// The advantage of a turn is added to that of its rollout for the tokens of the turn.
func TestAdvantagesOfTurns(t *testing.T) {
	t.Parallel()
	attempt := func(n int, reward float64, turns ...Turn) Rollout {
		return Rollout{Task: "t", Group: "g", Attempt: n, Reward: &reward, StopReason: trajectory.Submitted, Turns: turns}
	}
	turn := func(advantage float64, prompt ...int32) Turn {
		return Turn{PromptIDs: prompt, CompletionIDs: []int32{8, 9}, Logprobs: []float64{-1, -1}, Advantage: advantage}
	}
	a := Algorithm{MaxLength: 5, Overflow: truncate}
	rows, _, err := a.Rows([]Rollout{
		attempt(0, 1, turn(0.25, 1), turn(-0.5, 1, 8, 9, 2)), // the last token exceeds the length limit
		attempt(1, 0, turn(0, 1), turn(0, 7)),
		attempt(2, 0, turn(0, 1), turn(0.75, 7)),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Row{{Advantages: []float64{0, 1.25, 1.25, 0, 0.5}}, {}, {}, {}, {Advantages: []float64{0, 0.25, 0.25}}}
	for i, row := range rows {
		if !slices.Equal(row.Advantages, want[i].Advantages) {
			t.Errorf("the advantages of row %d are %v, want %v", i, row.Advantages, want[i].Advantages)
		}
	}
	// A group whose rewards agree is still trained on if a turn has an advantage.
	rows, _, err = a.Rows([]Rollout{attempt(0, 0, turn(0.25, 1)), attempt(1, 0, turn(0, 1))})
	if err != nil || !rows[0].Effective() || rows[1].Effective() {
		t.Errorf("%+v, %v", rows, err)
	}
	var wrong *FieldError
	_, _, err = a.Rows([]Rollout{attempt(0, 0, turn(math.NaN(), 1))})
	if !errors.As(err, &wrong) || !strings.HasSuffix(wrong.Field, ".advantage") {
		t.Errorf("error %v", err)
	}
}
