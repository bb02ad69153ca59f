package agent

import (
	"slices"
	"testing"
)

func TestPromptsShareTheirMemory(t *testing.T) {
	var past []*Sample
	for n := range 5 {
		next := &Sample{PromptIDs: make([]int32, 10*(n+1))}
		for i := range next.PromptIDs {
			next.PromptIDs[i] = int32(i)
		}
		share(past, next)
		past = append(past, next)
	}
	last := past[len(past)-1]
	for n, p := range past {
		if len(p.PromptIDs) != 10*(n+1) || &p.PromptIDs[0] != &last.PromptIDs[0] {
			t.Errorf("prompt %d has %d ids, and memory of its own: %v", n, len(p.PromptIDs), &p.PromptIDs[0] != &last.PromptIDs[0])
		}
	}
	// What is appended to a prompt must not reach the others.
	_ = append(past[0].PromptIDs, -1)
	if last.PromptIDs[10] != 10 {
		t.Error("appending to the first prompt changed the last one")
	}
}

func TestAPromptThatDivergesKeepsItsIDs(t *testing.T) {
	first := &Sample{PromptIDs: []int32{1, 2, 3}}
	second := &Sample{PromptIDs: []int32{1, 2, 4, 5}}
	share([]*Sample{nil, first}, second)
	share([]*Sample{first, second, nil}, nil)
	if !slices.Equal(first.PromptIDs, []int32{1, 2, 3}) || !slices.Equal(second.PromptIDs, []int32{1, 2, 4, 5}) {
		t.Errorf("prompts = %v, %v", first.PromptIDs, second.PromptIDs)
	}
}
