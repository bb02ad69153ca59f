package record

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"deepswe/rl/metrics"
	"deepswe/verify/plot"
)

// overviewSteps is the number of steps that an overview lists, the last ones.
const overviewSteps = 20

// Overview writes the curves of a run, and a table of its last steps.
func Overview(w io.Writer, dir string) error {
	points, err := metrics.ReadJSONL(filepath.Join(dir, MetricsFile))
	if err != nil || len(points) == 0 {
		return err
	}
	byStep := metrics.ByStep(points)
	steps := slices.Sorted(maps.Keys(byStep))
	if err := overviewCurves(w, byStep, steps); err != nil {
		return err
	}
	recent := steps[max(0, len(steps)-overviewSteps):]
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	columns := columnsOf(points)
	fmt.Fprint(t, "STEP")
	for _, c := range columns {
		fmt.Fprint(t, "\t"+c.title)
	}
	fmt.Fprintln(t)
	for _, s := range steps {
		v := byStep[s]
		_, validated := v["val/pass@1"]
		if _, held := v["val/loss"]; s < recent[0] && !validated && !held {
			continue
		}
		fmt.Fprint(t, s)
		for _, c := range columns {
			cell := ""
			if x, ok := v[c.metric]; ok {
				cell = fmt.Sprintf(c.format, x)
			}
			fmt.Fprint(t, "\t"+cell)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// overviewCurves draws the curves that say how a run goes.
func overviewCurves(w io.Writer, byStep map[int]map[string]float64, steps []int) error {
	const wide = 50
	for _, c := range []struct{ name, metric string }{
		{"reward", "reward/mean"}, {"validation", "val/pass@1"}, {"loss", "sft/loss"}, {"held out", "val/loss"},
	} {
		var values []float64
		for _, s := range steps {
			if v, ok := byStep[s][c.metric]; ok {
				values = append(values, v)
			}
		}
		if len(values) < 2 {
			continue
		}
		if _, err := fmt.Fprintf(w, "%-10s  %s  %.3f to %.3f\n", c.name, plot.Sparkline(values, wide), values[0],
			values[len(values)-1]); err != nil {
			return err
		}
	}
	return nil
}

// column is a metric in an overview.
type column struct{ title, metric, format string }

// columnsOf returns the columns for which a run has values.
func columnsOf(points []metrics.Point) []column {
	if slices.ContainsFunc(points, func(p metrics.Point) bool {
		_, ok := p.Values["sft/loss"]
		return ok
	}) {
		return []column{
			{"LOSS", "sft/loss", "%.4f"}, {"HELD OUT", "val/loss", "%.4f"}, {"EPOCH", "sft/epoch", "%.2f"},
			{"TOKENS", "tokens/trained", "%.0f"}, {"GRADIENT", "optim/grad_norm", "%.2g"}, {"RATE", "optim/lr", "%.2g"},
			{"SECONDS", "time/step", "%.1f"},
		}
	}
	return []column{
		{"REWARD", "reward/mean", "%.3f"}, {"VALIDATION", "val/pass@1", "%.3f"}, {"NONE", "groups/solve_none", "%.0f"},
		{"SOME", "groups/solve_partial", "%.0f"}, {"ALL", "groups/solve_all", "%.0f"}, {"TURNS", "turns/mean", "%.1f"},
		{"ENTROPY", "entropy/mean", "%.2f"}, {"SECONDS", "time/step", "%.1f"},
	}
}
