package llmtest

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// serveTokens serves vLLM's endpoints for tokens: tokenizing, and completions of prompts in tokens.
func (s *Server) serveTokens(w http.ResponseWriter, r *http.Request) {
	known := map[string]func(http.ResponseWriter, *http.Request, []byte){
		"/tokenize": s.serveTokenize, "/detokenize": serveDetokenize, "/v1/completions": s.serveContinuation,
	}
	serve, ok := known[r.URL.Path]
	switch {
	case r.URL.Path == "/weight_info" && s.WeightVersion != nil:
		writeJSON(w, http.StatusOK, map[string]any{"weight_version": s.WeightVersion()})
		return
	case !ok || !s.TakesTokens:
		refuse(w, http.StatusNotFound, "Not Found", "NotFoundError")
		return
	}
	raw, err := io.ReadAll(r.Body)
	if err == nil {
		serve(w, r, raw)
	}
}

func (s *Server) serveTokenize(w http.ResponseWriter, _ *http.Request, raw []byte) {
	req := Request{Body: raw, dropsThoughts: s.DropsThoughts, dropsText: s.DropsText}
	var more struct {
		AddGenerationPrompt bool    `json:"add_generation_prompt"`
		Prompt              *string `json:"prompt"`
	}
	if json.Unmarshal(raw, &req) != nil || json.Unmarshal(raw, &more) != nil {
		refuse(w, http.StatusBadRequest, "body is not JSON", "BadRequestError")
		return
	}
	ids := req.conversation()
	if more.AddGenerationPrompt {
		ids = req.PromptTokens()
	}
	if more.Prompt != nil {
		ids = text(*more.Prompt)
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"count": len(ids), "max_model_len": s.models()[0].context(), "tokens": ids,
	})
}

func serveDetokenize(w http.ResponseWriter, _ *http.Request, raw []byte) {
	var req struct {
		Tokens []int32 `json:"tokens"`
	}
	if json.Unmarshal(raw, &req) != nil {
		refuse(w, http.StatusBadRequest, "body is not JSON", "BadRequestError")
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"prompt": Detokenize(req.Tokens)})
}

func (s *Server) serveContinuation(w http.ResponseWriter, r *http.Request, raw []byte) {
	var prompt struct {
		Prompt    []int32 `json:"prompt"`
		Model     string  `json:"model"`
		MaxTokens int     `json:"max_tokens"`
		Scored    *int    `json:"prompt_logprobs"`
	}
	if json.Unmarshal(raw, &prompt) != nil {
		refuse(w, http.StatusBadRequest, "body is not JSON", "BadRequestError")
		return
	}
	if prompt.Scored != nil {
		writeJSON(w, http.StatusOK, scores(prompt.Prompt))
		return
	}
	s.answer(w, r, Request{
		Header: r.Header.Clone(), Body: raw, Model: prompt.Model, MaxTokens: prompt.MaxTokens, PromptIDs: prompt.Prompt,
		Messages: spoken(prompt.Prompt), ReturnTokenIDs: true, Logprobs: true,
	})
}

// scores gives every token of a prompt its logprob.
func scores(ids []int32) map[string]any {
	list := []any{nil}
	for _, id := range ids[1:] {
		key := string(encode(id))
		list = append(list, map[string]any{key: map[string]any{
			"logprob": Logprob(id), "rank": 1, "decoded_token": Detokenize([]int32{id}),
		}})
	}
	return map[string]any{"choices": []any{map[string]any{"text": "", "prompt_logprobs": list}}}
}

// continuation is the answer to a prompt in tokens: the text as it was sampled, without the mark at its end.
func (a answer) continuation(req Request) map[string]any {
	var logprobs []float64
	for _, id := range a.ids {
		logprobs = append(logprobs, Logprob(id))
	}
	finish := a.finish
	if finish == "tool_calls" {
		finish = "stop"
	}
	choice := map[string]any{
		"index": 0, "text": strings.TrimSuffix(Detokenize(a.ids), "<|im_end|>"), "finish_reason": finish,
		"token_ids": a.ids, "prompt_token_ids": a.prompt, "logprobs": map[string]any{"token_logprobs": logprobs},
	}
	out := map[string]any{
		"id": "cmpl", "object": "text_completion", "created": created, "model": req.Model, "choices": []any{choice},
		"usage": a.usage(),
	}
	if a.Edit != nil {
		a.Edit(out)
	}
	return out
}
