package judge

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"deepswe/agent"
)

// Condensed counts what was replaced by a placeholder to make the conversation fit.
type Condensed struct {
	Thoughts     int `json:"thoughts,omitempty"`
	Observations int `json:"observations,omitempty"`
	Actions      int `json:"actions,omitempty"`
}

// The placeholders of texts that were left out. The first is the one that DeepSWE-Verifier was trained with.
const (
	thoughtGone     = "<Thought condensed for saving context>"
	observationGone = "<Observation condensed for saving context>"
	actionGone      = "<Action condensed for saving context>"
)

// bytesPerToken is a low estimate of how much text a token covers. Code and logs have 3.3 to 3.8 bytes a token with
// Qwen's tokenizer. Where the estimate is too high, the endpoint says so, and more is condensed.
const bytesPerToken = 3

// spare is the number of tokens that the reference reserves for the chat template and for counting errors.
const spare = 500

// ErrTooLong says that a conversation does not fit, whatever is condensed.
var ErrTooLong = errors.New("it does not fit into the judge's context")

// tokens estimates the tokens of a text of n bytes.
func tokens(n int) int { return (n + bytesPerToken - 1) / bytesPerToken }

// Conversation renders the evidence in at most budget tokens, by estimate; 0 does not limit. The longest thoughts are
// condensed first, then the longest observations, then the longest actions, and the patch never.
func (p Pack) Conversation(e Evidence, budget int) ([]agent.Message, Condensed, error) {
	steps := make([]Step, len(e.Steps))
	for i, s := range e.Steps {
		steps[i] = Step{defused(s.Thought), defused(s.Action), defused(s.Observation)}
	}
	user := p.user(e, steps)
	var done Condensed
	if budget <= 0 || tokens(len(user)+len(p.System)) <= budget {
		return p.messages(user), done, nil
	}
	over := len(user) + len(p.System) - budget*bytesPerToken
	for _, part := range []struct {
		gone  string
		count *int
		of    func(*Step) *string
	}{
		{thoughtGone, &done.Thoughts, func(s *Step) *string { return &s.Thought }},
		{observationGone, &done.Observations, func(s *Step) *string { return &s.Observation }},
		{actionGone, &done.Actions, func(s *Step) *string { return &s.Action }},
	} {
		texts := make([]*string, 0, len(steps))
		for i := range steps {
			if text := part.of(&steps[i]); len(*text) > len(part.gone) {
				texts = append(texts, text)
			}
		}
		slices.SortStableFunc(texts, func(a, b *string) int { return cmp.Compare(len(*b), len(*a)) })
		for _, text := range texts {
			if over <= 0 {
				break
			}
			over -= len(*text) - len(part.gone)
			*text = part.gone
			*part.count++
		}
	}
	if over > 0 {
		return nil, done, fmt.Errorf("%w: without thoughts, observations and actions it still has about %d tokens, "+
			"%d of them the patch, and there is room for %d",
			ErrTooLong, tokens(budget*bytesPerToken+over), tokens(len(e.Patch)), budget)
	}
	return p.messages(p.user(e, steps)), done, nil
}

func (p Pack) messages(user string) []agent.Message {
	return []agent.Message{{Role: agent.RoleSystem, Content: p.System}, {Role: agent.RoleUser, Content: user}}
}

// user returns the user's message; the steps are escaped already.
func (p Pack) user(e Evidence, steps []Step) string {
	var b strings.Builder
	part := func(begin, text, end string) { b.WriteString("\n\n" + begin + "\n" + text + "\n" + end) }
	b.WriteString(p.Introduction)
	b.WriteString("\n\n=== INTERACTION LOG ===")
	part("[SYSTEM]", p.System, "[/SYSTEM]")
	part("[USER]", strings.ReplaceAll(p.Instance, statementMark, defused(e.Statement)), "[/USER]")
	for i, s := range steps {
		part("[STEP]", strconv.Itoa(i), "[/STEP]")
		reply := s.Action
		if s.Thought != "" {
			reply = s.Thought + "\n\n" + s.Action
		}
		part("[ASSISTANT]", reply, "[/ASSISTANT]")
		part("[USER]", s.Observation, "[/USER]")
	}
	b.WriteString("\n\n=== END INTERACTION ===\n\n=== FINAL PATCH ===")
	part("[PATCH]", defused(e.Patch), "[/PATCH]")
	b.WriteString("\n\n=== END FINAL PATCH ===\n\n")
	b.WriteString(p.Question)
	return b.String()
}
