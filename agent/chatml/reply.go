package chatml

import (
	"cmp"
	"regexp"
	"strings"

	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// tokenMark stands before each special token, because ordinary text can spell the same characters. No valid text has
// this byte.
const tokenMark = "\xff"

func plain(s string) string { return strings.ReplaceAll(s, tokenMark, "") }

// hand is how a model writes replies.
type hand struct {
	thought [2]string
	// open says that the prompt already contains the mark that begins a thought.
	open bool
	// spelled says that the marks of thoughts are text, not tokens; they count only at the beginning of a reply.
	spelled bool
	calls   *notation
	// channels are the marks of a notation with channels.
	channels channels
}

// read reads a reply.
func (h *hand) read(text string, native bool, turn int, specs []tools.Spec) trajectory.Message {
	if h.calls != nil && h.calls.channels {
		return h.channels.read(text, turn)
	}
	m := trajectory.Message{Role: trajectory.RoleAssistant}
	var done bool
	if m.Reasoning, m.Content, done = h.think(text); native && done && h.calls != nil {
		m.Content, m.ToolCalls = h.calls.readCalls(m.Content, turn, specs)
	}
	m.Reasoning, m.Content = plain(m.Reasoning), plain(m.Content)
	return m
}

// think splits a reply into a thought and the rest. If the thought is not finished, done is false and rest is the
// whole reply.
func (h *hand) think(text string) (thought, rest string, done bool) {
	if h.spelled && !h.open && !strings.HasPrefix(trim(text), h.thought[0]) {
		return "", text, true
	}
	before, after, closed := strings.Cut(text, h.thought[1])
	if !closed {
		return "", text, !h.open && !strings.Contains(text, h.thought[0])
	}
	if _, inner, opened := strings.Cut(before, h.thought[0]); opened {
		before = inner
	}
	return before, strings.TrimLeft(after, "\n"), true // the line breaks after a thought belong to the template
}

// channels are the marks of Harmony: they begin a message, its channel, its text, and end it.
type channels struct{ start, channel, message, end string }

func (c channels) mapped(mark func(string) string) channels {
	return channels{mark(c.start), mark(c.channel), mark(c.message), mark(c.end)}
}

func harmony() channels { return channels{"<|start|>", "<|channel|>", "<|message|>", "<|end|>"} }

// recipient matches the recipient in the head of a message. A mark ends it.
var recipient = regexp.MustCompile(`(?:^|\s)to=([^\s<\x{FFFD}]+)`)

// read reads the messages of a reply. Text that comes with a call becomes a thought, because templates write only one
// text in front of calls.
func (c channels) read(text string, turn int) trajectory.Message {
	m := trajectory.Message{Role: trajectory.RoleAssistant}
	var thoughts, texts []string
	for i, one := range strings.Split(text, c.start) {
		head, body, written := strings.Cut(one, c.message)
		body, _, _ = strings.Cut(body, c.end)
		body = plain(body)
		_, channel, _ := strings.Cut(head, c.channel)
		to := recipient.FindStringSubmatch(head)
		switch {
		case !written:
			if one != "" {
				texts = append(texts, plain(one))
			}
		case to != nil && (i == 0 || strings.HasPrefix(head, "assistant")): // results have recipients, too
			m.ToolCalls = append(m.ToolCalls, trajectory.ToolCall{ID: callID(turn, len(m.ToolCalls)),
				Name: cmp.Or(strings.TrimPrefix(to[1], "functions."), to[1]), Arguments: strings.TrimSpace(body)})
		case strings.HasPrefix(channel, "analysis"):
			thoughts = append(thoughts, body)
		default:
			texts = append(texts, body)
		}
	}
	if len(m.ToolCalls) > 0 {
		thoughts, texts = append(thoughts, texts...), nil
	}
	m.Reasoning, m.Content = strings.Join(thoughts, "\n"), strings.Join(texts, "\n")
	return m
}
