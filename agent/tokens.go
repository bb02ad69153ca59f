package agent

import "slices"

// share lets the prompts of past replies lie in the memory of the next reply's prompt, which as a rule begins with them.
// Without it, a rollout would hold the square of its length in ids.
func share(past []*Sample, next *Sample) {
	if next == nil {
		return
	}
	var known []int32 // a prompt that next begins with
	for _, t := range slices.Backward(past) {
		if t == nil || len(t.PromptIDs) == 0 {
			continue
		}
		n := len(t.PromptIDs)
		inKnown := n <= len(known) && &t.PromptIDs[0] == &known[0]
		if !inKnown && (n > len(next.PromptIDs) || !slices.Equal(t.PromptIDs, next.PromptIDs[:n])) {
			return
		}
		known = t.PromptIDs
		t.PromptIDs = next.PromptIDs[:n:n]
	}
}
