package backend

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/env/testkit"
	"deepswe/rl/train/part"
)

// demonstrationsFile returns a file with two conversations to imitate.
func demonstrationsFile(t *testing.T) string {
	t.Helper()
	line := `{"task":"t","messages":[{"role":"user","content":"which fruit?\n1 fig\n2 nut\n"},` +
		`{"role":"assistant","content":"the fig","weight":1}]}` + "\n"
	return testkit.WriteFile(t, filepath.Join(t.TempDir(), "sft.jsonl"), line+strings.Replace(line, "the fig", "a nut", 1))
}

// A run that is interrupted after the warm start does not repeat it.
func TestWarmStartIsResumed(t *testing.T) {
	t.Parallel()
	e := NewEmbedded()
	e.Demonstrations, e.Hidden, e.Passes = demonstrationsFile(t), 4, 3
	dir := t.TempDir()
	open := func() part.Trainer {
		p, err := e.Open(t.Context(), part.TrainerOptions{Seed: 1, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	saved := func(p part.Trainer) []byte {
		if err := p.Save(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, "x.policy"))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	first := open()
	losses, err := first.WarmStart(t.Context())
	if err != nil || len(losses) != 3 || losses[2] >= losses[0] {
		t.Fatalf("%v, %v", losses, err)
	}
	e.Passes = 5 // would change the losses
	second := open()
	again, err := second.WarmStart(t.Context())
	if err != nil || !slices.Equal(again, losses) {
		t.Errorf("%v, %v: want %v", again, err, losses)
	}
	if !bytes.Equal(saved(first), saved(second)) {
		t.Error("the policies differ")
	}
}

func TestDemonstrationsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                 "has none",
		`{"input_ids":[1],"labels":[1]}`:   "--sft-form messages",
		`{"messages":[{"content":"x"}]}`:   "line 1",
		`{"messages":[{"role":"user"}]} x`: "line 1",
	} {
		e := NewEmbedded()
		e.Demonstrations = testkit.WriteFile(t, filepath.Join(t.TempDir(), "sft.jsonl"), text)
		if _, err := e.Open(t.Context(), part.TrainerOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	_, err := (&Embedded{Demonstrations: "nowhere.jsonl"}).Open(t.Context(), part.TrainerOptions{})
	if err == nil || !strings.Contains(err.Error(), "nowhere.jsonl") {
		t.Errorf("no file: %v", err)
	}
}
