package chatml

import "testing"

// Text that only looks like a call stays text: incomplete JSON, and messages of another role.
func TestNoCalls(t *testing.T) {
	t.Parallel()
	all := map[string]*notation{}
	for _, n := range notations() {
		all[n.name] = &n
	}
	for text, want := range map[string]struct {
		notation string
		calls    int
	}{
		`{"name": "Bob", "age": 3,}`:                                                  {"Llama 3", 0},
		`{"items": [{"name": "a", "parameters": 1}`:                                   {"Llama 3", 0},
		`{"name": "f", "parameters": {"a": 1`:                                         {"Llama 3", 1},
		`{"type": "function", "name": "f", "parameters": {"a": "x""}}`:                {"Llama 3", 1},
		"<|start|>functions.f to=assistant<|channel|>commentary<|message|>r":          {"Harmony", 0},
		"<|start|>user to=functions.f<|message|>{}":                                   {"Harmony", 0},
		"<|start|>assistant to=functions.f<|channel|>commentary<|message|>{}":         {"Harmony", 1},
		" to=functions.f<|channel|>commentary<|message|>{}":                           {"Harmony", 1},
		"<|channel|>analysis<|message|>a to=functions.f<|end|>":                       {"Harmony", 0},
		"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}": {"Harmony", 1},
	} {
		h := &hand{thought: [2]string{"<think>", "</think>"}, calls: all[want.notation], channels: harmony()}
		got := h.read(text, true, 0, nil)
		if len(got.ToolCalls) != want.calls || want.calls == 0 && got.Content+got.Reasoning == "" {
			t.Errorf("%s: %+v", text, got)
		}
	}
}
