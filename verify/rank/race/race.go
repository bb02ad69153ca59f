// Package race plays several attempts at one task at once, and stops those that cannot change the choice anymore.
package race

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"

	"deepswe/agent"
	"deepswe/env"
	"deepswe/env/repo"
	"deepswe/verify/rank"
	"deepswe/verify/rank/ranking"
)

// Play plays k attempts at once, and returns the entries of those that ended by themselves, in order; not those that
// were interrupted or failed for infrastructure reasons. As soon as the remaining attempts cannot change the rule's
// choice, they are interrupted. Play returns when all attempts have ended.
func Play(ctx context.Context, k int, rule rank.Rule, play func(context.Context, int) (ranking.Entry, error),
) []ranking.Entry {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var entries []ranking.Entry
	state := make([]rank.Contender, k)
	for i := range state {
		state[i] = rank.Contender{Candidate: rank.Candidate{ID: i}, Running: true}
	}
	var attempts sync.WaitGroup
	for i := range k {
		attempts.Go(func() {
			e, err := play(ctx, i)
			mu.Lock()
			defer mu.Unlock()
			patch, perr := read(e)
			if err != nil || perr != nil || e.StopReason == agent.Interrupted {
				state[i].Running = false // an empty patch never wins
				return
			}
			entries = append(entries, e)
			state[i] = rank.Contender{
				Candidate: rank.Candidate{ID: i, Patch: rank.PatchKey(patch)}, Unscored: rule.Verifier.Judges(),
				Untested: rule.Verifier.Tests(),
			}
			// Test results are not known before all attempts have ended, so the filter cannot change the decision.
			if _, decided := rule.Decided(state, rank.Tests{}); decided {
				stop()
			}
		})
	}
	attempts.Wait()
	slices.SortFunc(entries, func(a, b ranking.Entry) int { return cmp.Compare(a.ID, b.ID) })
	return entries
}

func read(e ranking.Entry) ([]byte, error) {
	if e.PatchFile == "" {
		return nil, nil
	}
	data, err := os.ReadFile(e.PatchFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Placed returns a provider whose sandboxes all contain the snapshot, like those of the attempts.
func Placed(p env.Provider, s *repo.Snapshot) env.Provider { return placed{p, s} }

type placed struct {
	env.Provider
	snapshot *repo.Snapshot
}

func (p placed) Start(ctx context.Context, s env.Spec) (env.Sandbox, error) {
	s.Prepare = nil // only for images that contain the repository
	p.snapshot.Place(&s)
	sb, err := p.Provider.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	return original{sb, p.snapshot}, nil
}

// original is a sandbox whose original files are those of the snapshot.
type original struct {
	env.Sandbox
	snapshot *repo.Snapshot
}

func (o original) Original(ctx context.Context, path string) ([]byte, error) {
	return o.snapshot.Original(ctx, path)
}
