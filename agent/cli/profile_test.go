package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/agent/llm"
	"deepswe/env/testkit"
)

func TestProfileOf(t *testing.T) {
	if _, err := parseConfig(bundledProfiles); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	w := World{Getenv: environment(map[string]string{"HOME": home})}
	testkit.WriteFile(t, filepath.Join(home, ".config", "deepswe", "config.yaml"),
		"profiles:\n- models: [\"my-*\", devstral-small]\n  format: xml\n  thoughts: kept\n")
	c, err := w.LoadConfig()
	if err != nil {
		t.Fatal(err)
	}
	const coder = "temperature: 0.7, top_p: 0.8, top_k: 20, repetition_penalty: 1.05, context: 262144, parser: qwen3_coder"
	for name, want := range map[string]string{
		"agentica-org/DeepSWE-Preview":         "context: 65536",
		"Qwen/Qwen3-Coder-30B-A3B-Instruct":    coder,
		"qwen3-coder:30b":                      coder,
		"Qwen/Qwen3-Coder-Next":                "context: 262144, parser: qwen3_coder",
		"qwen3:8b":                             "context: 40960, parser: hermes",
		"mistralai/Devstral-Small-2507":        "temperature: 0.15, context: 131072, parser: mistral",
		"devstral-small":                       "format: xml, thoughts: kept",
		"me/My-Own":                            "format: xml, thoughts: kept",
		"moonshotai/Kimi-K2-Instruct-0905":     "temperature: 0.6, context: 131072, parser: kimi_k2",
		"moonshotai/Kimi-K2-Thinking":          "context: 262144, parser: kimi_k2",
		"deepseek-reasoner":                    "thoughts: dropped, context: 65536",
		"unknown":                              "",
		"deepseek-ai/DeepSeek-R1-Distill-0528": "thoughts: dropped, context: 65536",
	} {
		if got := w.ProfileOf(c, name).String(); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for text, want := range map[string]string{
		"profiles: [{format: xml}]":                   "needs models",
		"profiles: [{models: [A]}]":                   "lower-case",
		"profiles: [{models: [\"[\"]}]":               "not a pattern",
		"profiles: [{models: [a], format: yaml}]":     "choose xml or tools",
		"profiles: [{models: [a], thoughts: some}]":   "choose kept or dropped",
		"profiles: [{models: [a], context: -1}]":      "must not be negative",
		"profiles: [{models: [a], temperatur: 0.15}]": `line 1: unknown key "temperatur"`,
		"base_url: a\nmodl: b\nprices: 3":             "line 2: unknown key \"modl\": the keys are base_url, model, ",
		"prices: {b: {input: much}}":                  "line 1: invalid value `much`",
		"context: -5":                                 `line 1: context: invalid number of tokens "-5"`,
	} {
		if _, err := parseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A context that is too short is refused with the command that enlarges it, unless a flag asks for that context.
func TestRoomEnough(t *testing.T) {
	for name, tt := range map[string]struct {
		served  llm.ServedModel
		profile Profile
		context string // --context
		err     string
		warning string
		want    int
	}{
		"far too short": {served: llm.ServedModel{ID: "m", Owner: "library", Context: 4096},
			err: "to fix: OLLAMA_CONTEXT_LENGTH=65536 ollama serve\nor go on all the same: --context 4096"},
		"asked for": {served: llm.ServedModel{ID: "m", Owner: "library", Context: 4096}, context: "4k",
			warning: "OLLAMA_CONTEXT_LENGTH", want: 4096},
		"short": {served: llm.ServedModel{ID: "m", Context: 16384}, warning: "an agent needs 16384",
			want: defaultContext},
		"long":       {served: llm.ServedModel{ID: "m", Context: 32768}, want: defaultContext},
		"by profile": {profile: Profile{Context: 40960}, want: 40960},
		"unknown":    {warning: "32768 tokens are assumed", want: 32768},
		"given":      {context: "48k", want: 48 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			o := ModelFlags{Context: defaultContext, Given: func(string) bool { return tt.context != "" }}
			if tt.context != "" {
				if err := (contextValue{&o}).Set(tt.context); err != nil {
					t.Fatal(err)
				}
			}
			var said bytes.Buffer
			m := LiveModel{Name: "m", Context: tt.served.Context, Served: tt.served}
			o.profile = tt.profile
			err := o.roomEnough(World{Err: &said}, m)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v", err)
			}
			if !strings.Contains(said.String(), tt.warning) || tt.warning == "" && said.Len() > 0 {
				t.Errorf("said %s", said.String())
			}
			if err == nil && o.Context != tt.want {
				t.Errorf("%d tokens, want %d", o.Context, tt.want)
			}
		})
	}
}
