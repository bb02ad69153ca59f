package examples

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"deepswe/rl"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
)

// Set holds the rows to imitate, in the order of the file and without logprobs.
type Set struct {
	Train, Held []Example
	// digest identifies the file's rows.
	digest string
	// unrewarded, masked and long count the rows that were left out: because the rollout did not reach the reward,
	// because it is masked, or because the row has too many tokens.
	unrewarded, masked, long int
}

// Example is one row, and the file and line that it is from.
type Example struct {
	Row   rl.Row
	where string
}

// task returns the task of an example, or its group if the task is not known.
func (e *Example) task() string { return cmp.Or(e.Row.Task, e.Row.Group) }

// Complete returns the row as a trainer takes it; each trained token has the weight scale.
func (e *Example) Complete(scale float64) rl.Row {
	row := e.Row
	row.Logprobs, row.Advantage, row.Scale, row.Trained = make([]float64, len(row.IDs)), 1, scale, true
	return row
}

// Notes describes what was left out.
func (l *Set) Notes() []string {
	var out []string
	for _, left := range []struct {
		n    int
		says string
	}{
		{l.unrewarded, "rows are left out: their rollouts did not reach sft.min_reward"},
		{l.masked, "rows are left out: their rollouts are masked"},
		{l.long, "rows are left out: they are longer than the trainer takes"},
	} {
		if left.n > 0 {
			out = append(out, fmt.Sprintf("%d %s", left.n, left.says))
		}
	}
	return out
}

// Name identifies the rows to learn from.
func (l *Set) Name() string { return fmt.Sprintf("%s/%d", l.digest, len(l.Train)) }

// holdOut holds whole tasks out until they have the share of the rows, in an order that follows from the seed.
func (l *Set) holdOut(share float64, seed uint64) error {
	if share == 0 {
		return nil
	}
	rows := map[string]int{}
	for i := range l.Train {
		rows[l.Train[i].task()]++
	}
	if len(rows) < 2 {
		return fmt.Errorf("all %d rows are of one task, and whole tasks are held out; to fix: set sft.validation to 0",
			len(l.Train))
	}
	tasks := make([]string, 0, len(rows))
	keys := map[string]string{}
	for task := range rows {
		var key [8]byte
		binary.LittleEndian.PutUint64(key[:], seed)
		sum := sha256.Sum256(append(key[:], task...))
		tasks, keys[task] = append(tasks, task), string(sum[:])
	}
	slices.SortFunc(tasks, func(a, b string) int { return cmp.Or(cmp.Compare(keys[a], keys[b]), cmp.Compare(a, b)) })
	held, want, n := map[string]bool{}, max(1, int(math.Round(share*float64(len(l.Train))))), 0
	for _, task := range tasks[:len(tasks)-1] {
		if n >= want {
			break
		}
		held[task] = true
		n += rows[task]
	}
	all := l.Train
	l.Train = nil
	for _, e := range all {
		if held[e.task()] {
			l.Held = append(l.Held, e)
		} else {
			l.Train = append(l.Train, e)
		}
	}
	return nil
}

// Fit returns an error for rows that the trainer does not take, except for rows that are only too long, which it may
// leave out.
func (l *Set) Fit(t part.Trainer, s *config.SFT) error {
	if t.Accepts == nil {
		return nil
	}
	l.long = 0
	var first error
	longest := 0
	for _, rows := range []*[]Example{&l.Train, &l.Held} {
		var kept []Example
		for _, e := range *rows {
			row := e.Complete(0)
			err := t.Accepts(&row)
			switch {
			case err == nil:
				kept = append(kept, e)
			case errors.Is(err, rl.ErrTooLong):
				l.long++
				longest = max(longest, len(e.Row.IDs))
				first = cmp.Or(first, fmt.Errorf("%s: %w", e.where, err))
			default:
				return fmt.Errorf("%w: %s: %w", part.ErrTasks, e.where, err)
			}
		}
		*rows = kept
	}
	switch {
	case l.long > 0 && s.TooLong == config.Refuse:
		return fmt.Errorf("%w: rows are too long for the trainer: %d of them, up to %d tokens (the first: %w); to fix: set "+
			"sft.too_long to drop, export with a smaller --max-length, or start the server with a longer context", part.ErrTasks,
			l.long, longest, first)
	case len(l.Train) == 0:
		return fmt.Errorf("%w: all rows are too long for the trainer (the first: %w); to fix: start the server with a "+
			"longer context", part.ErrTasks, first)
	}
	return nil
}

// Complete makes rows for a trainer so that their loss is the mean over all tokens or over all rows.
func Complete(examples []Example, m config.Mean) []rl.Row {
	tokens := 0
	for i := range examples {
		tokens += examples[i].Row.TrainedTokens()
	}
	rows := make([]rl.Row, len(examples))
	for i := range examples {
		e := &examples[i]
		scale := 1 / float64(tokens)
		if m == config.OverRows {
			scale = 1 / float64(len(examples)) / float64(e.Row.TrainedTokens())
		}
		rows[i] = e.Complete(scale)
	}
	return rows
}
