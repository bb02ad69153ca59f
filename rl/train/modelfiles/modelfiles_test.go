package modelfiles

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/agent"
	"deepswe/agent/chatml"
	"deepswe/agent/tokenizer"
	"deepswe/env/testkit"
)

const turns = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"

// A model's own chat template is used, with its special tokens. A template that cannot be rendered exactly is refused.
func TestCodec(t *testing.T) {
	t.Parallel()
	tok, err := tokenizer.Load("../../../agent/tokenizer/testdata/qwen.json")
	if err != nil {
		t.Fatal(err)
	}
	quoted := func(text string) string {
		raw, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	const tokens = `"eos_token": {"content": "<|endoftext|>"}, "bos_token": null`
	for name, tt := range map[string]struct {
		template string
		files    map[string]string
		want     string // what is rendered, or a part of the error
	}{
		"a file": {files: map[string]string{templateFile: "A" + turns}, want: "A<|im_start|>user\nu<|im_end|>\n"},
		"configuration": {files: map[string]string{
			tokenizerConfigFile: `{"chat_template": ` + quoted("{{ bos_token }}{{ eos_token }}"+turns) + ", " + tokens + "}"},
			want: "<|endoftext|><|im_start|>user\nu<|im_end|>\n"},
		"several": {files: map[string]string{tokenizerConfigFile: `{"chat_template": [{"name": "rag", "template": "x"}, ` +
			`{"name": "default", "template": ` + quoted("D"+turns) + `}, {"name": "tool_use", "template": ` + quoted("T"+turns) + `}]}`},
			want: "D<|im_start|>user\nu<|im_end|>\n"},
		"a name": {template: chatml.Qwen3, want: "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n"},
		"stop tokens": {files: map[string]string{templateFile: turns, generationConfigFile: `{"eos_token_id": [7, 9]}`},
			want: "<|im_start|>user\nu<|im_end|>\n"},
		"an unknown tag":    {files: map[string]string{templateFile: "{% include 'x' %}"}, want: `the tag "include" is not known here`},
		"an unknown token":  {files: map[string]string{templateFile: "{{ bos_token }}" + turns}, want: "names bos_token"},
		"no end of a reply": {files: map[string]string{templateFile: "{{ messages[-1].content }}"}, want: "cannot be extended"},
		"no template":       {files: map[string]string{tokenizerConfigFile: `{}`}, want: "set template to one of"},
		"no file":           {want: "set template to one of"},
	} {
		dir := t.TempDir()
		for file, text := range tt.files {
			testkit.WriteFile(t, filepath.Join(dir, file), text)
		}
		codec, err := Codec(tok, dir, cmp.Or(tt.template, TemplateAuto))
		got := fmt.Sprint(err)
		if err == nil {
			ids, err := codec.Prompt(t.Context(), agent.Request{Messages: []agent.Message{{Role: agent.RoleUser, Content: "u"}}})
			if err != nil {
				t.Fatal(err)
			}
			if got = tok.Decode(ids); got != tt.want {
				t.Errorf("%s: %q, want %q", name, got, tt.want)
			}
			if name == "stop tokens" && !slices.Equal(codec.Stop()[len(codec.Stop())-2:], []int32{7, 9}) {
				t.Errorf("it stops at %v", codec.Stop())
			}
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
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

// The numbers are taken from the top level of a model's configuration, or from the language model in it, and from
// nowhere else.
func TestNumbersOfAModel(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]int{
		`{"vocab_size": 7}`:                                                       {7, 0},
		`{"vocab_size": 7, "num_experts": 8}`:                                     {7, 8},
		`{"vocab_size": 7, "num_experts": null, "n_routed_experts": 256}`:         {7, 256},
		`{"text_config": {"vocab_size": 9, "num_local_experts": 32}}`:             {9, 32},
		`{"vocab_size": 7, "num_experts": [4, 8], "text_config": null}`:           {7, 0},
		`{"vision_config": {"vocab_size": 9, "num_experts": 8}, "vocab_size": 7}`: {7, 0},
		`{"vocab_size": 7, "num_experts": 8`:                                      {0, 0},
	} {
		dir := t.TempDir()
		testkit.WriteFile(t, filepath.Join(dir, modelConfigFile), text)
		if n, err := Vocabulary(dir); n != want[0] || (err == nil) != (n > 0) || Experts(dir) != want[1] {
			t.Errorf("%s: a vocabulary of %d (%v) and %d experts, want %v", text, n, err, Experts(dir), want)
		}
	}
	if n := Experts(t.TempDir()); n != 0 {
		t.Errorf("%d experts without a file", n)
	}
}
