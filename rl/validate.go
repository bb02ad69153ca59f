package rl

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"deepswe/agent"
	"deepswe/agent/trajectory"
)

// maxLogprob is above 0 because servers round: a probability may come out a hair over 1.
const maxLogprob = 1e-6

// FieldError says what is wrong with one field of a rollout or a row. Line is 0 where there is no file.
type FieldError struct {
	Line    int
	Field   string
	Problem string
}

func (e *FieldError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.Field, e.Problem)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Field, e.Problem)
}

func fieldError(field, format string, args ...any) error {
	return &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// Validate refuses a rollout that cannot be learned from exactly. Its error is a [*FieldError]. A rollout without a reward
// is not learned from, and its turns are not looked at.
func (r *Rollout) Validate() error {
	switch {
	case r.Task == "" && r.Group == "":
		return fieldError("task", "neither a task nor a group is named")
	case r.StopReason == "":
		return fieldError("stop_reason", "empty")
	}
	if r.Reward == nil {
		return nil
	}
	if math.IsNaN(*r.Reward) || math.IsInf(*r.Reward, 0) {
		return fieldError("reward", "%v is not a finite number", *r.Reward)
	}
	if r.StopReason == agent.SandboxError {
		return fieldError("reward", "%v after a sandbox_error; a failure of the machinery has no reward: write null", *r.Reward)
	}
	for i := range r.Turns {
		if err := validateTurn(&r.Turns[i], fmt.Sprintf("turns[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

// Accepts refuses what [Rollout.Validate] does, and a stop reason that is neither one of [trajectory.StopReasons] nor named by the
// filter: another harness's word for "ran out of context" would else be trained on as if the agent had finished.
func (a *Algorithm) Accepts(r *Rollout) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if _, ok := a.Filter[r.StopReason]; ok || slices.Contains(trajectory.StopReasons(), r.StopReason) {
		return nil
	}
	return fieldError("stop_reason", "%q is none of %s; name it with --set filter.%s=keep, mask or drop to accept it",
		r.StopReason, joinReasons(trajectory.StopReasons()), r.StopReason)
}

func validateTurn(t *Turn, at string) error {
	const record = "record the token ids that the server returns (vLLM: return_token_ids); they are never guessed from text"
	switch {
	case len(t.PromptIDs) == 0:
		return fieldError(at+".prompt_ids", "no token ids; %s", record)
	case len(t.CompletionIDs) == 0:
		return fieldError(at+".completion_ids", "no token ids; %s", record)
	case len(t.Logprobs) == 0:
		return fieldError(at+".logprobs", "none for %d completion_ids; ask the server for logprobs", len(t.CompletionIDs))
	case len(t.Logprobs) != len(t.CompletionIDs):
		return fieldError(at+".logprobs", "%d for %d completion_ids; every sampled token needs its own",
			len(t.Logprobs), len(t.CompletionIDs))
	}
	for i, lp := range t.Logprobs {
		if !(lp <= maxLogprob) || lp < -math.MaxFloat64 {
			return fieldError(fmt.Sprintf("%s.logprobs[%d]", at, i), "%v is not the logarithm of a probability", lp)
		}
	}
	return nil
}

func joinReasons(reasons []agent.StopReason) string {
	words := make([]string, len(reasons))
	for i, r := range reasons {
		words[i] = string(r)
	}
	return strings.Join(words, ", ")
}
