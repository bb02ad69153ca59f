package llmtest

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"
)

// Every answer was made at the same moment, so that tests can compare them.
const created = 1_700_000_000

// Reply is one answer of the script: a message, or a failure from one of this package's functions.
type Reply struct {
	Content string
	// Reasoning is sent in addition to the content, under ReasoningName; empty means "reasoning".
	Reasoning     string
	ReasoningName string
	Calls         []Call
	// FinishReason is the finish reason. Empty means "length" if the request's limit cut the content, "tool_calls" if
	// there are Calls, and otherwise "stop".
	FinishReason string
	// Wait is the time before anything is sent.
	Wait time.Duration
	// KeepAlive is the number of comment lines in front of a stream.
	KeepAlive int
	// Edit, when not nil, changes the answer before it is sent: every chunk of a stream, or the whole of it.
	Edit func(answer map[string]any)

	fault func(http.ResponseWriter, *http.Request, Request)
}

// Call is a native tool call of a reply.
type Call struct {
	// ID, when empty, becomes "call_N_I" with the numbers of the request and of the call.
	ID        string
	Name      string
	Arguments string
}

// Text answers with content.
func Text(content string) Reply { return Reply{Content: content} }

// Judged answers like a judge that gives YES the probability p, and NO the rest.
func Judged(p float64) Reply {
	word := "YES"
	if p < 0.5 {
		word = "NO"
	}
	r := Text("<judgement>" + word + "</judgement>")
	r.Edit = func(answer map[string]any) {
		choice := answer["choices"].([]any)[0].(map[string]any)
		if choice["logprobs"] == nil {
			return
		}
		var tokens []any
		for _, text := range []string{"<", "judge", "ment", ">", word, "</", "judge", "ment", ">"} {
			top := []any{map[string]any{"token": text, "logprob": 0.0, "bytes": []int{}}}
			if text == word {
				top = []any{
					map[string]any{"token": "YES", "logprob": math.Log(p), "bytes": []int{}},
					map[string]any{"token": "NO", "logprob": math.Log(1 - p), "bytes": []int{}},
				}
			}
			tokens = append(tokens, map[string]any{"token": text, "logprob": 0.0, "bytes": []int{}, "top_logprobs": top})
		}
		choice["logprobs"] = map[string]any{"content": tokens}
	}
	return r
}

// UseTool answers with one native call. Args is turned into JSON, except for a string, which is used unchanged.
func UseTool(name string, args any) Reply {
	text, ok := args.(string)
	if !ok {
		text = string(encode(args))
	}
	return Reply{Calls: []Call{{Name: name, Arguments: text}}}
}

// answer is a reply made for a request.
type answer struct {
	Reply
	content string
	finish  string
	calls   []toolCall
	prompt  []int32
	ids     []int32
}

func (r Reply) answer(req Request) answer {
	r.ReasoningName = cmp.Or(r.ReasoningName, "reasoning")
	a := answer{Reply: r, content: r.Content, finish: r.FinishReason, prompt: req.PromptTokens()}
	for i, c := range r.Calls {
		a.calls = append(a.calls, toolCall{
			ID: cmp.Or(c.ID, fmt.Sprintf("call_%d_%d", req.N, i)), Type: "function",
			Function: functionCall{Name: c.Name, Arguments: c.Arguments},
		})
	}
	cut := false
	if limit := req.maxTokens(); limit > 0 && len(a.calls) == 0 && len(Tokenize(a.content)) > limit {
		a.content, cut = Detokenize(Tokenize(a.content)[:limit]), true
	}
	if a.finish == "" {
		switch {
		case cut:
			a.finish = "length"
		case len(a.calls) > 0:
			a.finish = "tool_calls"
		default:
			a.finish = "stop"
		}
	}
	for _, part := range rendered(r.Reasoning, a.content, a.calls) {
		a.ids = append(a.ids, Tokenize(part)...)
	}
	if a.finish != "length" {
		a.ids = append(a.ids, imEnd)
	}
	return a
}

// Logprob is the log-probability that the fake gives to a token.
func Logprob(id int32) float64 { return -float64(id%7+1) / 8 }

func (a answer) logprobs() map[string]any {
	content := []any{}
	for _, id := range a.ids {
		text := Detokenize([]int32{id})
		content = append(content, map[string]any{
			"token": text, "logprob": Logprob(id), "bytes": []byte(nil), "top_logprobs": []any{},
		})
	}
	return map[string]any{"content": content}
}

