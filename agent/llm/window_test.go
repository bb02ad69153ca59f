package llm_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/agent/llm/llmtest"
	"deepswe/tools"
)

// recorded answers with the recorded bodies of a server, by path.
func recorded(bodies map[string]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := bodies[r.URL.Path]
		if !ok || (r.Method == http.MethodPost) != strings.HasPrefix(body, "POST ") {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, strings.TrimPrefix(body, "POST "))
	})
}

// The limit is that of the model as it was loaded, not the length that it was trained for.
func TestMeasure(t *testing.T) {
	const show = `POST {"parameters":"num_ctx                        8192\nstop  \"<|im_end|>\"",` +
		`"model_info":{"general.architecture":"qwen3","qwen3.context_length":40960},"capabilities":["completion","tools"]}`
	tests := map[string]struct {
		bodies map[string]string
		want   llm.ServedModel
		scarce string // a part of the advice
	}{
		"Ollama, loaded": {
			map[string]string{
				"/v1/models": `{"object":"list","data":[{"id":"qwen3:8b","object":"model","owned_by":"library"}]}`,
				"/api/ps":    `{"models":[{"name":"qwen3:8b","model":"qwen3:8b","context_length":4096}]}`,
				"/api/show":  show,
			},
			llm.ServedModel{ID: "qwen3:8b", Owner: "library", Context: 4096, Loaded: true, Trained: 40960, Tools: new(true)},
			"\nto fix: OLLAMA_CONTEXT_LENGTH=40960 ollama serve",
		},
		"Ollama, not loaded": {
			map[string]string{
				"/v1/models": `{"object":"list","data":[{"id":"qwen3:8b","owned_by":"library"}]}`,
				"/api/ps":    `{"models":[]}`, "/api/show": show,
			},
			llm.ServedModel{ID: "qwen3:8b", Owner: "library", Context: 8192, Trained: 40960, Tools: new(true)},
			"has a context of 8192 tokens",
		},
		"Ollama, the server's default": {
			map[string]string{
				"/v1/models": `{"object":"list","data":[{"id":"old","owned_by":"library"}]}`,
				"/api/ps":    `{"models":null}`,
				"/api/show": `POST {"model_info":{"general.architecture":"llama","llama.context_length":8192},` +
					`"capabilities":["completion"]}`,
			},
			llm.ServedModel{ID: "old", Owner: "library", Trained: 8192, Tools: new(false)}, "",
		},
		"LM Studio": {
			map[string]string{
				"/v1/models": `{"object":"list","data":[{"id":"q","object":"model","owned_by":"organization_owner"}]}`,
				"/api/v1/models": `{"models":[{"type":"llm","key":"q",` +
					`"loaded_instances":[{"id":"q","config":{"context_length":4096}}],"max_context_length":262144,"capabilities":{"trained_for_tool_use":true}}]}`,
			},
			llm.ServedModel{
				ID: "q", Owner: "organization_owner", Context: 4096, Loaded: true, Trained: 262144, Tools: new(true),
			},
			"lms load q --context-length 65536",
		},
		"llama.cpp": {
			map[string]string{
				"/v1/models": `{"object":"list","data":[{"id":"q.gguf","owned_by":"llamacpp","meta":{"n_ctx_train":40960}}]}`,
				"/props":     `{"default_generation_settings":{"n_ctx":8192,"params":{}},"total_slots":4,"model_path":"q.gguf"}`,
			},
			llm.ServedModel{ID: "q.gguf", Owner: "llamacpp", Context: 8192, Slots: 4, Trained: 40960},
			"llama-server … -c 163840 -np 4",
		},
		"SGLang": {
			map[string]string{
				"/v1/models":       `{"object":"list","data":[{"id":"q","owned_by":"sglang","max_model_len":40960}]}`,
				"/get_server_info": `{"context_length":null,"max_total_num_tokens":20480}`,
			},
			llm.ServedModel{ID: "q", Owner: "sglang", Context: 20480}, "--context-length 65536",
		},
		"vLLM": {
			map[string]string{
				"/v1/models": `{"object":"list","data":[{"id":"q","owned_by":"vllm","root":"/m/q","max_model_len":8192}]}`,
			},
			llm.ServedModel{ID: "q", Root: "/m/q", Owner: "vllm", Context: 8192}, "vllm serve /m/q --max-model-len 65536",
		},
		"LiteLLM": {
			map[string]string{
				"/v1/models": `{"data":[{"id":"smol","object":"model","owned_by":"openai","max_input_tokens":8192,` +
					`"max_output_tokens":1024}],"object":"list"}`,
			},
			llm.ServedModel{ID: "smol", Owner: "openai", Context: 8192}, "serve it with a context of 65536 tokens",
		},
		"a small model in less": {
			map[string]string{
				"/v1/models": `{"object":"list","data":[{"id":"q","owned_by":"llamacpp",` +
					`"meta":{"n_ctx":4096,"n_ctx_train":8192}}]}`,
			},
			llm.ServedModel{ID: "q", Owner: "llamacpp", Context: 4096, Trained: 8192}, "choose another model",
		},
		"a small model": {
			map[string]string{
				"/v1/models": `{"object":"list","data":[{"id":"q","owned_by":"llamacpp",` +
					`"meta":{"n_ctx":2048,"n_ctx_train":2048}}]}`,
			},
			llm.ServedModel{ID: "q", Owner: "llamacpp", Context: 2048, Trained: 2048}, "choose another model",
		},
		"enough": {
			map[string]string{"/v1/models": `{"object":"list","data":[{"id":"q","owned_by":"vllm","max_model_len":40960}]}`},
			llm.ServedModel{ID: "q", Owner: "vllm", Context: 40960}, "",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := dial(t, recorded(tt.bodies), llm.Options{}).Discover(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if said := got.Scarce(); (said == "") != (tt.scarce == "") || !strings.Contains(said, tt.scarce) {
				t.Errorf("%q does not hold %q", said, tt.scarce)
			}
		})
	}
}

