package llm

import "testing"

// These wordings were reported by users of the endpoints.
func TestIsOverflow(t *testing.T) {
	tests := map[string]bool{
		"This model's maximum context length is 262144 tokens. However, you requested 0 output tokens and your prompt contains at least 262145 input tokens": true,
		"'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 32768 tokens and your request has 30000 input":   true,
		"You passed 8193 input tokens and requested 1 output tokens. However, the model's context length is only 8192 tokens":                                true,
		"The decoder prompt (length 8357) is longer than the maximum model length of 8192. Make sure that `max_model_len` is no smaller":                     true,
		"max_tokens must be at least 1, got -186.":                                                               true,
		"The input (263000 tokens) is longer than the model's context length (262144 tokens).":                   true,
		"Requested token count exceeds the model's maximum context length of 262144 tokens. You requested":       true,
		"Input length (265330) exceeds model's maximum context length (262144).":                                 true,
		"request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it":              true,
		"the request exceeds the available context size. try increasing the context size":                        true,
		"input (9000 tokens) is larger than the max context size (8192 tokens). skipping":                        true,
		"the input length exceeds the context length":                                                            true,
		"The number of tokens to keep from the initial prompt is greater than the context length":                true,
		"Your input exceeds the context window of this model. Please adjust your input and try again.":           true,
		"prompt is too long: 215000 tokens > 200000 maximum":                                                     true,
		"input length and `max_tokens` exceed context limit: 198000 + 8192 > 200000":                             true,
		"Prompt too long: 5152 tokens exceeds max_seq_len 2048 (leave room for output tokens)":                   true,
		"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).":                true,
		"Prompt contains 40960 tokens and 0 draft tokens, too large for model with 32768 maximum context length": true,
		"Input length 131393 exceeds the maximum allowed input length of 131040 tokens.":                         true,
		"Invalid request: Your request exceeded model token limit: 131072":                                       true,
		"`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4000 `inputs` tokens":                        true,
		"This model's maximum prompt length is 131072 but the request contains 537812 tokens.":                   true,
		"Please reduce the length of the messages or completion.":                                                true,
		"litellm.ContextWindowExceededError: litellm.BadRequestError":                                            true,
		"Prompt tokens (9000) exceeds context size (8192)":                                                       true,

		"Rate limit reached: too many tokens per minute, context length exceeded your quota": false,
		"Unknown parameter: 'context'":                              false,
		"temperature must be non-negative, got -1":                  false,
		"max_tokens must be at least 1, got 0.":                     false,
		"The model `long-context` does not exist.":                  false,
		"tool_call_id \"context length\" answers no call":           false,
		"Request timed out":                                         false,
		"Expecting value: line 1 column 1 (char 0)":                 false,
		"string too long. Expected a string with maximum length 64": false,
		"EngineCore encountered an issue. See stack trace above":    false,
	}
	for message, want := range tests {
		if got := isOverflow(400, serverError{Message: message}); got != want {
			t.Errorf("isOverflow is %v for %q", got, message)
		}
	}
	for _, code := range []string{"context_length_exceeded", "model_context_window_exceeded"} {
		if !isOverflow(400, serverError{Code: code, Message: "no"}) {
			t.Errorf("code %s", code)
		}
	}
	if !isOverflow(400, serverError{Type: "exceed_context_size_error", Message: "no"}) {
		t.Error("llama.cpp's error type is not recognised")
	}
	if isOverflow(429, serverError{Message: "maximum context length"}) {
		t.Error("a rate limit is an overflow")
	}
}
