package llm

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"deepswe/agent"
	"deepswe/env"
)

// The members of a request that an endpoint may refuse without the request losing its meaning.
const (
	streaming        = "stream"
	streamOptions    = "stream_options"
	logprobs         = "logprobs"
	topLogprobs      = "top_logprobs"
	tokenIDs         = "return_token_ids"
	reasoning        = "reasoning"
	reasoningContent = "reasoning_content"
)

// sampled are the settings of sampling that an endpoint may refuse. Requests for tokens keep them: what is learned from
// must be sampled as requested.
func sampled() []string {
	return []string{"repetition_penalty", "temperature", "top_k", "top_p", "min_p", "seed"}
}

// dialect is what an endpoint accepts, as learned from its refusals. It is kept for the client's life, and never
// changed in place.
type dialect struct {
	// completionTokens is set for hosted reasoning models, which refuse max_tokens. Every other server accepts it,
	// and older versions of llama.cpp and Ollama accept nothing newer.
	completionTokens bool
	refused          map[string]bool
}

func (d *dialect) refuses(key string) bool { return d.refused[key] }

// taken returns the settings without those that the endpoint refuses.
func (d *dialect) taken(s agent.Sampling) agent.Sampling {
	if len(d.refused) == 0 {
		return s
	}
	members := map[string]json.RawMessage{}
	raw, err := json.Marshal(s)
	if err != nil || json.Unmarshal(raw, &members) != nil {
		return s // sending it fails, too
	}
	maps.DeleteFunc(members, func(key string, _ json.RawMessage) bool { return d.refuses(key) })
	var rest agent.Sampling
	if raw, err = json.Marshal(members); err != nil || json.Unmarshal(raw, &rest) != nil {
		return s
	}
	return rest
}

// objects matches the words with which servers refuse a member that they do not know.
var objects = env.Pattern(`(?i)unsupported|not supported|does not support|cannot find field|unknown|` +
	`unrecogni[sz]ed|unexpected|not permitted|not allowed|extra (field|input)|additional propert`)

// learn adapts the dialect to a refusal. It reports whether to repeat the request at once: because the dialect has
// changed since the request was sent, or changes now.
func (c *Client) learn(sent *dialect, e *Error) bool {
	if e.Status != http.StatusBadRequest && e.Status != http.StatusUnprocessableEntity {
		return false
	}
	next := dialect{completionTokens: sent.completionTokens, refused: maps.Clone(sent.refused)}
	switch key := refusedMember(e.said); {
	case key == "":
		return c.dialect.Load() != sent
	case key == "max_tokens" && !sent.completionTokens:
		next.completionTokens = true
	case key != "max_tokens" && !sent.refused[key]:
		if next.refused == nil {
			next.refused = map[string]bool{}
		}
		next.refused[key] = true
		if slices.Contains(sampled(), key) {
			if e.exact {
				return false
			}
			c.o.Log.Warn(fmt.Sprintf("the endpoint does not take %s: it is left out from now on", key), "said", e.said.Message)
		}
	default:
		return c.dialect.Load() != sent
	}
	c.dialect.CompareAndSwap(sent, &next)
	return true
}

// refusedMember is the member that a refusal is about; empty when it is about anything else.
func refusedMember(s serverError) string {
	text := s.Message + " " + s.Code
	if !objects().MatchString(text) {
		return ""
	}
	// reasoning_content is looked for before reasoning, which is a part of it. max_tokens counts as refused only if the
	// message offers the other name, because a complaint may be about its value.
	for _, key := range append([]string{
		streamOptions, streaming, tokenIDs, reasoningContent, reasoning, logprobs, topLogprobs,
	}, sampled()...) {
		if s.Param == key || names(text, key) {
			return key
		}
	}
	if strings.Contains(text, "max_completion_tokens") && (s.Param == "max_tokens" || names(text, "max_tokens")) {
		return "max_tokens"
	}
	return ""
}

// names reports whether the text contains the key as a word, in quotes or as a part of a path ("body.stream_options",
// "messages.1.reasoning").
func names(text, key string) bool {
	for rest := text; ; {
		before, after, found := strings.Cut(rest, key)
		if !found {
			return false
		}
		opened := before != "" && strings.ContainsRune("'\"`.[: ", rune(before[len(before)-1]))
		closed := after == "" || strings.ContainsRune("'\"`.], :", rune(after[0]))
		if opened && closed {
			return true
		}
		rest = after
	}
}