// The number of tokens shows whether the whole first prompt was read, because each word takes at least one token.
func TestPromptThatIsCut(t *testing.T) {
	r := ask(strings.Repeat("word ", 3000))
	r.Tools = []tools.Spec{{Name: "execute_bash", Description: strings.Repeat("word ", 2000), Parameters: []byte(`{}`)}}
	reads := func(tokens int) llmtest.Reply {
		reply := llmtest.Text("ok")
		reply.Edit = func(answer map[string]any) { answer["usage"] = map[string]any{"prompt_tokens": tokens} }
		return reply
	}
	for _, tt := range []struct {
		tokens int
		err    string
		xml    bool // the rollout may go on in XML
	}{
		{tokens: 0}, // not counted
		{tokens: 6800},
		{tokens: 5000},
		{tokens: 3400, err: "its chat template leaves out the tools", xml: true},
		{tokens: 2048, err: "it has read only 2048 tokens of a prompt with 3000 words"},
	} {
		fake := llmtest.New(reads(tt.tokens), reads(10))
		c := dial(t, fake, llm.Options{})
		_, err := c.Complete(t.Context(), r)
		if tt.err == "" {
			if err != nil {
				t.Errorf("%d tokens: %v", tt.tokens, err)
			}
			continue
		}
		if !errors.Is(err, agent.ErrModelUnavailable) || !strings.Contains(err.Error(), tt.err) ||
			errors.Is(err, agent.ErrToolsUnsupported) != tt.xml || len(fake.Requests()) != 1 {
			t.Errorf("%d tokens: %v after %d requests", tt.tokens, err, len(fake.Requests()))
		}
	}
	// If a whole prompt was read before, a smaller count comes from a cache.
	fake := llmtest.New(reads(6800), reads(10))
	c := dial(t, fake, llm.Options{})
	for range 2 {
		if _, err := c.Complete(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
}
