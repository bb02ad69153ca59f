package rl

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"deepswe/agent/trajectory"
)

// Rollout is one attempt at a task, with the tokens that were sampled: a line of rollouts.jsonl. Any harness can write
// such lines.
type Rollout struct {
	Task, Group string
	Attempt     int
	// Reward is nil after an infrastructure failure: such a rollout is not a member of its group. It is also nil if
	// NotGraded is set, because the filter masks or drops the rollout. A masked one is a member of its group with a
	// reward of 0.
	Reward     *float64
	NotGraded  bool
	StopReason trajectory.StopReason
	// PolicyVersion is the version for turns without one. If the versions of turns differ, it is the oldest.
	PolicyVersion Version
	Turns         []Turn
	// Messages is the conversation as chat messages, if the harness recorded it. Only fine-tuning on text needs it.
	// Each message is an object with a role; "format_error": true marks an assistant's message that could not be
	// parsed.
	Messages []json.RawMessage
	IDForm   IDForm
}

// Turn is one call of the model.
type Turn = trajectory.Sample

// Row is one training sequence: a line of rows.jsonl. IDs, Mask and Logprobs have the same length, and so have
// Advantages unless they are nil. The loss coefficient of token t is AdvantageOf(t) * Scale * Mask[t].
type Row struct {
	Task, Group string
	Attempt     int
	// Row counts the rows of one rollout from 0; there is more than one where a prompt did not extend the last.
	Row int
	IDs []int32
	// Mask is 1 for tokens that the policy sampled and that are trained, otherwise 0.
	Mask []uint8
	// Logprobs are the sampler's where Mask is 1, and 0 elsewhere.
	Logprobs         []float64
	Advantage, Scale float64
	// Advantages are those of single tokens, in place of Advantage; nil where all have the same.
	Advantages []float64
	Reward     float64
	// NotGraded is set if the rollout was not to be graded, so that there is no Reward.
	NotGraded  bool
	StopReason trajectory.StopReason
	// PolicyVersion is the rollout's. Oldest and Newest are the extremes of its turns' versions; if no turn has one,
	// both are PolicyVersion.
	PolicyVersion  Version
	Oldest, Newest Version
	// Trained is false for a row whose rollout was masked by a filter: its mask is zero everywhere.
	Trained bool
	IDForm  IDForm
}

// AdvantageOf returns the advantage of a trained token.
func (r *Row) AdvantageOf(t int) float64 {
	if r.Advantages == nil {
		return r.Advantage
	}
	return r.Advantages[t]
}

// TrainedTokens returns the number of trained tokens.
func (r *Row) TrainedTokens() int {
	n := 0
	for _, m := range r.Mask {
		if m != 0 {
			n++
		}
	}
	return n
}

// Effective reports whether any trained token has an advantage that is not 0.
func (r *Row) Effective() bool {
	for t, m := range r.Mask {
		if m != 0 && r.AdvantageOf(t) != 0 {
			return true
		}
	}
	return false
}

// IDForm keeps how a harness wrote its ids, so that one that numbers its tasks or groups finds the same numbers in the
// rows. The zero value is strings.
type IDForm uint8

// The bits of an IDForm.
const (
	NumericTask IDForm = 1 << iota
	NumericGroup
)

// Version names the policy that sampled a rollout. Harnesses write a number (12) or a name ("v12"), and what was
// written is written back: a Version that is a JSON number in text is a number in JSON, and any other text is a string.
// A string that looks like a number is held in its JSON quotes, so that 12 and "12" stay apart. The empty Version is
// null: unknown.
type Version string

// VersionNumber is the version of a trainer that counts its weights.
func VersionNumber(n int64) Version { return Version(strconv.FormatInt(n, 10)) }

// Number returns the version as a count; ok is false for one that is a name.
func (v Version) Number() (n int64, ok bool) {
	n, err := strconv.ParseInt(strings.Trim(string(v), `"`), 10, 64)
	return n, err == nil
}

// Versions returns the oldest and the newest version of the rollout's turns. A turn without a version has the
// rollout's. A version that is not a number is ignored if there are numbers.
func (r *Rollout) Versions() (oldest, newest Version) {
	low, high, known := int64(0), int64(0), false
	whole, counted := r.PolicyVersion.Number()
	for _, t := range r.Turns {
		v := whole
		switch {
		case t.PolicyVersion != nil:
			v = *t.PolicyVersion
		case !counted:
			continue
		}
		if !known || v < low {
			low = v
		}
		if !known || v > high {
			high = v
		}
		known = true
	}
	if !known || low == high && counted && low == whole {
		return r.PolicyVersion, r.PolicyVersion // as it was written
	}
	return VersionNumber(low), VersionNumber(high)
}

// maxLogprob is above 0 because servers round: a probability may come out a hair over 1.
const maxLogprob = 1e-6

// FieldError reports what is wrong with one field of a rollout. Line is 0 if there is no file.
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

// Validate refuses a rollout that cannot be learned from exactly. Its error is a [*FieldError]. A rollout without a
// reward is not learned from, and its turns are ignored.
func (r *Rollout) Validate() error {
	switch {
	case r.Task == "" && r.Group == "":
		return fieldError("task", "neither a task nor a group is named")
	case r.StopReason == "":
		return fieldError("stop_reason", "empty")
	case r.NotGraded && r.Reward != nil:
		return fieldError("not_graded", "the rollout has a reward of %v", *r.Reward)
	case r.Reward == nil && !r.NotGraded:
		return nil
	case r.NotGraded:
	case math.IsNaN(*r.Reward) || math.IsInf(*r.Reward, 0):
		return fieldError("reward", "%v is not a finite number", *r.Reward)
	case r.StopReason == trajectory.SandboxError:
		return fieldError("reward", "%v after a sandbox_error; an infrastructure failure has no reward: write null",
			*r.Reward)
	}
	for i := range r.Turns {
		if err := validateTurn(&r.Turns[i], fmt.Sprintf("turns[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

// Accepts refuses what [Rollout.Validate] does, and a stop reason that is neither one of [trajectory.StopReasons] nor
// named by the filter: otherwise another harness's word for "ran out of context" would be trained on as if the agent
// had finished.
func (a *Algorithm) Accepts(r *Rollout) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if r.NotGraded && a.Grades(r.StopReason) {
		return fieldError("reward", "the rollout was not graded, and its reward counts here; "+
			"set filter.%s=mask and masked_reward=zero, or filter.%s=drop", r.StopReason, r.StopReason)
	}
	if _, ok := a.Filter[r.StopReason]; ok || slices.Contains(trajectory.StopReasons(), r.StopReason) {
		return nil
	}
	return fieldError("stop_reason", "%q is not one of %s; name it with --set filter.%s=keep, mask or drop to accept it",
		r.StopReason, list(trajectory.StopReasons()), r.StopReason)
}

func validateTurn(t *Turn, at string) error {
	const record = "record the token ids that the server returns (vLLM: return_token_ids); " +
		"they are never guessed from text"
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
	if math.IsNaN(t.Advantage) || math.IsInf(t.Advantage, 0) {
		return fieldError(at+".advantage", "%v is not a finite number", t.Advantage)
	}
	for i, lp := range t.Logprobs {
		if !(lp <= maxLogprob) || lp < -math.MaxFloat64 {
			return fieldError(fmt.Sprintf("%s.logprobs[%d]", at, i), "%v is not the logarithm of a probability", lp)
		}
	}
	return nil
}
