package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/rl/report"
	"deepswe/rl/train"
	"deepswe/rl/train/config"
	"deepswe/rl/train/record"
)

// runsDir is the directory of an ablation's runs: runs/<variant>/seed-<seed>.
const runsDir = "runs"

// Ablate makes all runs of an ablation, seed by seed, so that the variants can be compared at any time. Each run
// has its own directory. A resumed ablation does not repeat finished runs.
func Ablate(ctx context.Context, c config.Config, o train.Options) (results []train.Result, err error) {
	dir, text, err := o.OpenDir(c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	a := c.Ablation
	workers := max(1, runtime.GOMAXPROCS(0)/a.Parallel)
	var mu sync.Mutex
	all := make([]train.Result, len(a.Variants)*len(a.Seeds)) // ordered by variant
	begun := func() []train.Result {
		return slices.DeleteFunc(slices.Clone(all), func(r train.Result) bool { return r.Run == "" })
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(a.Parallel)
	for s, seed := range a.Seeds {
		for v, variant := range a.Variants {
			g.Go(func() error {
				if ctx.Err() != nil {
					return fmt.Errorf("%w: %w", run.ErrInterrupted, context.Cause(ctx))
				}
				r, err := startMember(ctx, c, variant, seed, o, dir.Path(runsDir), workers)
				mu.Lock()
				defer mu.Unlock()
				all[v*len(a.Seeds)+s] = r
				return errors.Join(err, writeComparison(dir, c, text, begun()))
			})
		}
	}
	err = g.Wait()
	return begun(), err
}

// startMember makes one run of an ablation.
func startMember(
	ctx context.Context, c config.Config, v config.Variant, seed uint64, o train.Options, dir string, workers int,
) (train.Result, error) {
	cfg := v.Config
	cfg.Seed = seed + v.SeedOffset
	name := "seed-" + strconv.FormatUint(seed, 10)
	o.Run, o.Dir, o.Processors = v.Name+" "+name, filepath.Join(dir, config.Slug(v.Name), name), workers
	cfg.Name = c.Name + " " + o.Run
	o.Resume = o.Resume && run.Exists(o.Dir)
	r, err := train.Start(ctx, cfg, o)
	r.Variant, r.Seed = v.Name, seed
	if err != nil {
		return r, fmt.Errorf("%s: %w", r.Run, err)
	}
	return r, nil
}

func writeComparison(dir *run.Dir, c config.Config, text string, results []train.Result) error {
	page := report.Ablation{
		Name: c.Name, Steps: c.Steps, Seeds: len(c.Ablation.Seeds), Config: text,
		Variants: variants(c.Ablation, results), Note: c.Ablation.Note,
	}
	return disk.WriteStream(dir.Path(record.ReportFile), page.Page().Write)
}

// variants gathers the results of each variant.
func variants(a *config.Ablation, results []train.Result) []report.Variant {
	out := make([]report.Variant, len(a.Variants))
	for i, v := range a.Variants {
		out[i] = report.Variant{Name: v.Name, Algorithm: v.Config.Algorithm.Preset}
		for _, r := range results {
			if r.Variant == v.Name {
				out[i].Runs = append(out[i].Runs, report.SeedRun{Seed: r.Seed, Points: r.Points})
			}
		}
	}
	return out
}

// Compare returns a table of the variants for a terminal.
func Compare(a *config.Ablation, results []train.Result) string {
	return report.CompareText(variants(a, results))
}
