package rowfile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"deepswe/rl"
)

// SFTForm is the form of fine-tuning data.
type SFTForm string

const (
	// SFTAuto means sftMessages if every successful rollout has messages, and otherwise sftTokens.
	SFTAuto SFTForm = "auto"
	// sftTokens writes input_ids and labels, one line per row; tokens with the label -100 are not trained.
	sftTokens SFTForm = "tokens"
	// sftMessages writes chat messages, one line per rollout; assistant messages with weight 0 are not trained.
	sftMessages SFTForm = "messages"
)

// notTrained is the label that cross-entropy ignores in the libraries that read these files.
const notTrained = -100

// SFT configures rejection fine-tuning: only rollouts that solved their task are imitated, and all their turns
// except those with a format error.
type SFT struct {
	// Form defaults to SFTAuto.
	Form SFTForm
	// MinReward is the minimum reward of a success; 0 means 1.
	MinReward float64
	// MaxLength truncates rows of tokens; 0 means no limit. It does not apply to messages.
	MaxLength int
}

// SFTReport contains the counts of [ExportSFT].
type SFTReport struct {
	Form SFTForm
	// Rollouts is how many were read, Successes how many of them were exported, in Lines lines.
	Rollouts, Successes, Lines int
	// MaskedTurns had a format error; TruncatedRows were longer than MaxLength.
	MaskedTurns, TruncatedRows int
}

// ExportSFT writes data for rejection fine-tuning, in the order of the rollouts. It reads the source twice.
func ExportSFT(ctx context.Context, w io.Writer, src *Source, o SFT) (SFTReport, error) {
	o.MinReward = cmp.Or(o.MinReward, 1)
	rep, err := o.survey(ctx, src)
	if err != nil {
		return SFTReport{}, err
	}
	for r, err := range src.Rollouts(ctx, (*rl.Rollout).Validate) {
		if err != nil {
			return SFTReport{}, fmt.Errorf("export sft: %w", err)
		}
		if !o.imitates(&r) {
			continue
		}
		e, err := o.lines(&r, &rep)
		if err != nil {
			return SFTReport{}, fmt.Errorf("export sft: attempt %d of task %s: %w", r.Attempt, r.Task, err)
		}
		if _, err := w.Write(e.b); err != nil {
			return SFTReport{}, fmt.Errorf("export sft: %w", err)
		}
	}
	return rep, nil
}

func (o SFT) imitates(r *rl.Rollout) bool { return r.Reward != nil && *r.Reward >= o.MinReward }

// survey counts the rollouts and determines the form.
func (o SFT) survey(ctx context.Context, src *Source) (rep SFTReport, err error) {
	without := 0
	for r, err := range src.Rollouts(ctx, (*rl.Rollout).Validate) {
		if err != nil {
			return rep, fmt.Errorf("read rollouts: %w", err)
		}
		rep.Rollouts++
		if !o.imitates(&r) {
			continue
		}
		rep.Successes++
		if len(r.Messages) == 0 {
			without++
		}
	}
	switch rep.Form = o.Form; {
	case o.Form == sftMessages && without > 0:
		return rep, fmt.Errorf("export sft: %d of %d successful rollouts have no messages; export tokens", without,
			rep.Successes)
	case o.Form == sftMessages, o.Form == sftTokens:
	case o.Form != "" && o.Form != SFTAuto:
		return rep, fmt.Errorf("export sft: form %q is not one of %s, %s, %s", o.Form, SFTAuto, sftTokens, sftMessages)
	case without > 0:
		rep.Form = sftTokens
	default:
		rep.Form = sftMessages
	}
	return rep, nil
}

