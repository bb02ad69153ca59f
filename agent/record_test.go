package agent

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"deepswe/agent/trajectory"
	"deepswe/env/testkit"
)

// TestDocument shows what a rollout leaves behind: the document in testdata is a complete example.
func TestDocument(t *testing.T) {
	t.Parallel()
	now := time.Date(2025, 7, 2, 12, 0, 0, 0, time.UTC)
	_, answers := recorded(t, XML{})
	a := newAgent(scripted(answers...))
	a.Limits = Limits{Steps: 9, Wall: time.Hour, Context: 32768}
	a.Sampling = Sampling{Temperature: new(1.0), TopP: new(1.0)}
	a.Tokens = true
	a.Header = trajectory.Header{Session: "run-1", Trajectory: "run-1/demo-1/0", AgentVersion: "1.0"}
	a.ModelName = "m"
	a.Clock = func() time.Time { now = now.Add(time.Second); return now }
	out := run(t, a)
	d := document(t, out.Events)
	var encoded, got bytes.Buffer
	if err := d.Encode(&encoded); err != nil {
		t.Fatal(err)
	}
	if err := json.Indent(&got, encoded.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	testkit.Golden(t, "testdata/rollout.json", got.String())
}
func TestPromptsShareTheirMemory(t *testing.T) {
	t.Parallel()
	var past []*Sample
	for n := range 5 {
		next := &Sample{PromptIDs: make([]int32, 10*(n+1))}
		for i := range next.PromptIDs {
			next.PromptIDs[i] = int32(i)
		}
		SharePrompts(past, next)
		past = append(past, next)
	}
	last := past[len(past)-1]
	for n, p := range past {
		if len(p.PromptIDs) != 10*(n+1) || &p.PromptIDs[0] != &last.PromptIDs[0] {
			t.Errorf("prompt %d has %d ids, and memory of its own: %v", n, len(p.PromptIDs),
				&p.PromptIDs[0] != &last.PromptIDs[0])
		}
	}
	// What is appended to a prompt must not reach the others.
	_ = append(past[0].PromptIDs, -1)
	if last.PromptIDs[10] != 10 {
		t.Error("appending to the first prompt changed the last one")
	}
}

func TestAPromptThatDivergesKeepsItsIDs(t *testing.T) {
	t.Parallel()
	first := &Sample{PromptIDs: []int32{1, 2, 3}}
	second := &Sample{PromptIDs: []int32{1, 2, 4, 5}}
	SharePrompts([]*Sample{nil, first}, second)
	SharePrompts([]*Sample{first, second, nil}, nil)
	if !slices.Equal(first.PromptIDs, []int32{1, 2, 3}) || !slices.Equal(second.PromptIDs, []int32{1, 2, 4, 5}) {
		t.Errorf("prompts = %v, %v", first.PromptIDs, second.PromptIDs)
	}
}
