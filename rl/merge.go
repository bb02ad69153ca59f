package rl

import (
	"slices"

	"deepswe/agent/trajectory"
)

// Splits counts, by cause, the turns whose prompt did not extend the row, so that a new row had to begin.
type Splits struct {
	// PromptShorter: the prompt ends inside the row. History was cut, or the last turn was sampled again.
	PromptShorter int
	// PromptDiverges: the prompt differs within the previous prompt. History was rewritten: compaction, another template.
	PromptDiverges int
	// CompletionDiverges: the prompt differs within the previous completion, or in the tokens right before it, which
	// depend on what follows them. What the model wrote was rendered or tokenised again: a stripped thought, re-serialised
	// tool calls, a re-encoded text.
	CompletionDiverges int
}

// Total is the number of rows beyond the first.
func (s Splits) Total() int { return s.PromptShorter + s.PromptDiverges + s.CompletionDiverges }

func (s *Splits) add(o Splits) {
	s.PromptShorter += o.PromptShorter
	s.PromptDiverges += o.PromptDiverges
	s.CompletionDiverges += o.CompletionDiverges
}

// Shape counts what a rollout becomes when its turns are merged into rows.
type Shape struct {
	Turns, Rows int
	// Prompt, Sampled and Environment count the tokens of all rows before they are cut: the first prompts, what the
	// policy sampled, and what came in between.
	Prompt, Sampled, Environment int
	// Trained are the sampled tokens that are left within the maximum length: n of the aggregation modes, unless the
	// rollout is masked.
	Trained int
	// TruncatedRows were longer than the maximum length and lost TruncatedTokens at their end.
	TruncatedRows, TruncatedTokens int
	// ZeroLogprobs counts turns of two or more tokens whose logprobs are all exactly 0: a server that did not send any.
	ZeroLogprobs int
	Splits       Splits
}

// span is the turns [first, last] of a rollout that share a row. Since each prompt extends the row, the last turn's
// prompt and completion are the whole row.
type span struct{ first, last int }

// layout decides which turns share a row: turn k+1 joins turn k where its prompt starts with the prompt and the
// completion of turn k.
func layout(turns []Turn) ([]span, Splits) {
	var spans []span
	var splits Splits
	for k := range turns {
		if k > 0 && splits.extends(turns[k-1], turns[k].PromptIDs) {
			spans[len(spans)-1].last = k
		} else {
			spans = append(spans, span{k, k})
		}
	}
	return spans, splits
}

// A thought that was stripped changes how the line breaks before it are tokenised: up to seam tokens at the end of the
// previous prompt, which is longer than shortPrompt in any conversation.
const (
	seam        = 2
	shortPrompt = 16
)

// extends reports whether prompt begins with all of the previous turn, and counts the cause if it does not.
func (s *Splits) extends(prev Turn, prompt []int32) bool {
	p, c := len(prev.PromptIDs), len(prev.CompletionIDs)
	n := trajectory.Sequence(prev.PromptIDs).Shared(prompt)
	if n == p {
		n += trajectory.Sequence(prev.CompletionIDs).Shared(prompt[p:])
	}
	switch {
	case n == p+c:
		return true
	case n == len(prompt):
		s.PromptShorter++
	case n < p && (p < shortPrompt || n < p-seam):
		s.PromptDiverges++
	default:
		s.CompletionDiverges++
	}
	return false
}

// measure counts what [merge] will build from the spans.
func measure(turns []Turn, spans []span, splits Splits, maxLength int) Shape {
	s := Shape{Turns: len(turns), Rows: len(spans), Splits: splits}
	for _, sp := range spans {
		length, kept := sp.lengths(turns, maxLength)
		sampled := 0
		for _, t := range turns[sp.first : sp.last+1] {
			sampled += len(t.CompletionIDs)
			s.Trained += max(0, min(len(t.CompletionIDs), kept-len(t.PromptIDs)))
			if len(t.Logprobs) > 1 && !slices.ContainsFunc(t.Logprobs, func(v float64) bool { return v != 0 }) {
				s.ZeroLogprobs++
			}
		}
		prompt := len(turns[sp.first].PromptIDs)
		s.Prompt += prompt
		s.Sampled += sampled
		s.Environment += length - prompt - sampled
		if kept < length {
			s.TruncatedRows++
			s.TruncatedTokens += length - kept
		}
	}
	return s
}

// lengths returns the length of the row and what is left of it within the maximum length; 0 does not limit.
func (s span) lengths(turns []Turn, maxLength int) (length, kept int) {
	length = len(turns[s.last].PromptIDs) + len(turns[s.last].CompletionIDs)
	if maxLength > 0 {
		return length, min(length, maxLength)
	}
	return length, length
}

// Imitate turns a rollout into rows for fine-tuning. All sampled tokens are trained, except in turns with a format
// error. It returns the number of such turns.
func Imitate(r Rollout, maxLength int) (rows []Row, masked int) {
	spans, _ := layout(r.Turns)
	rows = merge(r, spans, maxLength)
	for i, sp := range spans {
		mask := rows[i].Mask
		for _, t := range r.Turns[sp.first : sp.last+1] {
			if t.FormatError {
				masked++
				from := min(len(t.PromptIDs), len(mask))
				clear(mask[from:min(from+len(t.CompletionIDs), len(mask))])
			}
		}
	}
	return rows, masked
}

// merge turns a rollout into rows, one for each span, in which the sampled tokens are trained. Rows longer than
// maxLength lose their end; 0 means no limit.
func merge(r Rollout, spans []span, maxLength int) []Row {
	rows := make([]Row, len(spans))
	for i, sp := range spans {
		rows[i] = sp.row(r, maxLength)
		rows[i].Row = i
	}
	return rows
}

// row builds one row, whose advantages are the turns' own. Its arrays are exactly as long as they need to be: a batch
// of them is most of the memory.
func (s span) row(r Rollout, maxLength int) Row {
	_, n := s.lengths(r.Turns, maxLength)
	row := Row{
		Task: r.Task, Group: r.Group, Attempt: r.Attempt, IDForm: r.IDForm,
		IDs: make([]int32, n), Mask: make([]uint8, n), Logprobs: make([]float64, n),
		NotGraded: r.NotGraded, StopReason: r.StopReason, PolicyVersion: r.PolicyVersion, Trained: true,
	}
	if slices.ContainsFunc(r.Turns[s.first:s.last+1], func(t Turn) bool { return t.Advantage != 0 }) {
		row.Advantages = make([]float64, n)
	}
	row.Oldest, row.Newest = r.Versions()
	if r.Reward != nil {
		row.Reward = *r.Reward
	}
	last := r.Turns[s.last]
	copied := copy(row.IDs, last.PromptIDs)
	copy(row.IDs[copied:], last.CompletionIDs)
	for _, t := range r.Turns[s.first : s.last+1] {
		at := len(t.PromptIDs)
		if at >= n {
			break
		}
		for k := range copy(row.Logprobs[at:], t.Logprobs) {
			row.Mask[at+k] = 1
			if row.Advantages != nil {
				row.Advantages[at+k] = t.Advantage
			}
		}
	}
	return row
}
