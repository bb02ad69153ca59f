package llm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"html"
	"strings"
	"unicode/utf8"

	"deepswe/agent"
	"deepswe/env"
)

// serverError is a server's error message, in any of the common formats.
type serverError struct {
	Message string
	Type    string
	Code    string
	Param   string
	// Generation is the model's text, if the failure is about that.
	Generation string
	whole      string // Message before it was shortened
}

// maxSaid is how many runes of a server's message are shown at most.
const maxSaid = 400

// parseServerError reads a failure's body: {"error": {…}} of OpenAI and newer vLLM, the same flat or in an array,
// {"error": "…"}, FastAPI's {"detail": …}, a proxy's HTML page, or plain text.
func parseServerError(raw []byte) serverError {
	raw = bytes.TrimSpace(raw)
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		raw = list[0]
	}
	var top map[string]json.RawMessage
	if json.Unmarshal(raw, &top) != nil {
		return serverError{Message: readable(string(raw))}
	}
	var inner map[string]json.RawMessage
	if json.Unmarshal(top["error"], &inner) == nil && inner != nil {
		top = inner
	}
	s := serverError{
		Type: scalar(top["type"]), Code: scalar(top["code"]), Param: scalar(top["param"]),
		Generation: scalar(top["failed_generation"]),
	}
	for _, key := range []string{"message", "detail", "error", "error_description", "msg"} {
		if s.Message = scalar(top[key]); s.Message != "" {
			break
		}
	}
	s.whole = cmp.Or(s.Message, string(raw))
	s.Message = readable(s.whole)
	return s
}

// scalar is a JSON value as text: a string's value, and anything else as its JSON text.
func scalar(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

var (
	htmlTitle = env.Pattern(`(?is)<title[^>]*>(.*?)</title>`)
	htmlNoise = env.Pattern(`(?is)<(script|style|head)\b.*?</(script|style|head)>|<[^>]*>`)
	htmlPage  = env.Pattern(`(?is)^\s*(<!doctype|<html|<head|<body|<\?xml)`)
)

// readable is a message on one line of bounded length; of an HTML page its title, or else its text.
func readable(text string) string {
	if htmlPage().MatchString(text) {
		if title := htmlTitle().FindStringSubmatch(text); title != nil && strings.TrimSpace(title[1]) != "" {
			text = "a web page, “" + html.UnescapeString(strings.TrimSpace(title[1])) + "”"
		} else {
			text = "a web page: " + html.UnescapeString(htmlNoise().ReplaceAllString(text, " "))
		}
	}
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if utf8.RuneCountInString(text) > maxSaid {
		text = string([]rune(text)[:maxSaid]) + "…"
	}
	return text
}

// overflowed matches how endpoints say that a conversation does not fit: error codes first, then the wordings of vLLM,
// SGLang, llama.cpp, Ollama, LM Studio, OpenAI, Anthropic, Gemini, Mistral, Kimi, TGI and TensorRT-LLM. Most of them
// have no code for it.
var overflowed = env.Pattern(`(?i)` +
	`context_length_exceeded|context_window_exceeded|exceed_context_size|context_exceeded|prompt_too_long|` +
	`ContextWindowExceeded|max_prompt_tokens_exceeded|` +
	// "This model's maximum context length is 32768 tokens", "exceeds model's maximum context length (262144)",
	// "the model's context length is only 8192 tokens"
	`maximum context length|context length is (only )?\d|maximum model length|` +
	// "longer than the model's context length", "exceeds the context window", "greater than the context length",
	// "exceeds the available context size", "exceed context limit", "context window exceeds limit"
	`(larger than|longer than|exceeds?|exceeded|greater than)( the| your)?( model'?s?| model)?( available| ` +
	`configured| maximum| max)? ?` +
	`context (length|size|window|limit)|context (length|size|window) exceed|` +
	// "Prompt too long: 5152 tokens exceeds max_seq_len", "prompt is too long: 215000 tokens > 200000 maximum"
	`(prompt|input|conversation)( is)? too long|(larger|greater|longer) than max_(model|seq)_len|exceeds? ` +
	`max_(model|seq)_len|` +
	`length of (all |the )?messages is too long|reduce the length of|` +
	// "exceeds the maximum number of tokens allowed", "exceeds the maximum allowed input length of 131040 tokens"
	`exceeds? the maximum (number of tokens|allowed input length|allowed length|prompt length)|maximum prompt length|` +
	`too large for model with|exceeded model token limit|input tokens exceed|` +
	// "max_tokens must be at least 1, got -186": what is left of the context after a prompt that fills it
	`max_(completion_)?tokens must be at least 1, got -|max_new_tokens.{0,3} must be`)

// filled matches how vLLM refuses a prompt of exactly the context's length: it complains about a limit of 0, which it
// has computed itself, because no request contains that.
var filled = env.Pattern(`(?i)max_(completion_)?tokens must be at least 1, got 0`)

// throttled matches rate limits, whose wording may resemble that of an overflow ("Too many tokens, please wait").
var throttled = env.Pattern(`(?i)rate.?limit|throttl|too many requests|tokens per (minute|min|day)|quota`)

// isOverflow reports whether a refusal says that the conversation exceeds the model's context.
func isOverflow(status int, s serverError) bool {
	if status == 429 || status == 503 || throttled().MatchString(s.Message+" "+s.Code+" "+s.Type) {
		return false
	}
	return overflowed().MatchString(s.Code) || overflowed().MatchString(s.Type) || overflowed().MatchString(s.Message)
}

// FinishMisread is the finish reason of a reply whose calls the server could not parse, and for which it returned an
// error (llama.cpp, Ollama, Groq). The mistake is the model's and is reported to the model: a retry would bias what is
// sampled, and change nothing at temperature 0.
const FinishMisread = "misread"

// misread matches the errors with which servers report such a reply.
var misread = env.Pattern(`(?i)model produced output that does not match|failed to parse input at pos|` +
	`error parsing tool call: raw=|` +
	`tool_use_failed|failed to call a function|tool call validation failed`)

// misreadReply is the reply that a server refused to pass on: as much of its text as the server or the stream gave
// away, often nothing.
func misreadReply(e *Error, model, streamed string) (agent.Reply, bool) {
	if !misread().MatchString(e.said.Message + " " + e.said.Code) {
		return agent.Reply{}, false
	}
	content := cmp.Or(e.said.Generation, streamed)
	if _, after, ok := strings.Cut(e.said.whole, "error parsing tool call: raw='"); ok && content == "" {
		if end := strings.LastIndex(after, "', err="); end >= 0 {
			content = after[:end]
		}
	}
	return agent.Reply{
		Message:      agent.Message{Role: agent.RoleAssistant, Content: content},
		FinishReason: FinishMisread,
		Model:        model,
	}, true
}
