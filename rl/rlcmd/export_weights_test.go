package rlcmd

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/env/hub/testdata/hubtest"
	"deepswe/rl/frozenlake"
	"deepswe/rl/trainer/embedded"
	"deepswe/rl/trainer/trainertest"
)

// A trained adapter is exported as a folder with a model card, and pushed to a hub.
func TestExportAdapter(t *testing.T) {
	s := trainertest.New(t, trainertest.Options{Language: embedded.Language{
		Vocabulary: frozenlake.Vocabulary(), Window: frozenlake.CompactTokens(3), Reply: 2,
	}})
	dir := t.TempDir()
	config, made, out := filepath.Join(dir, "lake.yaml"), filepath.Join(dir, "run"), filepath.Join(dir, "adapter")
	text := fmt.Sprintf(`
name: lake
steps: 2
environment: {name: frozenlake, max_size: 3, radius: 3, max_tokens: 2, max_turns: 6, validation_tasks: 4}
trainer: {name: tinker, base_url: %s, model: tiny, rank: 8, vocabulary: %d}
rollouts: {tasks: 2, group: 4, keep_logs: false}
evaluate: {every: 2}
algorithm: {set: {uniform: drop}}
`, s.URL(), s.Vocabulary())
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, said, err := runTrain(t.Context(), "--config", config, "--out", made); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	export := func(args ...string) (string, error) {
		var said bytes.Buffer
		d := deps(nil, &said, &said)
		d.Getenv = func(key string) string { return map[string]string{"HF_TOKEN": hubtest.Token}[key] }
		c := newExport(d)
		c.SetArgs(append([]string{"--run", made}, args...))
		c.SilenceUsage, c.SilenceErrors = true, true
		return said.String(), c.ExecuteContext(t.Context())
	}
	h := hubtest.New(t)
	if said, err := export("--format", "adapter", "--out", out, "--push", "acme/lake", "--hub", h.URL); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	page, err := os.ReadFile(filepath.Join(out, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"base_model_relation: adapter\n", "library_name: peft\n",
		`Run "lake" of `, "step 2.", "Environment frozenlake; 2 groups of 4",
		"Algorithm grpo++", "uniform=drop",
		"LoRA of rank 8", "Mean reward of the last ", "Last validation: pass@1 ", "rank 8 and alpha 32",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
	if strings.Contains(string(page), dir) || strings.Contains(string(page), s.URL()) {
		t.Errorf("the page names a path or a host:\n%s", page)
	}
	weights, err := os.ReadFile(filepath.Join(out, "adapter_model.safetensors"))
	if err != nil || h.Repo != "acme/lake" || h.Files["adapter_model.safetensors"] != string(weights) ||
		h.Files["README.md"] != string(page) {
		t.Errorf("%v; the hub has %d files of %s", err, len(h.Files), h.Repo)
	}
	refuses := func(says string, args ...string) {
		t.Helper()
		if _, err := export(args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", args, err, says)
		}
	}
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"--format", "adapter", "--out", out}, "file already exists"},
		{[]string{"--format", "adapter", "--base", out, "--out", out + "2"}, "--base DIR goes with --format model"},
		{[]string{"--format", "model", "--out", out + "2"}, "has an adapter, and not all weights of the model; to fix: give --base"},
		{[]string{"--format", "rows", "--push", "acme/lake"}, "--push does not apply to --format rows"},
		{[]string{"--format", "adapter", "--out", out + "2", "--push", "acme/lake"}, "give --hub URL"},
		{[]string{"--format", "adapter"}, "--out DIR for what is made"},
		{[]string{"--format", "adapter", "--out", out + "2", "--min-reward", "1"}, "--min-reward does not apply"},
	} {
		refuses(tc.says, tc.args...)
	}
}

// If all weights were trained, the export is the folder that the server packs, and needs no base.
func TestExportAllWeights(t *testing.T) {
	s := trainertest.New(t, trainertest.Options{Whole: true, Wire: trainertest.OnlyProtobuf, Dedups: true,
		Language: embedded.Language{Vocabulary: frozenlake.Vocabulary(), Window: frozenlake.CompactTokens(3), Reply: 2},
	})
	dir := t.TempDir()
	config, made, out := filepath.Join(dir, "lake.yaml"), filepath.Join(dir, "run"), filepath.Join(dir, "model")
	text := fmt.Sprintf(`
name: lake
steps: 1
environment: {name: frozenlake, max_size: 3, radius: 3, max_tokens: 2, max_turns: 6}
trainer: {name: tinker, base_url: %s, model: tiny, rank: 0, vocabulary: %d}
rollouts: {tasks: 2, group: 4, keep_logs: false}
`, s.URL(), s.Vocabulary())
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, said, err := runTrain(t.Context(), "--config", config, "--out", made); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	export := func(args ...string) error {
		c := newExport(deps(nil, io.Discard, io.Discard))
		c.SetArgs(append([]string{"--run", made, "--out", out}, args...))
		c.SilenceUsage, c.SilenceErrors = true, true
		return c.ExecuteContext(t.Context())
	}
	for says, args := range map[string][]string{
		"has no adapter: give --format model": {"--format", "adapter"},
		"needs no base: leave out --base":     {"--format", "model", "--base", dir},
	} {
		if err := export(args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", args, err, says)
		}
	}
	if err := export("--format", "model"); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(out, "README.md"))
	if want := ", all weights.\n"; err != nil || !strings.Contains(string(page), want) {
		t.Errorf("%v, no %q in\n%s", err, want, page)
	}
	if names, err := os.ReadDir(out); err != nil || len(names) != 4 {
		t.Errorf("%v, %v", names, err)
	}
}
