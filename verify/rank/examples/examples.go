package examples

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/verify/rank"
	"deepswe/verify/rank/judge"
	"deepswe/verify/rank/ranking"
)

// Example is a line of the training set. A judge is trained on the last message, which contains Label.
type Example struct {
	Task string `json:"task"`
	// Group is the task again, because its examples belong together.
	Group   string `json:"group"`
	Attempt int    `json:"attempt"`
	// Run is the directory of the candidate's run, Patch the patch's key, see rank.PatchKey.
	Run      string    `json:"run"`
	Patch    string    `json:"patch"`
	Label    string    `json:"label"` // "YES" where the candidate solves its task, else "NO"
	Messages []Message `json:"messages"`
	// Condensed says what was left out to fit the judge's context.
	Condensed judge.Condensed `json:"condensed,omitzero"`
}

// Message is a chat message. Weight is 1 for the answer, which is trained on, and 0 for the others.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	Weight  int    `json:"weight,omitempty"`
}

// Options selects the candidates that become examples. Pack is required.
type Options struct {
	// Tasks holds the tasks by id. Candidates for other tasks are left out.
	Tasks map[string]env.Task
	Held  HeldOut
	Pack  judge.Pack
	// Context is the judge's context in tokens; 0 means judge.DefaultContext.
	Context int
}

// Report counts the examples, and what was left out and why.
type Report struct {
	// Tasks is the number of tasks with examples, Examples the number of examples, half of them YES and half NO.
	Tasks    int
	Examples int
	// HeldOut counts the tasks of evaluation sets, Unknown those that are not in the dataset.
	HeldOut int
	Unknown int
	// OneSided counts the tasks without a candidate that solves them, or without one that does not.
	OneSided int
	// The other fields count candidates that are left out: of unknown truth, with an empty patch, with the same patch
	// as another one, without a readable trajectory, too long for the judge's context, and without a counterpart of the
	// other label.
	Untold    int
	Empty     int
	Twice     int
	Blind     int
	TooLong   int
	Unmatched int
	// Contradicted counts patches that solved their task in one attempt but not in another.
	Contradicted int
}

// Write writes the examples of a source as JSON lines, task by task.
func Write(ctx context.Context, w io.Writer, s *ranking.Source, o Options) (Report, error) {
	var rep Report
	for _, set := range s.Tasks {
		if err := ctx.Err(); err != nil {
			return rep, err
		}
		task, known := o.Tasks[set.Task]
		switch {
		case !known:
			rep.Unknown++
			continue
		case o.Held.Has(task):
			rep.HeldOut++
			continue
		}
		if err := o.write(w, s.Path, task, set, &rep); err != nil {
			return rep, fmt.Errorf("export the examples of %s: %w", set.Task, err)
		}
	}
	return rep, nil
}

func (o Options) write(w io.Writer, run string, task env.Task, set ranking.Set, rep *Report) error {
	candidates, err := usable(set, rep)
	if err != nil {
		return err
	}
	var sides [2][]Example // NO and YES
	for _, c := range candidates {
		e, reason, err := o.example(run, task, c)
		switch {
		case err != nil:
			return err
		case reason != nil:
			rep.blame(reason)
			continue
		}
		side := 0
		if *c.entry.Solved {
			side = 1
		}
		sides[side] = append(sides[side], e)
	}
	n := min(len(sides[0]), len(sides[1]))
	if n == 0 {
		rep.OneSided++
		return nil
	}
	rep.Unmatched += len(sides[0]) + len(sides[1]) - 2*n
	rep.Tasks++
	for i := range n {
		for _, side := range sides {
			rep.Examples++
			if err := disk.EncodeJSON(w, side[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// candidate is an entry with its patch.
type candidate struct {
	entry ranking.Entry
	patch []byte
	key   string
}

// usable returns a candidate for each distinct patch whose truth is known, in an order that does not depend on the
// attempts' numbers.
func usable(set ranking.Set, rep *Report) ([]candidate, error) {
	truths := map[string]bool{}
	contradicted := map[string]bool{}
	var all []candidate
	for _, e := range set.Entries {
		patch, err := e.ReadPatch()
		if err != nil {
			return nil, err
		}
		key := rank.PatchKey(patch)
		switch {
		case e.Solved == nil:
			rep.Untold++
			continue
		case key == "":
			rep.Empty++
			continue
		}
		truth, seen := truths[key]
		if seen {
			rep.Twice++
			if truth != *e.Solved && !contradicted[key] {
				contradicted[key] = true
				rep.Contradicted++
			}
			continue
		}
		truths[key] = *e.Solved
		all = append(all, candidate{e, patch, key})
	}
	all = slices.DeleteFunc(all, func(c candidate) bool { return contradicted[c.key] })
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(order(set.Task, a), order(set.Task, b)) })
	return all, nil
}

// order returns a sort key that shuffles the candidates of a task, always in the same way.
func order(task string, c candidate) string {
	sum := sha256.Sum256([]byte(task + "\x00" + c.key))
	return string(sum[:])
}

// errBlind reports that a candidate has no readable trajectory.
var errBlind = errors.New("there is no trajectory")

// blame counts a candidate that cannot become an example, by reason.
func (r *Report) blame(reason error) {
	if errors.Is(reason, judge.ErrTooLong) {
		r.TooLong++
		return
	}
	r.Blind++
}

// example makes an example of a candidate. reason is why there is none.
func (o Options) example(run string, task env.Task, c candidate) (e Example, reason, err error) {
	if c.entry.Trajectory == "" {
		return e, errBlind, nil
	}
	rec, err := trajectory.Open(c.entry.Trajectory)
	if err != nil {
		return e, fmt.Errorf("%w: %w", errBlind, err), nil
	}
	evidence := judge.Evidence{
		Statement: task.Statement, Steps: judge.Steps(rec), Patch: strings.ToValidUTF8(string(c.patch), "\uFFFD"),
	}
	messages, condensed, err := o.Pack.Conversation(evidence, (&judge.Judge{Context: o.Context}).Budget())
	switch {
	case errors.Is(err, judge.ErrTooLong):
		return e, err, nil
	case err != nil:
		return e, nil, err
	}
	e = Example{
		Task: task.ID, Group: task.ID, Attempt: c.entry.ID, Run: run, Patch: c.key, Label: judge.Label(*c.entry.Solved),
		Condensed: condensed,
	}
	for _, m := range messages {
		e.Messages = append(e.Messages, Message{Role: m.Role, Content: m.Content})
	}
	e.Messages = append(e.Messages, Message{Role: "assistant", Content: judge.Answer(*c.entry.Solved), Weight: 1})
	return e, nil, nil
}
