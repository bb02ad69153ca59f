package rl

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// UnmarshalJSON reads a line of rollouts.jsonl. Members that the format does not have are passed over. What it refuses is
// told by a [*FieldError]; whether the rollout can be learned from is for [Rollout.Validate] to say.
func (r *Rollout) UnmarshalJSON(b []byte) error {
	*r = Rollout{}
	s := &scanner{b: b}
	var reward, stop, turns bool
	err := s.object(func(key string) (err error) {
		switch key {
		case "task":
			r.Task, err = s.label(&r.IDForm, NumericTask)
		case "group":
			r.Group, err = s.label(&r.IDForm, NumericGroup)
		case "attempt":
			r.Attempt, err = s.attempt()
		case "reward":
			reward = true
			r.Reward, err = s.reward()
		case "stop_reason":
			stop = true
			err = s.value(&r.StopReason)
		case "policy_version":
			err = s.value(&r.PolicyVersion)
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
		return err
	case !reward:
		return fieldError("reward", "missing; write null where the rollout failed for reasons that are not the agent's")
	case !stop:
		return fieldError("stop_reason", "missing")
	case !turns && r.Reward != nil:
		return fieldError("turns", "missing")
	}
	return s.end()
}

func (s *scanner) turns() (turns []Turn, err error) {
	err = s.array(func() error {
		t, err := s.turn()
		turns = append(turns, t)
		return err
	})
	return turns, err
}

func (s *scanner) turn() (t Turn, err error) {
	err = s.object(func(key string) (err error) {
		switch key {
		case "prompt_ids":
			t.PromptIDs, err = s.ids()
		case "completion_ids":
			t.CompletionIDs, err = s.ids()
		case "logprobs":
			t.Logprobs, err = s.floats()
		case "format_error":
			err = s.value(&t.FormatError)
		case "policy_version":
			err = s.value(&t.PolicyVersion)
		default:
			_, err = s.raw()
		}
		return err
	})
	return t, err
}

// UnmarshalJSON reads a line of rows.jsonl.
func (r *Row) UnmarshalJSON(b []byte) error {
	*r = Row{}
	s := &scanner{b: b}
	err := s.object(func(key string) (err error) {
		switch key {
		case "task":
			r.Task, err = s.label(&r.IDForm, NumericTask)
		case "group":
			r.Group, err = s.label(&r.IDForm, NumericGroup)
		case "attempt":
			r.Attempt, err = s.attempt()
		case "row":
			err = s.value(&r.Row)
		case "ids":
			r.IDs, err = s.ids()
		case "mask":
			r.Mask, err = s.mask()
		case "logprobs":
			r.Logprobs, err = s.floats()
		case "advantage":
			err = s.value(&r.Advantage)
		case "scale":
			err = s.value(&r.Scale)
		case "reward":
			err = s.value(&r.Reward)
		case "stop_reason":
			err = s.value(&r.StopReason)
		case "policy_version":
			err = s.value(&r.PolicyVersion)
		case "trained":
			err = s.value(&r.Trained)
		default:
			_, err = s.raw()
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.end()
}

// value consumes one value into v.
func (s *scanner) value(v any) error {
	raw, err := s.raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return fmt.Errorf("%.40s is no %s", raw, te.Type.Kind())
		}
		return err
	}
	return nil
}

// label consumes an id: a string, a number, which is noted in form, or null for none.
func (s *scanner) label(form *IDForm, numeric IDForm) (string, error) {
	raw, err := s.raw()
	if err != nil {
		return "", err
	}
	switch {
	case string(raw) == "null":
		return "", nil
	case isJSONNumber(raw):
		*form |= numeric
		return string(raw), nil
	case raw[0] != '"':
		return "", fmt.Errorf("%.40s is neither a string nor a number", raw)
	}
	*form &^= numeric
	var id string
	err = json.Unmarshal(raw, &id)
	return id, err
}

// attempt consumes a whole number, which may be written as a string.
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

// Validate refuses a row that does not hold together. Its error is a [*FieldError].
func (r *Row) Validate() error {
	switch n := len(r.IDs); {
	case n == 0:
		return fieldError("ids", "none")
	case len(r.Mask) != n:
		return fieldError("mask", "%d for %d ids", len(r.Mask), n)
	case len(r.Logprobs) != n:
		return fieldError("logprobs", "%d for %d ids", len(r.Logprobs), n)
	case !(r.Scale >= 0):
		return fieldError("scale", "%v is not a share", r.Scale)
	}
	for t, m := range r.Mask {
		if m == 1 && !r.Trained {
			return fieldError(fmt.Sprintf("mask[%d]", t), "1 in a row that is not trained")
		}
		if lp := r.Logprobs[t]; !(lp <= maxLogprob) {
			return fieldError(fmt.Sprintf("logprobs[%d]", t), "%v is not the logarithm of a probability", lp)
		}
	}
	return nil
}
