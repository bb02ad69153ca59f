package llm

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"deepswe/agent"
)

// The lengths of a context, in tokens, that an agent needs at least, and below which it soon runs out of room.
const (
	LeastContext = 16 << 10
	GoodContext  = 32 << 10
	// advisedContext is the length that advice names.
	advisedContext = 64 << 10
)

const (
	// measurePatience bounds a question that a server answers from memory, loadPatience the wait for a model.
	measurePatience = time.Second
	loadPatience    = 10 * time.Minute
)

// The products that tell more about a model than their lists of models do.
const (
	Ollama   = "Ollama"
	LMStudio = "LM Studio"
	LlamaCpp = "llama.cpp"
	SGLang   = "SGLang"
	VLLM     = "vLLM"
)

// owners maps the owner of a model, as a server's list names it, to the server's product.
var owners = map[string]string{
	"library": Ollama, "organization_owner": LMStudio, "llamacpp": LlamaCpp, "sglang": SGLang, "vllm": VLLM,
}

// Server is the product that serves the model, or empty if the list of models does not say.
func (m ServedModel) Server() string { return owners[m.Owner] }

// Scarce says that the model's context is too short for an agent, with the command that serves a longer one; empty if
// it is long enough, or not known.
func (m ServedModel) Scarce() string {
	if m.Context == 0 || m.Context >= GoodContext {
		return ""
	}
	text := fmt.Sprintf("%s has a context of %d tokens, and an agent needs %d, better %d", m.ID, m.Context, LeastContext,
		advisedContext)
	if m.Trained > 0 && (m.Trained <= m.Context || m.Trained < LeastContext) {
		return fmt.Sprintf("%s; the model was made for no more than %d\nto fix: choose another model", text, m.Trained)
	}
	return text + "\nto fix: " + m.widening()
}

// widening is the command that serves the model with a longer context.
func (m ServedModel) widening() string {
	n := advisedContext
	if m.Trained > 0 {
		n = min(n, m.Trained)
	}
	switch m.Server() {
	case Ollama:
		return fmt.Sprintf("OLLAMA_CONTEXT_LENGTH=%d ollama serve", n)
	case LMStudio:
		return fmt.Sprintf("lms unload %s; lms load %s --context-length %d", m.ID, m.ID, n)
	case LlamaCpp:
		if m.Slots > 1 {
			return fmt.Sprintf("llama-server … -c %d -np %d (each of %d slots gets its part of the context)",
				n*m.Slots, m.Slots, m.Slots)
		}
		return fmt.Sprintf("llama-server … -c %d", n)
	case SGLang:
		return fmt.Sprintf("python3 -m sglang.launch_server --model-path %s --context-length %d", cmp.Or(m.Root, m.ID), n)
	case VLLM:
		return fmt.Sprintf("vllm serve %s --max-model-len %d", cmp.Or(m.Root, m.ID), n)
	}
	return fmt.Sprintf("serve it with a context of %d tokens", n)
}

// Measure asks a server that knows more than its list of models says for the context that requests really have, and
// whether the model calls tools. What is not answered within a second stays as it is.
func (c *Client) Measure(ctx context.Context, m *ServedModel) {
	ctx, cancel := context.WithTimeout(ctx, measurePatience)
	defer cancel()
	switch m.Server() {
	case Ollama:
		c.measureOllama(ctx, m)
	case LMStudio:
		c.measureLMStudio(ctx, m)
	case LlamaCpp:
		var props struct {
			Settings struct {
				Context int `json:"n_ctx"` // of a slot
			} `json:"default_generation_settings"`
			Slots int `json:"total_slots"`
		}
		if c.learnFrom(ctx, "/props", nil, &props) {
			m.Context, m.Slots = cmp.Or(props.Settings.Context, m.Context), props.Slots
		}
	case SGLang:
		var info struct {
			Pool int `json:"max_total_num_tokens"` // what all requests share
		}
		if c.learnFrom(ctx, "/get_server_info", nil, &info) && info.Pool > 0 && m.Context > 0 {
			m.Context = min(m.Context, info.Pool)
		}
	}
}

