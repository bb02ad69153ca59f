package llm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"

	"deepswe/agent"
	"deepswe/env"
)

// completion is an answer, or one chunk of a streamed one, with everything that go-openai's struct drops.
type completion struct {
	Model          string   `json:"model"`
	Choices        []choice `json:"choices"`
	Usage          *usage   `json:"usage"`
	PromptTokenIDs []int32  `json:"prompt_token_ids"`
}

type choice struct {
	Message      message      `json:"message"`
	Delta        message      `json:"delta"`
	FinishReason string       `json:"finish_reason"`
	TokenIDs     []int32      `json:"token_ids"`
	Logprobs     *logprobList `json:"logprobs"`
}

type logprobList struct {
	Content []tokenLogprob `json:"content"`
}

type tokenLogprob struct {
	alternative
	Top []alternative `json:"top_logprobs"`
}

type alternative struct {
	Token   string   `json:"token"`
	Logprob *float64 `json:"logprob"`
}

type message struct {
	Content          text       `json:"content"`
	Refusal          text       `json:"refusal"`
	Reasoning        text       `json:"reasoning"`
	ReasoningContent text       `json:"reasoning_content"`
	ToolCalls        []toolCall `json:"tool_calls"`
}

// thoughts is the reasoning under whichever name it came.
func (m message) thoughts() string {
	return string(cmp.Or(m.Reasoning, m.ReasoningContent))
}

type toolCall struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments text   `json:"arguments"`
	} `json:"function"`
}

type usage struct {
	Prompt        int `json:"prompt_tokens"`
	Completion    int `json:"completion_tokens"`
	PromptDetails struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	CacheHit int `json:"prompt_cache_hit_tokens"` // DeepSeek's name
}

// text is a string as servers send it: null, a string, a list of parts with a text each, or (for arguments) an object,
// which is kept as JSON.
type text string

func (t *text) UnmarshalJSON(raw []byte) error {
	var s *string
	if json.Unmarshal(raw, &s) == nil {
		if s != nil {
			*t = text(*s)
		}
		return nil
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) == nil {
		for _, p := range parts {
			*t += text(p.Text)
		}
		return nil
	}
	*t = text(raw)
	return nil
}

// errUnusable marks answers that another attempt would not improve.
var errUnusable = errors.New("the endpoint's answer cannot be used")

// decode reads an answer that was not streamed.
func decode(raw []byte) (completion, error) {
	var got completion
	return got, decodeInto(raw, &got)
}

func decodeInto(raw []byte, into any) error {
	if isError(raw) {
		return &errorEvent{payload: raw}
	}
	err := json.Unmarshal(raw, into)
	switch {
	case err == nil:
		return nil
	case strings.TrimSpace(string(raw)) == "":
		return io.ErrUnexpectedEOF
	case infinite().Match(raw):
		return fmt.Errorf("%w: it has a logprob that is not a number (%s); %s", errUnusable, infinite().FindSubmatch(raw)[1],
			hintFiltered)
	}
	return fmt.Errorf("%w in %q", err, readable(string(raw)))
}

// infinite matches what Python writes for numbers that JSON does not have.
var infinite = env.Pattern(`[\[:,]\s*(-?Infinity|NaN)\b`)

// hintFiltered says why a token that was sampled has no probability.
const hintFiltered = "the server's logprobs are not those of what it samples from: look for top_k, top_p, min_p or " +
	"penalties in its own defaults (vLLM: --generation-config vllm), and for logits that are not finite"

// impossible is the number that vLLM returns for the logarithm of 0.
const impossible = -9999

// certain is the largest log-probability to accept: 0, and a margin for errors of low precision.
const certain = 0.01

// text is the content that came so far.
func (g completion) text() string {
	if len(g.Choices) == 0 {
		return ""
	}
	return string(g.Choices[0].Message.Content)
}

// usable returns an error for responses without a message, and for aborted ones. vLLM aborts when it is paused for new
// weights.
func (g completion) usable() error {
	if len(g.Choices) == 0 {
		return errors.New("it has no choices")
	}
	if reason := g.Choices[0].FinishReason; reason == "error" || reason == "abort" {
		return fmt.Errorf("the server ended it with finish_reason %q", reason)
	}
	return nil
}

// reply is the first choice as the agent wants it.
func (g completion) reply(r agent.Request, log *slog.Logger) (agent.Reply, error) {
	first := g.Choices[0]
	out := agent.Reply{
		Message: agent.Message{
			Role: agent.RoleAssistant, Content: string(cmp.Or(first.Message.Content, first.Message.Refusal)),
			Reasoning: first.Message.thoughts(),
		},
		FinishReason: first.FinishReason,
		Model:        g.Model,
	}
	if out.Message.Reasoning != "" {
		// A server that separates the thought leaves the line breaks after it in the content, and a template that puts the
		// thought back adds its own: the next prompt would have line breaks that the model never wrote.
		out.Message.Content = strings.TrimLeft(out.Message.Content, "\n")
	}
	for i, call := range first.Message.ToolCalls {
		id := call.ID
		if id == "" { // the answer to the call needs one, and the next turn's must differ
			id = "call_" + strconv.Itoa(len(r.Messages)) + "_" + strconv.Itoa(i)
		}
		out.Message.ToolCalls = append(out.Message.ToolCalls,
			agent.ToolCall{ID: id, Name: call.Function.Name, Arguments: string(call.Function.Arguments)})
	}
	if u := g.Usage; u != nil {
		out.Usage = agent.Usage{
			Prompt: u.Prompt, Completion: u.Completion,
			Cached: max(u.PromptDetails.Cached, u.CacheHit), Reasoning: u.CompletionDetails.Reasoning,
		}
	}
	if !r.Tokens {
		return out, nil
	}
	var err error
	out.Tokens, err = g.tokens(log)
	return out, err
}

// tokens returns the sampled ids and their logprobs; nil if the endpoint returns no ids. If ids and logprobs do not
// match, it returns an error, because training on them would do harm.
func (g completion) tokens(log *slog.Logger) (*agent.Sample, error) {
	first := g.Choices[0]
	if len(g.PromptTokenIDs) == 0 || first.TokenIDs == nil {
		return nil, nil
	}
	if first.Logprobs == nil || first.Logprobs.Content == nil && len(first.TokenIDs) > 0 {
		log.Warn("the model endpoint gives token ids without logprobs; the ids are left out")
		return nil, nil
	}
	probs := first.Logprobs.Content
	if len(probs) != len(first.TokenIDs) {
		return nil, fmt.Errorf("%w: %d token ids and %d logprobs", errUnusable, len(first.TokenIDs), len(probs))
	}
	t := &agent.Sample{PromptIDs: g.PromptTokenIDs, CompletionIDs: first.TokenIDs, Logprobs: make([]float64, len(probs))}
	for i, p := range probs {
		if p.Logprob == nil {
			return nil, fmt.Errorf("%w: token %d has no logprob", errUnusable, i)
		}
		if *p.Logprob <= impossible || *p.Logprob > certain || *p.Logprob != *p.Logprob {
			return nil, fmt.Errorf("%w: token %d has the logprob %v; %s", errUnusable, i, *p.Logprob, hintFiltered)
		}
		t.Logprobs[i] = *p.Logprob
	}
	return t, nil
}
