package llm_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"deepswe/agent/llm"
	"deepswe/agent/llm/llmtest"
)

// spelled is a reply of 100 tokens. At each place 20 tokens have 2% each, with logprobs that differ by apart, and if
// inside says so, one of these was sampled.
func spelled(apart float64, inside func(place int) bool) llmtest.Reply {
	return llmtest.Reply{Content: "words", Edit: func(answer map[string]any) {
		var content []any
		for place := range 100 {
			var top []any
			for k := range 20 {
				top = append(top, map[string]any{"token": fmt.Sprint("t", k), "logprob": math.Log(0.02) - float64(k)*apart})
			}
			sampled := map[string]any{"token": "t3", "logprob": math.Log(0.02) - 3*apart, "top_logprobs": top}
			if !inside(place) {
				sampled = map[string]any{"token": "rare", "logprob": math.Log(0.001), "top_logprobs": top}
			}
			content = append(content, sampled)
		}
		answer["choices"].([]any)[0].(map[string]any)["logprobs"] = map[string]any{"content": content}
	}}
}

func TestVet(t *testing.T) {
	plain := llmtest.Text("an ordinary reply of some tokens")
	edited := func(logprob float64) llmtest.Reply {
		return llmtest.Reply{Content: "an ordinary reply of some tokens", Edit: func(answer map[string]any) {
			list := answer["choices"].([]any)[0].(map[string]any)["logprobs"].(map[string]any)
			probs := list["token_logprobs"].([]float64)
			for i := range probs {
				probs[i] = logprob
			}
		}}
	}
	for name, tt := range map[string]struct {
		reply, spelled llmtest.Reply
		temperature    float64
		want           string
	}{
		"sound":                       {reply: plain, spelled: spelled(1e-6, func(i int) bool { return i%3 == 0 }), temperature: 1},
		"no alternatives":             {reply: plain, spelled: plain, temperature: 1},
		"scored otherwise":            {reply: edited(-3), spelled: plain, temperature: 1, want: "a second scoring"},
		"zeros":                       {reply: edited(0), spelled: plain, temperature: 1, want: "logprobs are 0"},
		"raw":                         {reply: plain, spelled: plain, temperature: 0.6, want: "processed_logprobs"},
		"processed":                   {reply: edited(-0.01), spelled: plain, temperature: 0.6},
		"a hidden top_k":              {reply: plain, spelled: spelled(1e-6, func(int) bool { return true }), temperature: 1, want: "top_k"},
		"equally likely tokens":       {reply: plain, spelled: spelled(0, func(int) bool { return true }), temperature: 1},
		"a few outside are no filter": {reply: plain, spelled: spelled(1e-6, func(i int) bool { return i > 0 }), temperature: 1},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &llmtest.Server{TakesTokens: true, Answer: func(r llmtest.Request) llmtest.Reply {
				if r.Member("top_logprobs") != nil {
					return tt.spelled
				}
				return tt.reply
			}}
			err := dial(t, fake, llm.Options{Continue: llm.Extend}).Vet(t.Context(), tt.temperature)
			if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, llm.ErrUntrainable) ||
				!strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error = %v", err)
			}
		})
	}
}
