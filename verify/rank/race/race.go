// Package race plays several attempts at one task at once.
package race

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"deepswe/agent"
	"deepswe/env"
	"deepswe/env/repo"
	"deepswe/verify/rank/ranking"
)

// Play plays k attempts at once, and returns the entries of those that ended by themselves, in order; not those that
// were interrupted or failed for infrastructure reasons. Play returns when all attempts have ended.
func Play(ctx context.Context, k int, play func(context.Context, int) (ranking.Entry, error)) []ranking.Entry {
	var mu sync.Mutex
	var entries []ranking.Entry
	var attempts sync.WaitGroup
	for i := range k {
		attempts.Go(func() {
			e, err := play(ctx, i)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && e.StopReason != agent.Interrupted && readable(e) {
				entries = append(entries, e)
			}
		})
	}
	attempts.Wait()
	slices.SortFunc(entries, func(a, b ranking.Entry) int { return cmp.Compare(a.ID, b.ID) })
	return entries
}

// readable reports whether the patch can be read, or there is none.
func readable(e ranking.Entry) bool {
	_, err := e.ReadPatch()
	return err == nil
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
