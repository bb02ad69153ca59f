package rowfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"deepswe/agent/trajectory"
	"deepswe/env/disk"
	"deepswe/rl"
)

// encoder appends JSON with its members in the documented order. err is the first error: a number that is not
// finite, or a message that is not JSON.
type encoder struct {
	b   []byte
	err error
}

// AppendRollout appends a line of rollouts.jsonl without its line feed.
func AppendRollout(b []byte, r *rl.Rollout) ([]byte, error) {
	e := encoder{b: b}
	e.rollout(r)
	return e.b, e.err
}

// WriteRollout writes a line of rollouts.jsonl in a single call of w.Write.
func WriteRollout(w io.Writer, r *rl.Rollout) error {
	var e encoder
	e.rollout(r)
	return e.flush(w, "write rollout")
}

// WriteRow writes a line of rows.jsonl in a single call of w.Write.
func WriteRow(w io.Writer, r *rl.Row) error {
	var e encoder
	e.row(r)
	return e.flush(w, "write row")
}

func (e *encoder) row(r *rl.Row) {
	// An ID, a mask and a logprob take about 30 bytes; growing step by step would copy them several times.
	e.b = slices.Grow(e.b, 30*len(r.IDs)+512)
	e.head(r.Task, r.Group, r.Attempt, r.IDForm)
	e.raw(`,"row":`)
	e.b = strconv.AppendInt(e.b, int64(r.Row), 10)
	e.raw(`,"ids":`)
	appendArray(e, r.IDs, e.id)
	e.raw(`,"mask":`)
	appendArray(e, r.Mask, func(m uint8) { e.b = append(e.b, '0'+m&1) })
	e.raw(`,"logprobs":`)
	appendArray(e, r.Logprobs, e.number)
	e.raw(`,"advantage":`)
	e.number(r.Advantage)
	if r.Advantages != nil {
		e.raw(`,"advantages":`)
		appendArray(e, r.Advantages, e.number)
	}
	e.raw(`,"scale":`)
	e.number(r.Scale)
	e.raw(`,"reward":`)
	if r.NotGraded {
		e.raw("null")
	} else {
		e.number(r.Reward)
	}
	e.raw(`,"stop_reason":`)
	e.text(string(r.StopReason))
	e.raw(`,"policy_version":`)
	e.version(r.PolicyVersion)
	e.raw(`,"policy_version_oldest":`)
	e.version(r.Oldest)
	e.raw(`,"policy_version_newest":`)
	e.version(r.Newest)
	e.raw(`,"trained":`)
	e.b = strconv.AppendBool(e.b, r.Trained)
	e.raw(`}`)
}

func (e *encoder) rollout(r *rl.Rollout) {
	e.head(r.Task, r.Group, r.Attempt, r.IDForm)
	e.raw(`,"reward":`)
	if r.Reward == nil {
		e.raw("null")
	} else {
		e.number(*r.Reward)
	}
	if r.NotGraded {
		e.raw(`,"not_graded":true`)
	}
	e.raw(`,"stop_reason":`)
	e.text(string(r.StopReason))
	e.raw(`,"policy_version":`)
	e.version(r.PolicyVersion)
	e.raw(`,"turns":`)
	version, known := r.PolicyVersion.Number()
	var last trajectory.Sequence
	appendArray(e, r.Turns, func(t rl.Turn) {
		if known && t.PolicyVersion != nil && *t.PolicyVersion == version {
			t.PolicyVersion = nil
		}
		shared := last.Shared(t.PromptIDs)
		last = last.Follow(&t)
		e.turn(t, shared)
	})
	if len(r.Messages) > 0 {
		e.raw(`,"messages":`)
		appendArray(e, r.Messages, e.message)
	}
	e.raw(`}`)
}

