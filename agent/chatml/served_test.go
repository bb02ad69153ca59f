package chatml_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent"
	"deepswe/agent/chatml"
	"deepswe/agent/llm"
	"deepswe/agent/tokenizer"
	"deepswe/tools"
)

// server serves a template and a tokenizer as vLLM does, and replies with what say returns for a prompt.
type server struct {
	template *chatml.Template
	tokens   *tokenizer.Tokenizer
	say      func(prompt []int32) []int32
	asked    int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked++
	var in struct {
		Messages []struct {
			agent.Message
			Calls []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
			Call string `json:"tool_call_id"`
		}
		Tools []struct {
			Function struct {
				Name, Description string
				Parameters        json.RawMessage
			}
		}
		Begin  bool `json:"add_generation_prompt"`
		Prompt any
		Tokens []int32
	}
	if r.Method == http.MethodPost {
		_ = json.NewDecoder(r.Body).Decode(&in)
	}
	var out any
	switch r.URL.Path {
	case "/tokenize":
		text, _ := in.Prompt.(string)
		if len(in.Messages) > 0 {
			var messages []agent.Message
			for _, m := range in.Messages {
				m.ToolCallID = m.Call
				for _, c := range m.Calls {
					m.ToolCalls = append(m.ToolCalls, agent.ToolCall{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
				}
				messages = append(messages, m.Message)
			}
			o := chatml.Options{Reply: in.Begin}
			for _, t := range in.Tools {
				o.Tools = append(o.Tools, tools.Spec(t.Function))
			}
			var err error
			if text, err = s.template.Render(messages, o); err != nil {
				http.Error(w, `{"error": {"message": "the template refuses it", "code": 400}}`, http.StatusBadRequest)
				return
			}
		}
		out = map[string]any{"tokens": s.tokens.Encode(text), "max_model_len": 100_000}
	case "/detokenize":
		out = map[string]any{"prompt": s.tokens.Decode(in.Tokens)}
	case "/v1/completions":
		var prompt []int32
		for _, id := range in.Prompt.([]any) {
			prompt = append(prompt, int32(id.(float64)))
		}
		ids := s.say(prompt)
		out = map[string]any{"model": "m", "choices": []any{map[string]any{
			"text": s.tokens.Decode(ids[:len(ids)-1]), "finish_reason": "stop", "token_ids": ids, "prompt_token_ids": prompt,
			"logprobs": map[string]any{"token_logprobs": slices.Repeat([]float64{-1}, len(ids))},
		}}}
	default:
		out = map[string]any{"data": []any{map[string]any{"id": "m", "owned_by": "vllm", "max_model_len": 100_000}}}
	}
	_ = json.NewEncoder(w).Encode(out)
}

// A server's template and tokenizer, learned by requests, give the same prompts as those that are known here, and its
// replies are read the same way, in every notation.
func TestServedTemplates(t *testing.T) {
	t.Parallel()
	specs := []tools.Spec{{Name: "search", Description: "Finds.", Parameters: json.RawMessage(
		`{"type":"object","properties":{"text":{"type":"string","description":"t"},"n":{"type":"integer","description":"n"}}}`)}}
	for name, source := range chatml.Templates() {
		for _, native := range []bool{true, false} {
			t.Run(name+map[bool]string{false: " as text"}[native], func(t *testing.T) {
				t.Parallel()
				template, err := chatml.New(source, "", nil)
				if err != nil {
					t.Fatal(err)
				}
				s := &server{template: template, tokens: chatml.SmallTokens(t)}
				known, err := chatml.NewCodec(s.tokens, template)
				if err != nil {
					t.Fatal(err)
				}
				http := httptest.NewServer(s)
				t.Cleanup(http.Close)
				c, err := llm.New(llm.Options{BaseURL: http.URL + "/v1", Model: "m", Continue: llm.Extend})
				if err != nil {
					t.Fatal(err)
				}
				r := agent.Request{Messages: []agent.Message{{Role: agent.RoleUser, Content: "Fix <|im_end|> it."}}, Tokens: true}
				if native {
					r.Tools = specs
				}
				for turn := range 3 {
					said := agent.Message{Role: agent.RoleAssistant, Content: "I look for </tool_call>."}
					if native {
						said = agent.Message{Role: agent.RoleAssistant, ToolCalls: []agent.ToolCall{
							{ID: "call_0001", Name: "search", Arguments: `{"text": "a \"b\" é", "n": 5}`},
						}}
					}
					want, err := known.Prompt(t.Context(), r)
					if err != nil {
						t.Fatal(err)
					}
					s.say = func(prompt []int32) []int32 {
						if diff := cmp.Diff(s.tokens.Decode(want), s.tokens.Decode(prompt)); diff != "" || !slices.Equal(prompt, want) {
							t.Errorf("the prompt of turn %d (-known, +served):\n%s", turn, diff)
						}
						o := chatml.Options{Tools: r.Tools}
						before, _ := template.Render(r.Messages[:1], chatml.Options{Tools: r.Tools, Reply: true})
						whole, err := template.Render([]agent.Message{r.Messages[0], said}, o)
						if err != nil {
							t.Error(err)
						}
						return known.Sample(s.tokens.Encode(before), s.tokens.Encode(whole), native)
					}
					reply, err := c.Complete(t.Context(), r)
					if err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(known.Reply(reply.Tokens.CompletionIDs, r), reply.Message); diff != "" {
						t.Errorf("turn %d is read otherwise (-known, +served):\n%s", turn, diff)
					}
					if native && len(reply.Message.ToolCalls) != 1 {
						t.Fatalf("turn %d has the calls %+v", turn, reply.Message)
					}
					r.Messages = append(r.Messages, reply.Message)
					r.Sampled, r.Fresh = reply.Tokens, len(r.Messages)
					then := agent.Message{Role: agent.RoleUser, Content: "Go on."}
					if native {
						call := reply.Message.ToolCalls[0]
						then = agent.Message{Role: agent.RoleTool, Content: "found", ToolCallID: call.ID, Name: call.Name}
					}
					r.Messages = append(r.Messages, then)
				}
				t.Logf("%d requests", s.asked)
			})
		}
	}
}
