package llm_test

import (
	"fmt"
	"net/http"
	"time"

	"deepswe/agent/llm/llmtest"
)

// rateLimitedUntil fails with 429 and the date to wait for.
func rateLimitedUntil(at time.Time) llmtest.Reply {
	return llmtest.Body(http.StatusTooManyRequests, "application/json", `{"error":{"message":"slow down"}}`,
		"Retry-After", at.UTC().Format(http.TimeFormat))
}

// flat fails with the flat body of SGLang and of vLLM before 0.11.
func flat(code int, message string) llmtest.Reply {
	return llmtest.Body(code, "application/json",
		fmt.Sprintf(`{"object":"error","message":%q,"type":"BadRequestError","param":null,"code":%d}`, message, code))
}

// silent accepts the request and never answers.
func silent() llmtest.Reply { return llmtest.Reply{Wait: 24 * time.Hour} }

// overflows returns the errors of servers whose context is exceeded.
func overflows() map[string]llmtest.Reply {
	return map[string]llmtest.Reply{
		"vllm, exactly full": llmtest.Status(http.StatusBadRequest, "max_tokens must be at least 1, got 0. "+
			"(parameter=max_tokens, value=0)"),
		"vllm": llmtest.Status(http.StatusBadRequest, "This model's maximum context length is 32768 tokens. However, your "+
			"request has 40000 input tokens. Please reduce the length of the input messages."),
		"vllm-flat": flat(http.StatusBadRequest, "This model's maximum context length is 32768 tokens. However, you "+
			"requested 40000 tokens (36000 in the messages, 4000 in the completion). Please reduce the length of the "+
			"messages or completion."),
		"sglang": flat(http.StatusBadRequest, "The input (61709 tokens) is longer than the model's context length (40960 "+
			"tokens)."),
		"llama.cpp": llmtest.Body(http.StatusBadRequest, "application/json", `{"error":{"code":400,"message":"request (9000 `+
			`tokens) exceeds the available context size (8192 tokens), try increasing `+
			`it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}`),
		"ollama": llmtest.Body(http.StatusInternalServerError, "application/json", `{"error":{"message":"the input length `+
			`exceeds the context length","type":"api_error","param":null,"code":null}}`),
		"openai": llmtest.Body(http.StatusBadRequest, "application/json", `{"error":{"message":"Your input exceeds the `+
			`context window of this model. Please adjust your input and try `+
			`again.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`),
	}
}
