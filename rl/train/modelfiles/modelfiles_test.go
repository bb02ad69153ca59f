package modelfiles

import (
	"path/filepath"
	"strings"
	"testing"

	"deepswe/agent/chatml"
	"deepswe/env/testkit"
)

func TestTemplateOf(t *testing.T) {
	t.Parallel()
	const qwen3 = "{{ '<|im_start|>' }} multi_step_tool {% if enable_thinking %}<think>\n\n</think>"
	for name, tt := range map[string]struct {
		files map[string]string
		want  chatml.Template
	}{
		"a file": {map[string]string{templateFile: qwen3}, chatml.Qwen3},
		"configuration": {map[string]string{
			tokenizerConfigFile: `{"chat_template": "<|im_start|> You are Qwen, created by Alibaba Cloud."}`}, chatml.Qwen25},
		"several": {map[string]string{tokenizerConfigFile: `{"chat_template": [{"name": "rag", "template": "x"}, ` +
			`{"name": "default", "template": "<|im_start|> You are Qwen, created by Alibaba Cloud."}]}`}, chatml.Qwen25},
		"thinking only": {map[string]string{templateFile: qwen3 + `'<|im_start|>assistant\n<think>\n'`}, ""},
		"another":       {map[string]string{templateFile: "<|start_header_id|>"}, ""},
		"none":          {map[string]string{tokenizerConfigFile: `{}`}, ""},
		"no file":       {nil, ""},
	} {
		dir := t.TempDir()
		for file, text := range tt.files {
			testkit.WriteFile(t, filepath.Join(dir, file), text)
		}
		got, err := TemplateOf(dir)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), "trainer.template") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTokenizerOfAModel(t *testing.T) {
	t.Parallel()
	hub := t.TempDir()
	repo := filepath.Join(hub, "models--Qwen--Qwen3-8B")
	snapshot := filepath.Join(repo, "snapshots", "abc")
	testkit.WriteFile(t, filepath.Join(repo, "refs", "main"), "abc")
	testkit.WriteFile(t, filepath.Join(snapshot, TokenizerFile), "{}")
	testkit.WriteFile(t, filepath.Join(snapshot, modelConfigFile), `{"vocab_size": 7}`)
	getenv := func(name string) string { return map[string]string{"HF_HUB_CACHE": hub}[name] }
	for _, tt := range []struct{ model, tokenizer, want string }{
		{"Qwen/Qwen3-8B", "", snapshot},
		{snapshot, "", snapshot},
		{"served", snapshot, snapshot},
		{"served", filepath.Join(snapshot, TokenizerFile), snapshot},
		{"Qwen/Qwen3-4B", "", ""},
		{"Qwen/Qwen3-8B", hub, ""},
	} {
		got, err := Find(tt.tokenizer, tt.model, getenv)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%q, %q: %q, %v", tt.model, tt.tokenizer, got, err)
		}
		if n, err := Vocabulary(got); tt.want != "" && (n != 7 || err != nil) {
			t.Errorf("%q: a vocabulary of %d, %v", tt.model, n, err)
		}
	}
}