// lines encodes one rollout.
func (o SFT) lines(r *rl.Rollout, rep *SFTReport) (e encoder, err error) {
	if rep.Form == sftMessages {
		rep.Lines++
		masked, err := e.conversation(r)
		rep.MaskedTurns += masked
		return e, err
	}
	rep.TruncatedRows += rl.Measure(r, o.MaxLength).Shape.TruncatedRows
	rows, masked := rl.Imitate(*r, o.MaxLength)
	rep.MaskedTurns += masked
	rep.Lines += len(rows)
	for i := range rows {
		e.labelled(&rows[i])
	}
	return e, e.err
}

// labelled writes a row as input_ids and labels.
func (e *encoder) labelled(r *rl.Row) {
	e.head(r.Task, r.Group, r.Attempt, r.IDForm)
	e.raw(`,"row":`)
	e.b = strconv.AppendInt(e.b, int64(r.Row), 10)
	e.raw(`,"input_ids":`)
	appendArray(e, r.IDs, e.id)
	e.raw(`,"labels":`)
	appendArray(e, labels(r), e.id)
	e.raw("}\n")
}

// labels returns the token IDs, with notTrained for those that are not trained.
func labels(r *rl.Row) []int32 {
	out := slices.Clone(r.IDs)
	for t, m := range r.Mask {
		if m == 0 {
			out[t] = notTrained
		}
	}
	return out
}

// conversation writes a rollout as messages, each as its harness wrote it, except that it adds weights and removes
// format_error marks. It returns how many messages had a format error.
func (e *encoder) conversation(r *rl.Rollout) (masked int, err error) {
	messages, assistants, err := parseMessages(r.Messages)
	if err != nil {
		return 0, err
	}
	matched := len(assistants) == len(r.Turns)
	if !matched && slices.ContainsFunc(r.Turns, func(t rl.Turn) bool { return t.FormatError }) {
		return 0, fmt.Errorf("a turn has a format error, but %d turns cannot be matched with %d messages of the assistant; "+
			"mark the messages with format_error, or export tokens", len(r.Turns), len(assistants))
	}
	for k, m := range assistants {
		m.formatError = m.formatError || matched && r.Turns[k].FormatError
		if m.formatError {
			masked++
		}
	}
	e.head(r.Task, r.Group, r.Attempt, r.IDForm)
	e.raw(`,"messages":`)
	appendArray(e, messages, e.chat)
	e.raw("}\n")
	return masked, e.err
}

// chatMessage is a message of any harness. Only its role and its format_error mark are interpreted.
type chatMessage struct {
	role        string
	formatError bool
	members     map[string]json.RawMessage
}

// parseMessages returns all messages, and the assistant's messages among them.
func parseMessages(raw []json.RawMessage) (all, assistants []*chatMessage, err error) {
	for i, b := range raw {
		m := &chatMessage{}
		field := fmt.Sprintf("messages[%d]", i)
		if err := json.Unmarshal(b, &m.members); err != nil {
			return nil, nil, fieldError(field, "%.40s is not an object", b)
		}
		if err := json.Unmarshal(m.members["role"], &m.role); err != nil || m.role == "" {
			return nil, nil, fieldError(field+".role", "missing")
		}
		if mark, ok := m.members["format_error"]; ok {
			if err := json.Unmarshal(mark, &m.formatError); err != nil {
				return nil, nil, fieldError(field+".format_error", "%.40s is not a bool", mark)
			}
		}
		all = append(all, m)
		if m.role == "assistant" {
			assistants = append(assistants, m)
		}
	}
	return all, assistants, nil
}

func (e *encoder) chat(m *chatMessage) {
	e.raw(`{"role":`)
	e.text(m.role)
	for _, key := range slices.Sorted(maps.Keys(m.members)) {
		if key == "role" || key == "format_error" || key == "weight" && m.role == "assistant" {
			continue
		}
		e.raw(",")
		e.text(key)
		e.raw(":")
		e.message(m.members[key])
	}
	switch {
	case m.role != "assistant":
	case m.formatError, bytes.Equal(m.members["weight"], []byte("0")):
		e.raw(`,"weight":0`)
	default:
		e.raw(`,"weight":1`)
	}
	e.raw("}")
}
