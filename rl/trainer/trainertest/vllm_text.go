package trainertest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"deepswe/agent"
)

// prompt is given in tokens or as a text.
type prompt struct {
	ids  []int32
	text string
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *prompt) UnmarshalJSON(raw []byte) error {
	if strings.HasPrefix(string(raw), `"`) {
		return json.Unmarshal(raw, &p.text)
	}
	return json.Unmarshal(raw, &p.ids)
}

// texts is a codec whose tokens all have texts. For any other one, marks are spelled and unknown words remembered.
type texts interface {
	Encode(text string) []int32
	Decode(ids []int32) string
}

// spelled matches the texts that stand for the tokens around messages.
var spelled = regexp.MustCompile(`<\|(?:system|user|assistant|end)\|>`)

// marks returns the ids of these tokens.
func (v *VLLM) marks() (map[string]int32, error) {
	ids := map[string]int32{}
	for _, role := range []string{agent.RoleSystem, agent.RoleUser} {
		around, err := v.codec.Prompt(context.Background(), agent.Request{Messages: []agent.Message{{Role: role}}})
		switch {
		case err != nil:
			return nil, err
		case len(around) != 3:
			return nil, fmt.Errorf("the codec writes other tokens than marks around a message: %d", around)
		}
		ids["<|"+role+"|>"], ids["<|end|>"], ids["<|assistant|>"] = around[0], around[1], around[2]
	}
	return ids, nil
}

// tokenize encodes a text, or writes a conversation as the codec does, which ends where the policy replies.
func (v *VLLM) tokenize(w http.ResponseWriter, b vllmBody) {
	ids, err := v.encode(b.Prompt.text)
	if len(b.Messages) > 0 {
		ids, err = v.conversation(b)
	}
	if err != nil {
		v.refuse(w, 400, "BadRequestError", "%v", err)
		return
	}
	writeJSON(w, 200, map[string]any{"count": len(ids), "max_model_len": 1 << 16, "tokens": ids})
}

// conversation returns the ids of a conversation. It remembers their text, because not all of it has tokens.
func (v *VLLM) conversation(b vllmBody) ([]int32, error) {
	var r agent.Request
	var text strings.Builder
	for _, m := range b.Messages {
		r.Messages = append(r.Messages, agent.Message{Role: m.Role, Content: m.Content})
		fmt.Fprintf(&text, "<|%s|>%s<|end|>", m.Role, m.Content)
	}
	ids, err := v.codec.Prompt(context.Background(), r)
	if err != nil {
		return nil, err
	}
	if b.Begin {
		text.WriteString("<|assistant|>")
	} else {
		ids = ids[:len(ids)-1]
	}
	if _, ok := v.codec.(texts); !ok {
		v.texts[fmt.Sprint(ids)] = text.String()
	}
	return ids, nil
}

// encode returns the ids of a text in which marks are spelled.
func (v *VLLM) encode(text string) (ids []int32, err error) {
	if c, ok := v.codec.(texts); ok {
		return c.Encode(text), nil
	}
	marks, err := v.marks()
	for err == nil && text != "" {
		at := spelled.FindStringIndex(text)
		if at == nil {
			at = []int{len(text), len(text)}
		}
		var said []int32
		if at[0] > 0 {
			said, err = v.codec.Prompt(context.Background(), agent.Request{
				Messages: []agent.Message{{Role: agent.RoleUser, Content: text[:at[0]]}},
			})
			ids = append(ids, said[1:max(1, len(said)-2)]...)
		}
		if at[1] > at[0] {
			ids = append(ids, marks[text[at[0]:at[1]]])
		}
		text = text[at[1]:]
	}
	return ids, err
}

// detokenize returns the text of a conversation that was tokenized, or of single tokens.
func (v *VLLM) detokenize(ids []int32) string {
	text, ok := v.texts[fmt.Sprint(ids)]
	if !ok {
		text = v.textOf(ids)
	}
	if v.unmarked {
		text = strings.NewReplacer("<|", "", "|>", "").Replace(text)
	}
	return text
}

func (v *VLLM) textOf(ids []int32) string {
	if c, ok := v.codec.(texts); ok {
		return c.Decode(ids)
	}
	marks, _ := v.marks() // without marks, only words have texts
	var b strings.Builder
	for _, id := range ids {
		text := v.codec.Reply([]int32{id}, agent.Request{}).Content
		for mark, other := range marks {
			if id == other {
				text = mark
			}
		}
		b.WriteString(text)
	}
	return b.String()
}
