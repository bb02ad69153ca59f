package mine

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"deepswe/env"
	history "deepswe/env/mine"
	"deepswe/verify/mutant"
	"deepswe/verify/swe"
)

// bugsDir is the repository with the bugs that were made, below the miner's directory.
const bugsDir = "bugs.git"

// synthesize makes bugs and judges them, as it judges what the history has.
func (m *Miner) synthesize(ctx context.Context, mined *Mined, candidates []history.Candidate, w swe.Watch) error {
	dir, err := filepath.Abs(m.Dir.Path(bugsDir))
	if err != nil {
		return err
	}
	bugs := history.Bugs{Repository: m.Builder.Repository, Dir: dir}
	if err := bugs.Open(ctx); err != nil {
		return err
	}
	var made []history.Candidate
	seen := map[string]bool{}
	for _, kind := range m.Synthetic {
		more, err := m.bugs(ctx, bugs, kind, mined, candidates)
		if err != nil {
			return err
		}
		for _, c := range more {
			if !seen[c.Hash] {
				made = append(made, c)
			}
			seen[c.Hash] = true
		}
	}
	of := &Miner{
		Builder: m.Builder, Provider: m.Provider, Dir: m.Dir, Workers: m.Workers, Setup: m.Setup, Note: m.Note,
		Issues: m.Issues,
	}
	of.Builder.Repository, of.Builder.Packages = dir, m.Builder.Repository
	mined.Kinds, mined.Made = m.Synthetic, len(made)
	mined.Synthetic, err = of.mine(ctx, "synthetic bugs", made, w)
	return err
}

// bugs makes the bugs of a kind.
func (m *Miner) bugs(
	ctx context.Context, bugs history.Bugs, kind string, mined *Mined, candidates []history.Candidate,
) (made []history.Candidate, err error) {
	for _, c := range candidates {
		sound := slices.ContainsFunc(mined.Tasks, func(t env.Task) bool { return t.ID == m.id(c) })
		switch {
		case kind == history.Reverting && !sound && m.runsNot(mined, c):
			found, ok, err := bugs.Revert(ctx, c)
			if err != nil {
				return nil, fmt.Errorf("revert %s: %w", c.Hash, err)
			}
			if ok {
				made = append(made, found)
			}
		case kind == history.Mutating && sound:
			more, err := m.mutate(ctx, bugs, c)
			if err != nil {
				return nil, fmt.Errorf("mutate %s: %w", c.Hash, err)
			}
			made = append(made, more...)
		}
	}
	return made, nil
}

// runsNot reports whether a candidate was lost for want of what its own time had installed: today's code may run where
// that of then does not.
func (m *Miner) runsNot(mined *Mined, c history.Candidate) bool {
	return slices.ContainsFunc(mined.Losses, func(l Loss) bool {
		return l.Commit == c.Hash && slices.Contains([]history.Reason{NeverRuns, NoFailure, TooSlow, Flaky, Exposed}, l.Reason)
	})
}

// mutate makes bugs of the lines that a candidate changes.
func (m *Miner) mutate(ctx context.Context, bugs history.Bugs, c history.Candidate) (made []history.Candidate, err error) {
	files, err := m.Builder.Solved(ctx, c)
	if err != nil {
		return nil, err
	}
	text := c.Message
	if issue := m.Issues[c.Issue()]; issue != "" {
		text = issue
	}
	for _, one := range mutant.Of([]byte(c.Sources), files, m.Mutants, 1) {
		found, ok, err := bugs.Break(ctx, c, history.Mutating, one.Patch([]byte(c.Sources)), text)
		if err != nil {
			return nil, err
		}
		if ok {
			made = append(made, found)
		}
	}
	return made, nil
}
