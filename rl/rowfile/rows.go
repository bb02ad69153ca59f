package rowfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"deepswe/rl"
)

// errChanged reports that a source differed when it was read again.
var errChanged = errors.New("the rollouts changed while they were read; export a run that has ended, or a copy")

// ExportRows writes rows.jsonl in the order of the rollouts. It reads the source twice, because an advantage
// depends on the whole group and a share on the whole batch: the first pass checks and counts, the second computes
// and writes each rollout's rows. Only a few rollouts are in memory at a time, even if the members of a group are
// far apart.
func ExportRows(ctx context.Context, w io.Writer, src *Source, a rl.Algorithm) (rl.Batch, error) {
	placements, members, batch, err := survey(ctx, src, a)
	if err != nil {
		return rl.Batch{}, err
	}
	encoded := ordered(placed(ctx, src, a, members), func(i indexed) (encoder, error) {
		var e encoder
		for _, row := range placements[i.index].Rows(i.rollout, a.MaxLength) {
			e.row(&row)
			e.b = append(e.b, '\n')
		}
		return e, e.err
	})
	for e, err := range encoded {
		if err != nil {
			return rl.Batch{}, fmt.Errorf("export rows: %w", err)
		}
		if _, err := w.Write(e.b); err != nil {
			return rl.Batch{}, fmt.Errorf("export rows: %w", err)
		}
	}
	return batch, nil
}

// survey reads the source for the first time and computes the placement of its rollouts.
func survey(ctx context.Context, src *Source, a rl.Algorithm) ([]rl.Placement, []rl.Member, rl.Batch, error) {
	if err := a.Check(); err != nil {
		return nil, nil, rl.Batch{}, err
	}
	var members []rl.Member
	for m, err := range ordered(src.Rollouts(ctx, a.Accepts), func(r rl.Rollout) (rl.Member, error) {
		return rl.Measure(&r, a.MaxLength), nil
	}) {
		if err != nil {
			return nil, nil, rl.Batch{}, fmt.Errorf("read rollouts: %w", err)
		}
		members = append(members, m)
	}
	placements, batch, err := a.Plan(members)
	return placements, members, batch, err
}

// indexed is a rollout with its position in the source.
type indexed struct {
	rollout rl.Rollout
	index   int
}

// placed reads the source again and pairs each rollout with its placement.
func placed(ctx context.Context, src *Source, a rl.Algorithm, members []rl.Member) iter.Seq2[indexed, error] {
	return func(yield func(indexed, error) bool) {
		i := 0
		for r, err := range src.Rollouts(ctx, a.Accepts) {
			if err == nil && (i == len(members) || !isOf(&members[i], &r)) {
				err = errChanged
			}
			if !yield(indexed{r, i}, err) || err != nil {
				return
			}
			i++
		}
		if i < len(members) {
			yield(indexed{}, errChanged)
		}
	}
}

// isOf reports whether m may have been computed from r, by comparing everything that both contain.
func isOf(m *rl.Member, r *rl.Rollout) bool {
	return m.Task == r.Task && m.Group == r.Group && m.Attempt == r.Attempt && m.StopReason == r.StopReason &&
		(m.Reward == nil) == (r.Reward == nil) && (m.Reward == nil || *m.Reward == *r.Reward && m.Shape.Turns == len(r.Turns))
}

// maskedLogprob is what Atropos expects for tokens that were not sampled; real logprobs are never positive.
const maskedLogprob = 1.0

// ExportAtropos writes a line per group, which is the body of a POST to /scored_data of an Atropos server: for each
// row its tokens, masks (the token ID if it is trained, otherwise -100), scores (rewards), advantages and
// inference_logprobs.
//
// A score alone would weight a rollout by its number of rows and ignore the filter, so each token also has its
// advantage, without the share, because that trainer divides by itself. Dropped rollouts are left out. The source
// is read twice. Rows are kept in memory until their group is complete, so a source with consecutive groups needs
// memory for one group.
func ExportAtropos(ctx context.Context, w io.Writer, src *Source, a rl.Algorithm) (rl.Batch, error) {
	placements, members, batch, err := survey(ctx, src, a)
	if err != nil {
		return rl.Batch{}, err
	}
	missing := map[rl.GroupKey]int{}
	for i, p := range placements {
		if p.Disposition.HasRows() {
			missing[members[i].GroupKey()]++
		}
	}
	open := map[rl.GroupKey][]rl.Row{}
	for i, err := range placed(ctx, src, a, members) {
		if err != nil {
			return rl.Batch{}, fmt.Errorf("export atropos: %w", err)
		}
		if !placements[i.index].Disposition.HasRows() {
			continue
		}
		key := members[i.index].GroupKey()
		open[key] = append(open[key], placements[i.index].Rows(i.rollout, a.MaxLength)...)
		if missing[key]--; missing[key] > 0 {
			continue
		}
		if rows := open[key]; len(rows) > 0 {
			var e encoder
			e.scored(rows)
			if err := e.flush(w, "export atropos"); err != nil {
				return rl.Batch{}, err
			}
		}
		delete(open, key)
	}
	return batch, nil
}

// scored writes one group.
func (e *encoder) scored(rows []rl.Row) {
	e.raw(`{"tokens":`)
	appendArray(e, rows, func(r rl.Row) { appendArray(e, r.IDs, e.id) })
	e.raw(`,"masks":`)
	appendArray(e, rows, func(r rl.Row) { appendArray(e, labels(&r), e.id) })
	e.raw(`,"scores":`)
	appendArray(e, rows, func(r rl.Row) { e.number(r.Reward) })
	e.raw(`,"advantages":`)
	appendArray(e, rows, func(r rl.Row) {
		t := -1
		appendArray(e, r.Mask, func(m uint8) {
			if t++; m == 0 {
				e.raw("0")
				return
			}
			e.number(r.AdvantageOf(t))
		})
	})
	e.raw(`,"inference_logprobs":`)
	appendArray(e, rows, func(r rl.Row) {
		t := -1
		appendArray(e, r.Logprobs, func(lp float64) {
			if t++; r.Mask[t] == 0 {
				lp = maskedLogprob
			}
			e.number(lp)
		})
	})
	e.raw(`}`)
}
