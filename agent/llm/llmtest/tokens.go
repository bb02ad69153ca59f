package llmtest

import (
	"cmp"
	"strings"
)

// The fake's tokenizer cuts a text into pieces of three bytes, so that a count of tokens is about as large as a real
// one's and every id can be read back. Ids of one, two and three bytes follow each other, then come the marks of the
// chat template, which is ChatML.
const (
	twoBytes   = 1 << 8
	threeBytes = twoBytes + 1<<16
	imStart    = threeBytes + 1<<24
	imEnd      = imStart + 1
)

// Tokenize returns the ids of a text.
func Tokenize(text string) []int32 {
	ids := make([]int32, 0, len(text)/3+1)
	for ; len(text) >= 3; text = text[3:] {
		ids = append(ids, threeBytes+int32(text[0])<<16+int32(text[1])<<8+int32(text[2]))
	}
	switch len(text) {
	case 1:
		ids = append(ids, int32(text[0]))
	case 2:
		ids = append(ids, twoBytes+int32(text[0])<<8+int32(text[1]))
	}
	return ids
}

// Detokenize is the text of the ids, marks included.
func Detokenize(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		switch {
		case id == imStart:
			b.WriteString("<|im_start|>")
		case id == imEnd:
			b.WriteString("<|im_end|>")
		case id >= threeBytes:
			v := id - threeBytes
			b.Write([]byte{byte(v >> 16), byte(v >> 8), byte(v)})
		case id >= twoBytes:
			v := id - twoBytes
			b.Write([]byte{byte(v >> 8), byte(v)})
		default:
			b.WriteByte(byte(id))
		}
	}
	return b.String()
}

// PromptTokens are the ids of the rendered conversation, up to where the assistant's next message begins. The tools are
// rendered in front. A conversation that grows by the assistant's message and an answer extends its own ids.
func (r Request) PromptTokens() []int32 {
	if r.PromptIDs != nil {
		return r.PromptIDs
	}
	return append(append(r.conversation(), imStart), Tokenize("assistant\n")...)
}

// conversation are the ids of the messages.
func (r Request) conversation() []int32 {
	var ids []int32
	asked := -1
	for i, m := range r.Messages {
		if m.Role == "user" {
			asked = i
		}
	}
	segment := func(role string, parts ...string) {
		ids = append(append(ids, imStart), Tokenize(role+"\n")...)
		for _, part := range parts {
			ids = append(ids, Tokenize(part)...)
		}
		ids = append(append(ids, imEnd), Tokenize("\n")...)
	}
	if tools := r.Member("tools"); tools != nil {
		segment("tools", string(tools))
	}
	for i, m := range r.Messages {
		thoughts := cmp.Or(m.Reasoning, m.ReasoningContent)
		if r.dropsThoughts && i < asked {
			thoughts = ""
		}
		content := m.text()
		if r.dropsText && len(m.ToolCalls) > 0 {
			content = ""
		}
		segment(m.Role, rendered(thoughts, content, m.ToolCalls)...)
	}
	return ids
}

// text returns the ids of a text that may contain marks, as conversation does: a role is tokenised separately from
// what follows it.
func text(s string) []int32 {
	var ids []int32
	for i, part := range strings.Split(s, "<|im_start|>") {
		if i > 0 {
			role, _, _ := strings.Cut(part, "\n")
			ids = append(append(ids, imStart), Tokenize(part[:min(len(role)+1, len(part))])...)
			part = part[min(len(role)+1, len(part)):]
		}
		said, after, ended := strings.Cut(part, "<|im_end|>")
		if ids = append(ids, Tokenize(said)...); ended {
			ids = append(append(ids, imEnd), Tokenize(after)...)
		}
	}
	return ids
}

// spoken reads the messages of a prompt in tokens, the last of which is the beginning of the reply.
func spoken(ids []int32) []Message {
	var messages []Message
	for _, part := range strings.Split(Detokenize(ids), "<|im_start|>")[1:] {
		role, content, _ := strings.Cut(part, "\n")
		content, _, _ = strings.Cut(content, "<|im_end|>")
		messages = append(messages, Message{Role: role, Content: &content})
	}
	return messages[:max(len(messages)-1, 0)]
}

// rendered are the parts of an assistant's message as the template writes them and as the model samples them.
func rendered(thoughts, content string, calls []toolCall) []string {
	var parts []string
	if thoughts != "" {
		parts = append(parts, "<think>"+thoughts+"</think>")
	}
	parts = append(parts, content)
	for _, c := range calls {
		parts = append(parts, "<tool_call>\n{\"name\": \""+c.Function.Name+"\", \"arguments\": "+c.Function.Arguments+
			"}\n</tool_call>")
	}
	return parts
}
