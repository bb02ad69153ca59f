package backend

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/agent/chatml"
	"deepswe/env/testkit"
	"deepswe/rl/train/modelfiles"
	"deepswe/rl/train/part"
)

// A tokenizer with more ids than the model belongs to another model. One with fewer is fine, because models pad.
func TestTokenizerOfAnotherModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "agent", "tokenizer", "testdata", "qwen.json"))
	if err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, filepath.Join(dir, modelfiles.TokenizerFile), string(data))
	s := Tinker{Template: chatml.Qwen3}
	for vocabulary, want := range map[int]string{
		430: "has 431 ids, and the model 430; to fix: set trainer.tokenizer", 431: "", 512: "",
	} {
		_, err := s.codec(part.TrainerOptions{}, dir, nil, vocabulary)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("a model of %d ids: %v", vocabulary, err)
		}
	}
}
