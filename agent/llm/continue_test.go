package llm_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/agent/llm/llmtest"
	"deepswe/tools"
)

// talk plays some turns of a conversation as an agent would, and returns the sample of each.
func talk(t *testing.T, c *llm.Client, turns int, specs []tools.Spec) []*agent.Sample {
	t.Helper()
	r := agent.Request{
		Messages: []agent.Message{{Role: agent.RoleSystem, Content: "Fix it."}, {Role: agent.RoleUser, Content: "issue"}},
		Tokens:   true, Tools: specs,
	}
	var samples []*agent.Sample
	for i := range turns {
		reply, err := c.Complete(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		samples = append(samples, reply.Tokens)
		r.Messages = append(r.Messages, reply.Message)
		r.Sampled, r.Fresh = reply.Tokens, len(r.Messages)
		if len(reply.Message.ToolCalls) == 0 {
			r.Messages = append(r.Messages, agent.Message{Role: agent.RoleUser, Content: fmt.Sprint("observation ", i)})
		}
		for _, call := range reply.Message.ToolCalls {
			r.Messages = append(r.Messages,
				agent.Message{Role: agent.RoleTool, Content: fmt.Sprint("result ", i), ToolCallID: call.ID, Name: call.Name})
		}
	}
	return samples
}

func extends(prev, next *agent.Sample) bool {
	whole := slices.Concat(prev.PromptIDs, prev.CompletionIDs)
	return len(next.PromptIDs) > len(whole) && slices.Equal(whole, next.PromptIDs[:len(whole)])
}

// If a template drops earlier thoughts, its own prompts do not extend each other, but extended prompts do.
func TestPromptsExtendWhereTheTemplateDropsThoughts(t *testing.T) {
	specs := []tools.Spec{{Name: "search", Description: "Finds.", Parameters: []byte(`{"type":"object"}`)}}
	for _, mode := range []llm.Continuation{llm.Template, llm.Extend, llm.Auto} {
		for name, reply := range map[string]llmtest.Reply{
			"text":       {Content: "I look.", Reasoning: "Where is it?"},
			"no thought": {Content: "I look."},
			"calls": {Reasoning: "Where?", Calls: []llmtest.Call{
				{Name: "search", Arguments: `{"search_term": "x"}`}, {Name: "search", Arguments: `{"search_term": "y"}`},
			}},
			"cut off": {Content: "I lo", Reasoning: "Where", FinishReason: "length"},
		} {
			t.Run(string(mode)+" "+name, func(t *testing.T) {
				fake := &llmtest.Server{
					TakesTokens: true, DropsThoughts: true, Answer: func(llmtest.Request) llmtest.Reply { return reply },
				}
				samples := talk(t, dial(t, fake, llm.Options{Continue: mode}), 4, specs)
				for i := 1; i < len(samples); i++ {
					want := mode != llm.Template || name == "no thought" || name == "calls"
					if got := extends(samples[i-1], samples[i]); got != want {
						t.Errorf("turn %d extends the one before: %t, want %t\n%q\n%q", i, got, want,
							llmtest.Detokenize(slices.Concat(samples[i-1].PromptIDs, samples[i-1].CompletionIDs)),
							llmtest.Detokenize(samples[i].PromptIDs))
					}
				}
				last := llmtest.Detokenize(samples[3].PromptIDs)
				if strings.Count(last, "<|im_end|>") != strings.Count(last, "<|im_start|>")-1 ||
					!strings.HasSuffix(last, "<|im_end|>\n<|im_start|>assistant\n") {
					t.Errorf("the last prompt is %q", last)
				}
			})
		}
	}
}

// An extended reply is parsed here as the server would have parsed it.
func TestContinuedRepliesAreRead(t *testing.T) {
	fake := &llmtest.Server{TakesTokens: true, Answer: func(llmtest.Request) llmtest.Reply {
		return llmtest.Reply{Reasoning: "Where?", Content: "Well.\n", Calls: []llmtest.Call{
			{Name: "search", Arguments: `{"search_term": "x"}`}, {Name: "finish", Arguments: `{"a": `},
		}}
	}}
	specs := []tools.Spec{{Name: "search", Parameters: []byte(`{}`)}}
	r := ask("issue")
	r.Tokens, r.Tools = true, specs
	reply, err := dial(t, fake, llm.Options{Continue: llm.Extend}).Complete(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	m := reply.Message
	if m.Reasoning != "Where?" || m.Content != "Well." || len(m.ToolCalls) != 2 ||
		m.ToolCalls[0].Arguments != `{"search_term": "x"}` || m.ToolCalls[1].Name != "finish" ||
		m.ToolCalls[0].ID == m.ToolCalls[1].ID {
		t.Errorf("the reply is read as %+v", m)
	}
	body := fake.Requests()[0]
	for key, want := range map[string]string{
		"logprobs": "0", "return_token_ids": "true", "skip_special_tokens": "false", "stop_token_ids": fmt.Sprintf("[%d]",
			reply.Tokens.CompletionIDs[len(reply.Tokens.CompletionIDs)-1]),
	} {
		if got := string(body.Member(key)); got != want {
			t.Errorf("the request has %s: %s, want %s", key, got, want)
		}
	}
}

func TestServersThatCannotExtend(t *testing.T) {
	fake := func() *llmtest.Server {
		return &llmtest.Server{Answer: func(llmtest.Request) llmtest.Reply { return llmtest.Text("ok") }}
	}
	r := ask("issue")
	r.Tokens = true
	_, err := dial(t, fake(), llm.Options{Continue: llm.Extend}).Complete(t.Context(), r)
	if !errors.Is(err, llm.ErrNoExtension) || !strings.Contains(err.Error(), "has no /tokenize") ||
		!strings.Contains(err.Error(), "--tokens template") {
		t.Errorf("the error is %v", err)
	}
	for want, s := range map[error]*llmtest.Server{llm.ErrNoExtension: fake(), nil: {TakesTokens: true}} {
		if err := dial(t, s, llm.Options{}).CheckExtends(t.Context()); !errors.Is(err, want) {
			t.Errorf("the check says %v, want %v", err, want)
		}
	}
	reply, err := dial(t, fake(), llm.Options{Continue: llm.Auto}).Complete(t.Context(), r)
	if err != nil || reply.Tokens == nil {
		t.Errorf("auto: %+v, %v", reply, err)
	}
}

// A template may leave out the text of a reply with calls: the arguments show where the reply ends.
func TestTemplateWithoutTheTextOfCalls(t *testing.T) {
	fake := &llmtest.Server{TakesTokens: true, DropsText: true, Answer: func(llmtest.Request) llmtest.Reply {
		return llmtest.Reply{Calls: []llmtest.Call{{Name: "search", Arguments: `{"search_term": "x"}`}}}
	}}
	specs := []tools.Spec{{Name: "search", Parameters: []byte(`{}`)}}
	samples := talk(t, dial(t, fake, llm.Options{Continue: llm.Extend}), 3, specs)
	for i := 1; i < len(samples); i++ {
		if !extends(samples[i-1], samples[i]) {
			t.Errorf("turn %d does not extend the one before: %q", i, llmtest.Detokenize(samples[i].PromptIDs))
		}
	}
}

// A prompt that is as long as the context leaves no room for a reply, and is not sent.
func TestExtendedPromptThatFillsTheContext(t *testing.T) {
	r := ask("issue")
	r.Tokens = true
	measure := &llmtest.Server{
		TakesTokens: true, Answer: func(llmtest.Request) llmtest.Reply { return llmtest.Text("ok") },
	}
	reply, err := dial(t, measure, llm.Options{Continue: llm.Extend}).Complete(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	length := len(reply.Tokens.PromptIDs)
	for more, fits := range map[int]bool{-1: false, 0: false, 1: true} {
		fake := &llmtest.Server{
			TakesTokens: true, Models: []llmtest.Model{{ID: "m", Context: length + more}},
			Answer: func(llmtest.Request) llmtest.Reply { return llmtest.Text("a longer reply than fits") },
		}
		reply, err := dial(t, fake, llm.Options{Continue: llm.Extend}).Complete(t.Context(), r)
		if fits && (err != nil || len(reply.Tokens.CompletionIDs) != 1) || !fits && !errors.Is(err, agent.ErrContextOverflow) {
			t.Errorf("a prompt of %d in a context of %d: %v", length, length+more, err)
		}
		if !fits && len(fake.Requests()) > 0 {
			t.Error("a prompt that does not fit was sent")
		}
	}
}

func TestAnswersThatCannotBeTrainedOn(t *testing.T) {
	edit := func(change func(choice map[string]any)) llmtest.Reply {
		return llmtest.Reply{Content: "some text", Edit: func(answer map[string]any) {
			change(answer["choices"].([]any)[0].(map[string]any))
		}}
	}
	for name, tt := range map[string]struct {
		reply llmtest.Reply
		want  string
	}{
		"null": {edit(func(c map[string]any) {
			c["logprobs"] = map[string]any{"token_logprobs": []any{nil, -1.0, -1.0, -1.0}}
		}), "token 0 has no logprob"},
		"missing": {edit(func(c map[string]any) { c["logprobs"] = nil }), "no logprobs"},
		"too few": {edit(func(c map[string]any) { c["logprobs"] = map[string]any{"token_logprobs": []any{-1.0}} }),
			"4 token ids and 1 logprobs"},
		"minus infinity": {edit(func(c map[string]any) {
			c["logprobs"] = map[string]any{"token_logprobs": []any{-1.0, -9999.0, -1.0, -1.0}}
		}), "--generation-config vllm"},
		"Python's infinity": {llmtest.Body(200, "application/json",
			`{"choices":[{"text":"x","logprobs":{"token_logprobs":[-Infinity]}}]}`), "not a number (-Infinity)"},
		"above 0": {edit(func(c map[string]any) {
			c["logprobs"] = map[string]any{"token_logprobs": []any{-1.0, 3.5, -1.0, -1.0}}
		}), "logprob 3.5"},
		"no token": {edit(func(c map[string]any) {
			c["token_ids"], c["logprobs"] = []int32{}, map[string]any{"token_logprobs": []any{}}
		}), "no token at all"},
		"no ids": {edit(func(c map[string]any) { delete(c, "token_ids") }), "no token ids"},
		"another prompt": {edit(func(c map[string]any) { c["prompt_token_ids"] = []int32{1, 2} }),
			"read another prompt (2 tokens)"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &llmtest.Server{TakesTokens: true, Answer: func(llmtest.Request) llmtest.Reply { return tt.reply }}
			r := ask("issue")
			r.Tokens = true
			_, err := dial(t, fake, llm.Options{Continue: llm.Extend}).Complete(t.Context(), r)
			if err == nil || !strings.Contains(err.Error(), tt.want) || len(fake.Requests()) != 1 {
				t.Errorf("after %d requests: %v", len(fake.Requests()), err)
			}
		})
	}
}

// The version is that of the weights before the reply, or the one in the model's name.
func TestVersionsOfWeights(t *testing.T) {
	version := "default"
	fake := &llmtest.Server{
		TakesTokens: true, Models: []llmtest.Model{{ID: "qwen3-32b"}, {ID: "policy@12"}},
		WeightVersion: func() string { return version },
		Answer:        func(llmtest.Request) llmtest.Reply { version = "step-8"; return llmtest.Text("ok") },
	}
	for _, mode := range []llm.Continuation{llm.Template, llm.Extend} {
		version = "default"
		base := dial(t, fake, llm.Options{Continue: mode, Model: "qwen3-32b"})
		adapter := dial(t, fake, llm.Options{Continue: mode, Model: "policy@12"})
		var got []string
		r := ask("issue")
		r.Tokens = true
		for _, c := range []*llm.Client{base, base, adapter} {
			reply, err := c.Complete(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if v := reply.Tokens.PolicyVersion; v != nil {
				got = append(got, fmt.Sprint(*v))
			} else {
				got = append(got, "unknown")
			}
		}
		if want := []string{"unknown", "8", "12"}; !slices.Equal(got, want) {
			t.Errorf("%s: versions %v, want %v", mode, got, want)
		}
	}
}