func (a answer) usage() map[string]any {
	return map[string]any{
		"prompt_tokens": len(a.prompt), "completion_tokens": len(a.ids), "total_tokens": len(a.prompt) + len(a.ids),
		"prompt_tokens_details": nil,
	}
}

// serve writes the answer, streamed or whole.
func (r Reply) serve(w http.ResponseWriter, req *http.Request, body Request) {
	a := r.answer(body)
	if body.PromptIDs != nil {
		writeJSON(w, http.StatusOK, a.continuation(body))
		return
	}
	if body.Stream {
		stream(w, req, a.events(body))
		return
	}
	writeJSON(w, http.StatusOK, a.whole(body))
}

// whole returns the response to a request that is not streamed, in vLLM's form: content is null if there are tool
// calls.
func (a answer) whole(req Request) map[string]any {
	message := map[string]any{"role": "assistant", "content": a.content, "tool_calls": a.calls}
	if a.content == "" && len(a.calls) > 0 {
		message["content"] = nil
	}
	if a.calls == nil {
		message["tool_calls"] = []any{}
	}
	if a.Reasoning != "" {
		message[a.ReasoningName] = a.Reasoning
	}
	choice := map[string]any{
		"index": 0, "message": message, "logprobs": nil, "finish_reason": a.finish, "stop_reason": nil,
	}
	out := map[string]any{
		"id": fmt.Sprintf("chatcmpl-%d", req.N), "object": "chat.completion", "created": created, "model": req.Model,
		"choices": []any{choice}, "usage": a.usage(),
	}
	if req.Logprobs {
		choice["logprobs"] = a.logprobs()
	}
	if req.ReturnTokenIDs {
		choice["token_ids"], out["prompt_token_ids"] = a.ids, a.prompt
	}
	if a.Edit != nil {
		a.Edit(out)
	}
	return out
}

// events returns the lines of a streamed response: role, reasoning, content and calls in small pieces, the finish
// reason, and the usage if requested.
func (a answer) events(req Request) []string {
	var lines []string
	for range a.KeepAlive {
		lines = append(lines, ": keep-alive\n\n")
	}
	send := func(choices ...any) {
		chunk := map[string]any{
			"id": fmt.Sprintf("chatcmpl-%d", req.N), "object": "chat.completion.chunk", "created": created,
			"model": req.Model, "choices": append([]any{}, choices...),
		}
		if len(choices) == 0 {
			chunk["usage"] = a.usage()
		}
		if a.Edit != nil {
			a.Edit(chunk)
		}
		lines = append(lines, "data: "+string(encode(chunk))+"\n\n")
	}
	delta := func(d map[string]any, finish any) {
		send(map[string]any{"index": 0, "delta": d, "logprobs": nil, "finish_reason": finish})
	}
	delta(map[string]any{"role": "assistant", "content": ""}, nil)
	for _, piece := range pieces(a.Reasoning) {
		delta(map[string]any{a.ReasoningName: piece}, nil)
	}
	for _, piece := range pieces(a.content) {
		delta(map[string]any{"content": piece}, nil)
	}
	for i, call := range a.calls {
		head := toolCall{Index: new(i), ID: call.ID, Type: "function", Function: functionCall{Name: call.Function.Name}}
		delta(map[string]any{"tool_calls": []toolCall{head}}, nil)
		for _, piece := range pieces(call.Function.Arguments) {
			more := toolCall{Index: new(i), Function: functionCall{Arguments: piece}}
			delta(map[string]any{"tool_calls": []toolCall{more}}, nil)
		}
	}
	delta(map[string]any{}, a.finish)
	if req.StreamOptions.IncludeUsage {
		send()
	}
	return append(lines, "data: [DONE]\n\n")
}

// pieces cuts a text into pieces of a few runes.
func pieces(text string) []string {
	var out []string
	for runes := range slices.Chunk([]rune(text), 7) {
		out = append(out, string(runes))
	}
	return out
}

func stream(w http.ResponseWriter, req *http.Request, lines []string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	for _, line := range lines {
		if req.Context().Err() != nil {
			return
		}
		if _, err := w.Write([]byte(line)); err != nil {
			return
		}
		_ = flush()
	}
}
