package swe_test

import (
	"fmt"

	"deepswe/verify/swe"
)

// Two tasks have four attempts each, and one of them was solved once.
func ExamplePassRate() {
	tasks := []swe.Attempts{{Task: "a", Made: 4, Solved: 1}, {Task: "b", Made: 4, Solved: 0}}
	for _, k := range []int{1, 4} {
		e := swe.PassRate(tasks, k)
		fmt.Printf("pass@%d is %.1f%% (%.1f%% to %.1f%%)\n", e.K, 100*e.Rate, 100*e.Low, 100*e.High)
	}
	// Output:
	// pass@1 is 12.5% (2.0% to 49.5%)
	// pass@4 is 50.0% (5.5% to 94.5%)
}
