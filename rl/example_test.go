package rl_test

import (
	"fmt"

	"deepswe/agent/trajectory"
	"deepswe/rl"
)

// group is four rollouts of one task, of which the first solved it and the last ran out of steps.
func group() []rl.Rollout {
	rollouts := make([]rl.Rollout, 4)
	for i := range rollouts {
		rollouts[i] = rl.Rollout{
			Task: "fix-the-parser", Group: "1", Attempt: i, Reward: new(0.0), StopReason: trajectory.Submitted,
			Turns: []rl.Turn{
				{PromptIDs: []int32{1, 2}, CompletionIDs: []int32{10, 11}, Logprobs: []float64{-0.5, -0.1}},
				// The second prompt begins with the first turn, so both turns are in one row.
				{PromptIDs: []int32{1, 2, 10, 11, 3}, CompletionIDs: []int32{12}, Logprobs: []float64{-0.7}},
			},
		}
	}
	*rollouts[0].Reward = 1
	rollouts[3].StopReason = trajectory.MaxSteps
	return rollouts
}

// Each preset compares the rollouts of a group in its own way. GRPO++ masks the rollout that ran out of steps, but its
// reward still counts in the baseline of the others.
func ExampleAlgorithm_Rows() {
	for _, name := range []string{"grpo++", "dr-grpo", "grpo"} {
		a, err := rl.Preset(name)
		if err != nil {
			fmt.Println(err)
			return
		}
		a.MaxLength = 100
		rows, _, err := a.Rows(group())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%-8s", name)
		for _, r := range rows {
			if r.Trained {
				fmt.Printf(" %+.3f", r.Advantage)
			} else {
				fmt.Print(" masked")
			}
		}
		fmt.Println()
	}
	// Output:
	// grpo++   +1.000 -0.333 -0.333 masked
	// dr-grpo  +0.750 -0.250 -0.250 -0.250
	// grpo     +1.500 -0.500 -0.500 -0.500
}

// Turns share a row if each prompt extends the turn before. Tokens from the environment are not trained.
func ExamplePlacement_Rows() {
	for _, row := range (rl.Placement{Disposition: rl.Trained}).Rows(group()[0], 0) {
		fmt.Println("ids", row.IDs)
		fmt.Println("mask", row.Mask) //nolint:staticcheck // QF1010: numbers, not text
		fmt.Println("logprobs", row.Logprobs)
	}
	// Output:
	// ids [1 2 10 11 3 12]
	// mask [0 0 1 1 0 1]
	// logprobs [0 0 -0.5 -0.1 0 -0.7]
}

// Each choice that a preset makes can be set on its own. A dropped rollout does not count in the baseline: one success
// is compared with two failures, not three.
func ExampleAlgorithm_Set() {
	a, err := rl.Preset("grpo++")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range []rl.Setting{{Key: "max_length", Value: "100"}, {Key: "filter.max_steps", Value: "drop"}} {
		if err := a.Set(s.Key, s.Value); err != nil {
			fmt.Println(err)
			return
		}
	}
	rows, batch, err := a.Rows(group())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range rows {
		fmt.Printf("attempt %d: %+.2f\n", r.Attempt, r.Advantage)
	}
	fmt.Println("dropped:", batch.Dispositions[rl.Filtered])
	// Output:
	// attempt 0: +1.00
	// attempt 1: -0.50
	// attempt 2: -0.50
	// dropped: 1
}
