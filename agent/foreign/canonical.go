package foreign

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/env/disk"
	"deepswe/tools"
)

// request is what an agent asks for, in the form into which all dialects are translated.
type request struct {
	messages []agent.Message
	tools    []tools.Spec
	// maxTokens limits the reply; 0 leaves it to the run.
	maxTokens int
	// stream asks for a streamed answer, usage for the usage at its end.
	stream, usage bool
	// texts has the names of tools that take text instead of JSON; spaces maps names of tools to their namespaces.
	texts  map[string]bool
	spaces map[string]string
	// dropped counts what was asked for and cannot be honoured.
	dropped int
}

// text returns a text that an agent sent as a string, null, or a list of parts. Other parts than text cannot be shown
// to the model: a note replaces them, and they count as dropped.
func (r *request) text(content any) string {
	parts, isList := content.([]any)
	if !isList {
		whole, _ := content.(string)
		return whole
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		part, _ := p.(map[string]any)
		text, ok := part["text"].(string)
		if !ok {
			r.dropped++
			text = fmt.Sprintf("(%v left out)", part["type"])
		}
		texts[i] = text
	}
	return strings.Join(texts, "\n")
}

// either decodes a list, or a text that stands for a list of one element.
func either[T any](raw []byte, list *[]T, alone func(text string) T) error {
	if raw[0] != '"' {
		return json.Unmarshal(raw, list)
	}
	var text string
	err := json.Unmarshal(raw, &text)
	*list = []T{alone(text)}
	return err
}

// key identifies a conversation by its content, regardless of its form: the order and spacing of JSON, whitespace at
// the ends of texts, and members without meaning do not count.
type key [sha256.Size]byte

// opening returns the key of a conversation with tools and no messages.
func opening(specs []tools.Spec) key {
	var all key
	for _, s := range specs {
		all = all.with("tool", s.Name, s.Description, canonical(string(s.Parameters)))
	}
	return all
}

// then returns the key of the conversation with one more message, whose thoughts count only if thoughts is set.
func (k key) then(m agent.Message, thoughts bool) key {
	parts := []string{m.Role, strings.TrimSpace(m.Content), m.ToolCallID}
	if thoughts {
		parts = append(parts, strings.TrimSpace(m.Reasoning))
	}
	for _, c := range m.ToolCalls {
		parts = append(parts, c.Name, canonical(llm.Sendable(c.Arguments)))
	}
	return k.with(parts...)
}

// with hashes the parts so that no two lists of parts look alike.
func (k key) with(parts ...string) key {
	h := sha256.New()
	h.Write(k[:])
	var size [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(p)))
		h.Write(size[:])
		h.Write([]byte(p))
	}
	return key(h.Sum(nil))
}

// canonical returns JSON with its members in order and without spaces. Any other text stays as it is.
func canonical(text string) string {
	var value any // numbers lose their form, too, because JavaScript writes 1.0 as 1
	if json.Unmarshal([]byte(text), &value) != nil {
		return text
	}
	ordered, err := disk.MarshalJSON(value)
	if err != nil {
		return text
	}
	return string(ordered)
}

// settle brings the messages into the form that chat templates know: one system message, at the beginning. Later
// messages of a system or developer become a user's messages.
func settle(messages []agent.Message) []agent.Message {
	var out []agent.Message
	for _, m := range messages {
		if m.Role == "developer" {
			m.Role = agent.RoleSystem
		}
		if m.Role == agent.RoleSystem {
			if len(out) == 1 && out[0].Role == agent.RoleSystem {
				out[0].Content += "\n\n" + m.Content
				continue
			}
			if len(out) > 0 {
				m.Role = agent.RoleUser
			}
		}
		out = append(out, m)
	}
	return out
}