// measureOllama reads the context of the model as it is loaded or, where it is not, the one that its parameters set.
// Otherwise the server decides when it loads the model, and nothing is known. The model's training length is no limit.
func (c *Client) measureOllama(ctx context.Context, m *ServedModel) {
	var loaded struct {
		Models []struct {
			Name    string `json:"name"`
			Context int    `json:"context_length"`
		} `json:"models"`
	}
	if c.learnFrom(ctx, "/api/ps", nil, &loaded) {
		for _, l := range loaded.Models {
			if l.Name == m.ID || l.Name == m.ID+":latest" {
				m.Context, m.Loaded = l.Context, true
			}
		}
	}
	var shown struct {
		Parameters   string         `json:"parameters"` // lines of a name and a value
		Info         map[string]any `json:"model_info"`
		Capabilities []string       `json:"capabilities"`
	}
	if !c.learnFrom(ctx, "/api/show", namedModel{m.ID}, &shown) {
		return
	}
	for line := range strings.Lines(shown.Parameters) {
		if words := strings.Fields(line); len(words) == 2 && words[0] == "num_ctx" && m.Context == 0 {
			m.Context, _ = strconv.Atoi(words[1]) // 0 is unknown
		}
	}
	if n, ok := shown.Info[fmt.Sprint(shown.Info["general.architecture"])+".context_length"].(float64); ok {
		m.Trained = int(n)
	}
	if len(shown.Capabilities) > 0 {
		m.Tools = new(slices.Contains(shown.Capabilities, "tools"))
	}
}

// measureLMStudio reads the context with which the model is loaded.
func (c *Client) measureLMStudio(ctx context.Context, m *ServedModel) {
	var answer struct {
		Models []struct {
			Key    string `json:"key"`
			Loaded []struct {
				ID     string `json:"id"`
				Config struct {
					Context int `json:"context_length"`
				} `json:"config"`
			} `json:"loaded_instances"`
			Trained      int `json:"max_context_length"`
			Capabilities struct {
				Tools *bool `json:"trained_for_tool_use"`
			} `json:"capabilities"`
		} `json:"models"`
	}
	c.learnFrom(ctx, "/api/v1/models", nil, &answer)
	for _, l := range answer.Models {
		for _, instance := range l.Loaded {
			if instance.ID == m.ID || l.Key == m.ID {
				m.Context, m.Loaded = instance.Config.Context, true
			}
		}
		if l.Key == m.ID || m.Loaded && m.Trained == 0 {
			m.Trained, m.Tools = l.Trained, l.Capabilities.Tools
		}
	}
}

// Load makes an Ollama server load the model that requests go to, as the first of them would, so that its context can
// be measured.
func (c *Client) Load(ctx context.Context, m *ServedModel) {
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	c.learnFrom(ctx, "/api/generate", namedModel{m.ID}, &struct{}{})
	c.Measure(ctx, m)
}

// namedModel is the body of a request to Ollama's own API about a model.
type namedModel struct {
	Model string `json:"model"`
}

// learnFrom asks the server at a path outside /v1, and reports whether it has answered.
func (c *Client) learnFrom(ctx context.Context, path string, question any, into any) bool {
	x := &exchange{http: c.http, body: question}
	return c.do(ctx, x, c.root()+path) == nil && decodeInto(x.raw, into) == nil
}

// cut compares the tokens that the server has read with the words that were sent, until a prompt was read whole:
// nearly every word takes at least one token. Some servers silently drop the beginning of a prompt that is too long.
func (c *Client) cut(ctx context.Context, r agent.Request, read agent.Usage) *Error {
	got := read.Prompt + read.Cached // some servers do not count the latter as read
	if read.Prompt == 0 || c.counted.Load() {
		return nil
	}
	spoken, offered := 0, 0
	for _, m := range r.Messages {
		if m.Role != agent.RoleAssistant { // whose thoughts a template may leave out
			spoken += countWords(m.Content)
		}
	}
	for _, t := range r.Tools {
		offered += countWords(t.Description)
	}
	got += got / 8 // a tolerance for runs of letters that share a token
	if got >= spoken+offered {
		c.counted.Store(true)
		return nil
	}
	e := &Error{Endpoint: c.name, hints: c.o.Hints, Attempts: 1, sentinel: agent.ErrModelUnavailable}
	if got >= spoken {
		e.noTools = true
		e.Message = fmt.Sprintf("it has read %d tokens of a prompt with %d words: its chat template leaves out the tools, "+
			"or it cuts the prompt", read.Prompt, spoken+offered)
		e.Hint = "use --format xml, or a longer context"
		return e
	}
	e.Message = fmt.Sprintf("it has read only %d tokens of a prompt with %d words: it drops the beginning of what "+
		"exceeds its context, and with it what the model is told to do", read.Prompt, spoken)
	m := ServedModel{ID: *c.model.Load()}
	if served, err := c.Discover(ctx); err == nil {
		m = served
	}
	e.Hint = "to fix: " + m.widening()
	return e
}

// countWords counts the runs of letters, nearly each of which takes at least one token.
func countWords(text string) int {
	n, inside := 0, false
	for _, r := range text {
		letter := unicode.IsLetter(r) || unicode.IsMark(r) || r == '\''
		if letter && !inside {
			n++
		}
		inside = letter
	}
	return n
}
