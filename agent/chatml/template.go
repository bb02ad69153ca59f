package chatml

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"deepswe/agent/jinja"
	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// The built-in templates: those of the instruction-tuned models of both families.
const (
	Qwen25 = "qwen2.5"
	Qwen3  = "qwen3"
)

// Names returns the names of these templates.
func Names() []string { return []string{Qwen25, Qwen3} }

//go:embed templates
var own embed.FS

// Named returns the built-in template with the name.
func Named(name string) (*Template, error) {
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("unknown chat template %q: want one of %s", name, strings.Join(Names(), ", "))
	}
	source, err := own.ReadFile("templates/" + name + ".jinja")
	if err != nil {
		return nil, err
	}
	return New(string(source), "", nil)
}

// Template is a model's chat template with its special tokens.
type Template struct {
	// Sorted says that members of tools are written in the order of their names, as by Kimi's tokenizer.
	Sorted bool

	plain, native *jinja.Template
	special       map[string]string
}

// New parses a template. native is the template for conversations with tools; if it is empty, source is used for these,
// too. special are the tokens that a template may name (bos_token, …). Errors wrap [jinja.ErrUnknown].
func New(source, native string, special map[string]string) (*Template, error) {
	t := &Template{special: special}
	var err error
	if t.plain, err = jinja.Parse(source); err != nil {
		return nil, err
	}
	t.native = t.plain
	if native != "" {
		t.native, err = jinja.Parse(native)
	}
	return t, err
}

// Options are the inputs of a template in addition to the messages.
type Options struct {
	Tools []tools.Spec
	// Reply ends the text with the beginning of a reply.
	Reply bool
	// NoThoughts asks for a reply without a thought, which few templates support.
	NoThoughts bool
	// Now is the time for templates that render it.
	Now time.Time
}

// Render writes a conversation as transformers does with the template, or returns an error that wraps one of package
// jinja's. Like the template it trusts what messages say: a mark in their text is a mark. Arguments of calls that are
// not a JSON object become an empty one, as in vLLM.
func (t *Template) Render(messages []trajectory.Message, o Options) (string, error) {
	turns, err := conversation(messages)
	if err != nil {
		return "", err
	}
	vars := jinja.NewDict(
		"messages", turns, "tools", nil, "documents", nil, "add_generation_prompt", o.Reply)
	template := t.plain
	if len(o.Tools) > 0 {
		template = t.native
		specs := jinja.List{}
		for _, s := range o.Tools {
			spec, err := describe(s, t.Sorted)
			if err != nil {
				return "", fmt.Errorf("tool %s: %w", s.Name, err)
			}
			specs = append(specs, spec)
		}
		vars.Set("tools", specs)
	}
	for name, token := range t.special {
		vars.Set(name, token)
	}
	if o.NoThoughts {
		vars.Set("enable_thinking", false)
	}
	return template.Render(vars, o.Now)
}

// conversation converts messages to the form in which transformers passes them to templates.
func conversation(messages []trajectory.Message) (jinja.List, error) {
	out := jinja.List{}
	for _, m := range messages {
		d := jinja.NewDict()
		if m.Reasoning != "" {
			d.Set("thinking", m.Reasoning)
		}
		d.Set("role", m.Role)
		d.Set("content", m.Content)
		if len(m.ToolCalls) > 0 {
			calls := jinja.List{}
			for _, c := range m.ToolCalls {
				arguments, err := jinja.JSON([]byte(c.Arguments))
				if errors.Is(err, jinja.ErrUnknown) {
					return nil, fmt.Errorf("the arguments of a call: %w", err)
				}
				if _, ok := arguments.(*jinja.Dict); !ok || err != nil {
					arguments = jinja.NewDict()
				}
				calls = append(calls, jinja.NewDict("id", c.ID, "type", "function",
					"function", jinja.NewDict("name", c.Name, "arguments", arguments)))
			}
			d.Set("tool_calls", calls)
		}
		if m.ToolCallID != "" {
			d.Set("tool_call_id", m.ToolCallID)
		}
		if m.Name != "" {
			d.Set("name", m.Name)
		}
		if m.Reasoning != "" {
			d.Set("reasoning_content", m.Reasoning)
		}
		out = append(out, d)
	}
	return out, nil
}

// describe returns a tool as OpenAI's function object.
func describe(s tools.Spec, sorted bool) (any, error) {
	raw := s.Parameters
	if len(raw) == 0 {
		raw = json.RawMessage("null")
	}
	parameters, err := jinja.JSON(raw)
	if err != nil || !sorted {
		return jinja.NewDict("type", "function", "function",
			jinja.NewDict("name", s.Name, "description", s.Description, "parameters", parameters)), err
	}
	var members any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err = d.Decode(&members); err == nil {
		raw, err = json.Marshal(map[string]any{"type": "function", "function": map[string]any{
			"name": s.Name, "description": s.Description, "parameters": members}}) // maps have sorted keys
	}
	if err != nil {
		return nil, err
	}
	return jinja.JSON(raw)
}
