package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/rl/report"
)

// runsDir holds the runs of an ablation: runs/<variant>/seed-<seed>.
const runsDir = "runs"

// startAblation makes all runs of an ablation, seed by seed, so that what there is can be compared at any time. Each is a
// run directory of its own; those that are finished are not made again.
func startAblation(ctx context.Context, c Config, o Options) (results []Result, err error) {
	dir, err := openDir(o.Dir, c, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	a := c.Ablation
	workers := max(1, runtime.GOMAXPROCS(0)/a.Parallel)
	var mu sync.Mutex
	at := map[[2]int]Result{}
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
				at[[2]int{v, s}] = r
				return errors.Join(err, writeComparison(dir, c, collectResults(a, at)))
			})
		}
	}
	err = g.Wait()
	return collectResults(a, at), err
}

// startMember makes one run of an ablation.
func startMember(ctx context.Context, c Config, v Variant, seed uint64, o Options, dir string, workers int) (Result, error) {
	cfg := v.Config
	cfg.Seed = seed
	name := "seed-" + strconv.FormatUint(seed, 10)
	r := Result{Run: v.Name + " " + name, Variant: v.Name, Seed: seed, Dir: filepath.Join(dir, slug(v.Name), name)}
	cfg.Name = c.Name + " " + r.Run
	o.Resume = o.Resume && run.Exists(r.Dir)
	r, err := startRun(ctx, cfg, o, r, workers)
	if err != nil {
		return r, fmt.Errorf("%s: %w", r.Run, err)
	}
	return r, nil
}

// collectResults lists the results there are, variant by variant.
func collectResults(a *Ablation, at map[[2]int]Result) []Result {
	var out []Result
	for v := range a.Variants {
		for s := range a.Seeds {
			if r, ok := at[[2]int{v, s}]; ok {
				out = append(out, r)
			}
		}
	}
	return out
}

func writeComparison(dir *run.Dir, c Config, results []Result) error {
	text, err := c.YAML()
	if err != nil {
		return err
	}
	page := report.Ablation{Name: c.Name, Steps: c.Steps, Seeds: len(c.Ablation.Seeds), Config: string(text)}
	for _, v := range c.Ablation.Variants {
		variant := report.Variant{Name: v.Name, Algorithm: v.Config.Algorithm.Preset}
		for _, r := range results {
			if r.Variant == v.Name {
				variant.Runs = append(variant.Runs, report.SeedRun{Seed: r.Seed, Points: r.Points})
			}
		}
		page.Variants = append(page.Variants, variant)
	}
	var b bytes.Buffer
	if err := report.WriteAblation(&b, page); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return disk.WriteFile(dir.Path(ReportFile), b.Bytes())
}

// slug is a variant's name as a directory.
func slug(name string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '(' || r == ')' || r == ',' || r == '=' {
			return '-'
		}
		return r
	}, strings.ToLower(name))
}
