package rowfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"deepswe/agent/trajectory"
	"deepswe/rl"
)

func fieldError(field, format string, args ...any) error {
	return &rl.FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// DecodeRollout decodes a line of rollouts.jsonl. It ignores unknown members. The error is an [*rl.FieldError] if
// it concerns a single member. [rl.Rollout.Validate] then checks whether the rollout can be used for learning.
func DecodeRollout(line []byte) (r rl.Rollout, err error) {
	s := &scanner{b: line}
	var reward, stop, turns bool
	err = s.object(func(key string) (err error) {
		switch key {
		case "task":
			r.Task, err = s.id(&r.IDForm, rl.NumericTask)
		case "group":
			r.Group, err = s.id(&r.IDForm, rl.NumericGroup)
		case "attempt":
			r.Attempt, err = s.attempt()
		case "reward":
			reward = true
			r.Reward, err = s.reward()
		case "not_graded":
			err = s.value(&r.NotGraded)
		case "stop_reason":
			stop = true
			err = s.value(&r.StopReason)
		case "policy_version":
			r.PolicyVersion, err = s.version()
		case "turns":
			turns = true
			r.Turns, err = s.turns()
		case "messages":
			err = s.value(&r.Messages)
		default:
			_, err = s.raw()
		}
		return err
	})
	switch {
	case err != nil:
		return r, err
	case !reward:
		return r, fieldError("reward", "missing; use null for a rollout that failed for reasons other than the agent")
	case !stop:
		return r, fieldError("stop_reason", "missing")
	case !turns && r.Reward != nil:
		return r, fieldError("turns", "missing")
	}
	return r, s.end()
}

func (s *scanner) turns() (turns []rl.Turn, err error) {
	var last trajectory.Sequence
	err = s.array(func() error {
		t, shared, err := s.turn()
		if err != nil {
			return err
		}
		// Every prompt becomes part of the sequence, so that prompts that extend one another share memory.
		if own := last.Shared(t.PromptIDs); shared == nil && own > 0 {
			t.PromptIDs, shared = t.PromptIDs[own:], &own
		} else if shared == nil {
			shared = new(int)
		}
		t.PromptIDs, t.CompletionIDs, last, err = last.Extend(*shared, t.PromptIDs, t.CompletionIDs)
		if err != nil {
			return fieldError("prompt_shared", "%d, but the previous turn has %d ids", *shared, len(last))
		}
		turns = append(turns, t)
		return nil
	})
	return turns, err
}

// turn decodes a turn; shared is nil if the prompt is written in full.
func (s *scanner) turn() (t rl.Turn, shared *int, err error) {
	err = s.object(func(key string) (err error) {
		switch key {
		case "prompt_shared":
			err = s.value(&shared)
		case "prompt_ids":
			t.PromptIDs, err = scalars(s, parseID)
		case "completion_ids":
			t.CompletionIDs, err = scalars(s, parseID)
		case "logprobs":
			t.Logprobs, err = scalars(s, parseNumber)
		case "format_error":
			err = s.value(&t.FormatError)
		case "advantage":
			err = s.value(&t.Advantage)
		case "policy_version":
			err = s.value(&t.PolicyVersion)
		default:
			_, err = s.raw()
		}
		return err
	})
	return t, shared, err
}

// value decodes one value into v.
func (s *scanner) value(v any) error {
	raw, err := s.raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return fmt.Errorf("%.40s is not a %s", raw, te.Type.Kind())
		}
		return err
	}
	return nil
}

// label decodes a string, a number or null, and returns it as it was written: with its quotes, or "" for null.
func (s *scanner) label() ([]byte, error) {
	raw, err := s.raw()
	switch {
	case err != nil:
		return nil, err
	case string(raw) == "null":
		return nil, nil
	case raw[0] != '"' && !isJSONNumber(raw):
		return nil, fmt.Errorf("%.40s is neither a string nor a number", raw)
	}
	return raw, nil
}

// id decodes the name of a task or a group. It records in form if the name was a number.
func (s *scanner) id(form *rl.IDForm, numeric rl.IDForm) (id string, err error) {
	raw, err := s.label()
	switch {
	case len(raw) == 0:
	case raw[0] == '"':
		*form &^= numeric
		err = json.Unmarshal(raw, &id)
	default:
		*form |= numeric
		id = string(raw)
	}
	return id, err
}

// attempt decodes an integer, which may be written as a string.
func (s *scanner) attempt() (n int, err error) {
	raw, err := s.raw()
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal([]byte(strings.Trim(string(raw), `"`)), &n); err != nil {
		return 0, fmt.Errorf("%.40s is not a whole number", raw)
	}
	return n, nil
}

func (s *scanner) reward() (*float64, error) {
	if s.null() {
		return nil, nil
	}
	raw, err := s.raw()
	if err != nil {
		return nil, err
	}
	v, err := parseNumber(raw)
	if err != nil {
		return nil, fmt.Errorf("%.40s is neither a number nor null", raw)
	}
	return &v, nil
}

// version decodes a label into an [rl.Version].
func (s *scanner) version() (rl.Version, error) {
	raw, err := s.label()
	if len(raw) == 0 || raw[0] != '"' {
		return rl.Version(raw), err
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", err
	}
	if text == "" || text[0] == '"' || isJSONNumber([]byte(text)) {
		return rl.Version(raw), nil
	}
	return rl.Version(text), nil
}
