package llm_test

import (
	"encoding/json"
	"testing"

	"deepswe/agent/llm"
	"deepswe/agent/llm/llmtest"
)

// If the logprobs of a sample at almost zero temperature are not nearly 0, the server computed them before the
// temperature.
func TestCheckOfLogprobs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		logprob float64
		raw     bool
	}{"of the model": {-2.5, true}, "of what was sampled": {-0.0001, false}} {
		reply := llmtest.Reply{Content: "yes", Reasoning: "hm", Edit: func(answer map[string]any) {
			scores := answer["choices"].([]any)[0].(map[string]any)["logprobs"].(map[string]any)["content"].([]any)
			for _, s := range scores {
				s.(map[string]any)["logprob"] = c.logprob
			}
		}}
		fake := llmtest.New(reply, reply)
		h, err := dial(t, fake, llm.Options{}).Check(t.Context())
		if err != nil || h.RawLogprobs != c.raw || !h.Separates {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
		var temperature float64
		if asked := fake.Requests(); len(asked) < 2 || json.Unmarshal(asked[1].Member("temperature"), &temperature) != nil ||
			temperature != 0.01 || string(asked[1].Member("top_k")) != "-1" {
			t.Errorf("%s: asked %d times, the last time at %v", name, len(asked), temperature)
		}
	}
}

// Some servers remove the thought but leave the line breaks after it, which are then removed as well.
func TestLineBreaksAfterAThought(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ thought, content, want string }{
		{"hm", "\n\n<function=finish>\n</function>", "<function=finish>\n</function>"},
		{"", "\n\nno thought", "\n\nno thought"},
	} {
		fake := llmtest.New(llmtest.Reply{Reasoning: c.thought, Content: c.content})
		got, err := dial(t, fake, llm.Options{}).Complete(t.Context(), ask("x"))
		if err != nil || got.Message.Content != c.want {
			t.Errorf("%q, %v, want %q", got.Message.Content, err, c.want)
		}
	}
}