// turn writes a turn whose prompt starts with the first shared token IDs of the previous turn's prompt and
// completion, and omits those. Because each prompt repeats the conversation, the size would otherwise be quadratic
// in the number of turns.
func (e *encoder) turn(t rl.Turn, shared int) {
	e.raw(`{`)
	if shared > 0 {
		e.raw(`"prompt_shared":`)
		e.b = strconv.AppendInt(e.b, int64(shared), 10)
		e.raw(`,`)
	}
	e.raw(`"prompt_ids":`)
	appendArray(e, t.PromptIDs[shared:], e.id)
	e.raw(`,"completion_ids":`)
	appendArray(e, t.CompletionIDs, e.id)
	e.raw(`,"logprobs":`)
	appendArray(e, t.Logprobs, e.number)
	if t.FormatError {
		e.raw(`,"format_error":true`)
	}
	if t.Advantage != 0 {
		e.raw(`,"advantage":`)
		e.number(t.Advantage)
	}
	if t.PolicyVersion != nil {
		e.raw(`,"policy_version":`)
		e.b = strconv.AppendInt(e.b, *t.PolicyVersion, 10)
	}
	e.raw(`}`)
}

// message writes a message on the same line, whatever white space it contains.
func (e *encoder) message(m json.RawMessage) {
	var out bytes.Buffer
	if err := json.Compact(&out, m); err != nil && e.err == nil {
		e.err = fmt.Errorf("message: %w", err)
	}
	e.b = append(e.b, out.Bytes()...)
}

// head starts an object with the members that identify a rollout.
func (e *encoder) head(task, group string, attempt int, form rl.IDForm) {
	e.raw(`{"task":`)
	e.label(task, form&rl.NumericTask != 0)
	e.raw(`,"group":`)
	e.label(group, form&rl.NumericGroup != 0)
	e.raw(`,"attempt":`)
	e.b = strconv.AppendInt(e.b, int64(attempt), 10)
}

func (e *encoder) raw(s string) { e.b = append(e.b, s...) }

func (e *encoder) id(id int32) { e.b = strconv.AppendInt(e.b, int64(id), 10) }

// label writes an ID as its harness wrote it: as a string or a number.
func (e *encoder) label(id string, numeric bool) {
	if numeric && isJSONNumber([]byte(id)) {
		e.raw(id)
		return
	}
	e.text(id)
}

// number writes the shortest decimal that is parsed as the same number.
func (e *encoder) number(v float64) {
	switch size := math.Abs(v); {
	case math.IsNaN(v), math.IsInf(v, 0):
		if e.err == nil {
			e.err = fmt.Errorf("%v cannot be written as JSON", v)
		}
		e.raw("null")
	case size != 0 && (size < 1e-6 || size >= 1e21):
		e.b = strconv.AppendFloat(e.b, v, 'e', -1, 64)
	default:
		e.b = strconv.AppendFloat(e.b, v, 'f', -1, 64)
	}
}

func appendArray[S ~[]T, T any](e *encoder, x S, element func(T)) {
	e.b = append(e.b, '[')
	for i, v := range x {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		element(v)
	}
	e.b = append(e.b, ']')
}

// version writes a version as its harness wrote it.
func (e *encoder) version(v rl.Version) {
	switch {
	case v == "":
		e.raw("null")
	case isJSONNumber([]byte(v)), v[0] == '"' && json.Valid([]byte(v)):
		e.raw(string(v))
	default:
		e.text(string(v))
	}
}

// text quotes s as JSON without escaping < > &.
func (e *encoder) text(s string) {
	quoted, _ := disk.MarshalJSON(s) // a string always encodes: invalid UTF-8 becomes the replacement character
	e.b = append(e.b, quoted...)
}

// flush writes the encoded text as one line.
func (e *encoder) flush(w io.Writer, operation string) error {
	if e.err != nil {
		return fmt.Errorf("%s: %w", operation, e.err)
	}
	e.b = append(e.b, '\n')
	if _, err := w.Write(e.b); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}
