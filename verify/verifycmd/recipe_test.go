package verifycmd

import (
	"strings"
	"testing"

	"deepswe/agent"
)

// The flags of a recipe exist in eval and take its values, and its prompts are pinned.
func TestRecipes(t *testing.T) {
	all, err := readRecipes()
	if err != nil || len(all) == 0 {
		t.Fatal(len(all), err)
	}
	for _, r := range all {
		flags := newEval(Deps{}).Flags()
		for name, value := range r.Flags {
			if err := flags.Set(name, value); err != nil {
				t.Errorf("%s: %v", r.Name, err)
			}
		}
		if commit := strings.Split(r.Prompt.URL, "/"); len(commit) < 6 || len(commit[5]) != 40 || len(r.Prompt.SHA256) != 64 {
			t.Errorf("%s: %+v is not pinned", r.Name, r.Prompt)
		}
	}
}

// The estimate assumes a conversation that grows evenly, of which each step reads all that there is so far.
func TestTypicalRollout(t *testing.T) {
	if got := typical(100, 65536); got != (agent.Usage{Prompt: 819200, Cached: 786432, Completion: 5461}) {
		t.Errorf("%+v", got)
	}
	if got := typical(1, 100); got.Cached != 0 || got.Prompt != 25 {
		t.Errorf("one step: %+v", got)
	}
}
