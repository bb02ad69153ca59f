package rowfile

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"deepswe/agent/trajectory"
	"deepswe/rl"
)

// Example is a line of what [ExportRows], [ExportSFT] and the exporter of a verifier's training set write, as something
// to imitate: either token ids with a mask of those to imitate, or a conversation.
type Example struct {
	// File and Line are the source of the example.
	File string
	Line int
	// Row identifies the example. With ids it has those and the mask; Reward, NotGraded and Trained are those of
	// rows.jsonl.
	Row rl.Row
	// Rewarded is set for a line of rows.jsonl, whose rollouts may have failed.
	Rewarded bool
	// Messages are the conversation, of which the assistant's messages with a weight are imitated: Weights has one for
	// each message. Label is the one word to imitate in the last of them, or empty for all of it.
	Messages []trajectory.Message
	Weights  []float64
	Label    string
}

// Where names the example in messages for people.
func (e *Example) Where() string { return fmt.Sprintf("%s: line %d", e.File, e.Line) }

// Examples reads the files from the start. Errors name the file and line. An error, or the end of ctx, ends the
// sequence.
func (s *Source) Examples(ctx context.Context) iter.Seq2[Example, error] {
	return read(ctx, s, func(r io.Reader, name string) iter.Seq2[Example, error] {
		return ordered(lines(r), func(l line) (Example, error) {
			e, err := decodeExample(l.text)
			if e.File, e.Line = name, l.number; err != nil {
				err = l.locate(err)
			}
			return e, err
		})
	})
}

// decodeExample decodes a line. It ignores unknown members.
func decodeExample(text []byte) (e Example, err error) {
	s := &scanner{b: text}
	var ids, mask, labels []int32
	var messages []json.RawMessage
	e.Row.Trained = true
	err = s.object(func(key string) (err error) {
		switch key {
		case "task":
			e.Row.Task, err = s.id(&e.Row.IDForm, rl.NumericTask)
		case "group":
			e.Row.Group, err = s.id(&e.Row.IDForm, rl.NumericGroup)
		case "attempt":
			e.Row.Attempt, err = s.attempt()
		case "row":
			err = s.value(&e.Row.Row)
		case "ids", "input_ids":
			ids, err = scalars(s, parseID)
		case "mask":
			mask, err = scalars(s, parseID)
		case "labels":
			labels, err = scalars(s, parseLabel)
		case "reward":
			e.Rewarded = true
			var reward *float64
			if reward, err = s.reward(); reward != nil {
				e.Row.Reward = *reward
			} else {
				e.Row.NotGraded = true
			}
		case "trained":
			err = s.value(&e.Row.Trained)
		case "messages":
			err = s.value(&messages)
		case "label":
			err = s.value(&e.Label)
		default:
			_, err = s.raw()
		}
		return err
	})
	if err != nil {
		return e, err
	}
	switch {
	case len(messages) > 0 && len(ids) > 0:
		return e, fieldError("messages", "the line has token ids as well: want one of the two")
	case len(messages) > 0:
		err = e.converse(messages)
	case len(ids) > 0:
		err = e.mask(ids, mask, labels)
	default:
		return e, fieldError("ids", "neither ids, input_ids nor messages; want a line of rows.jsonl, or of deepswe export "+
			"--format sft or verifier")
	}
	if err != nil {
		return e, err
	}
	return e, s.end()
}

// mask sets the ids and which of them are imitated.
func (e *Example) mask(ids, mask, labels []int32) error {
	e.Row.IDs, e.Row.Mask = ids, make([]uint8, len(ids))
	switch {
	case labels != nil && mask != nil:
		return fieldError("mask", "the line has labels as well: want one of the two")
	case labels != nil && len(labels) != len(ids):
		return fieldError("labels", "%d for %d ids", len(labels), len(ids))
	case labels == nil && len(mask) != len(ids):
		return fieldError("mask", "%d for %d ids", len(mask), len(ids))
	}
	for t, id := range ids {
		switch {
		case id < 0:
			return fieldError(fmt.Sprintf("ids[%d]", t), "%d is not a token id", id)
		case labels == nil && mask[t] != 0 && mask[t] != 1:
			return fieldError(fmt.Sprintf("mask[%d]", t), "%d is neither 0 nor 1", mask[t])
		case labels == nil:
			e.Row.Mask[t] = uint8(mask[t])
		case labels[t] == id:
			e.Row.Mask[t] = 1
		case labels[t] != notTrained:
			return fieldError(fmt.Sprintf("labels[%d]", t), "%d is neither the id %d nor %d; labels are not shifted",
				labels[t], id, notTrained)
		}
	}
	return nil
}

// converse sets the conversation. An assistant's message without a weight is not imitated.
func (e *Example) converse(raw []json.RawMessage) error {
	for i, b := range raw {
		var m struct {
			Role      string          `json:"role"`
			Content   json.RawMessage `json:"content"`
			Reasoning string          `json:"reasoning_content"`
			Calls     json.RawMessage `json:"tool_calls"`
			Weight    float64         `json:"weight"`
		}
		field := fmt.Sprintf("messages[%d]", i)
		if err := json.Unmarshal(b, &m); err != nil || m.Role == "" {
			return fieldError(field, "%.40s is not a message", b)
		}
		content := ""
		if len(m.Content) > 0 && json.Unmarshal(m.Content, &content) != nil {
			return fieldError(field+".content", "%.40s is not a text", m.Content)
		}
		message := trajectory.Message{Role: m.Role, Content: content, Reasoning: m.Reasoning}
		if len(m.Calls) > 0 && string(m.Calls) != "null" && string(m.Calls) != "[]" {
			return fieldError(field+".tool_calls", "a conversation with native calls does not say which tools the model was "+
				"told of; to fix: export the token ids, with --sft-form tokens")
		}
		if m.Weight < 0 {
			return fieldError(field+".weight", "%v is below 0", m.Weight)
		}
		e.Messages, e.Weights = append(e.Messages, message), append(e.Weights, m.Weight)
	}
	return nil
}

// parseLabel reads a token id, or the label of a token that is not imitated.
func parseLabel(text []byte) (int32, error) {
	if string(text) == "-100" {
		return notTrained, nil
	}
	return parseID(text)
}
