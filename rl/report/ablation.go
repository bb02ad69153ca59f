package report

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"deepswe/agent/cli/plot"
	"deepswe/rl/metrics"
)

// Ablation compares variants of one configuration over seeds.
type Ablation struct {
	Name   string
	Config string
	// Steps of each run, and Seeds of each variant, when all are done.
	Steps    int
	Seeds    int
	Variants []Variant
}

// Variant has a run for each seed that has begun. The first two variants are the ones to compare; the others differ
// from the first in one thing.
type Variant struct {
	Name      string
	Algorithm string
	Runs      []SeedRun
}

// SeedRun is what a run with a seed recorded.
type SeedRun struct {
	Seed   uint64
	Points []metrics.Point
}

// compareRow is a line of the comparison.
type compareRow struct {
	Name, Algorithm     string
	Runs                int
	Final, Area, Change string
}

// WriteAblation writes the page of an ablation, whatever part of it is done.
func WriteAblation(w io.Writer, a Ablation) error {
	done := 0
	for _, v := range a.Variants {
		done += len(v.Runs)
	}
	p := page{
		Title: a.Name,
		Subtitle: fmt.Sprintf("ablation · %d variants · %d of %d runs · %d steps each", len(a.Variants), done,
			len(a.Variants)*a.Seeds, a.Steps),
		Config:  a.Config,
		Compare: compare(a.Variants),
		Note: template.HTML(`Curves are means over the seeds. Bands and intervals are 95% Student t intervals of that mean:
with few seeds they are wide, and two that overlap decide nothing. <em>Final</em> is the validation pass@1 after the
last step, <em>area</em> its mean over all validations of a run, which also counts how soon it was learned.
<em>Difference</em> is to the first variant, in area, paired by seed.`),
	}
	main := a.Variants[:min(2, len(a.Variants))]
	p.Sections = append(p.Sections, section{"Validation and reward", plot.Draw(
		chartOf("Validation pass@1", "val/pass@1", main, true),
		chartOf("Mean reward of the training rollouts", "reward/mean", main, false),
	)})
	if len(a.Variants) > 2 {
		var charts []plot.Chart
		for i, v := range a.Variants[2:] {
			c := chartOf(v.Name+": validation pass@1", "val/pass@1", []Variant{a.Variants[0], v}, true)
			if len(c.Lines) == 2 {
				c.Lines[1].Color = 1 + i%(plot.Colors-1)
			}
			charts = append(charts, c)
		}
		p.Sections = append(p.Sections, section{"One switch at a time, against " + a.Variants[0].Name, plot.Draw(charts...)})
	}
	p.Sections = append(p.Sections, section{"Diagnostics", plot.Draw(
		chartOf("Entropy at the trained tokens, in nats", "entropy/mean", main, false),
		chartOf("Tokens of a reply before its action", "tokens/think_per_turn", main, false),
		chartOf("Norm of the gradient, before clipping", "optim/grad_norm", main, false),
		chartOf("Fraction of the tokens that were clipped", "loss/clip_fraction", main, false),
		chartOf("Effective groups", "groups/effective", main, false),
		chartOf("Turns of a rollout", "turns/mean", main, false),
	)})
	return p.write(w)
}

// chartOf draws one metric of some variants, each as mean and band.
func chartOf(title, metric string, variants []Variant, dots bool) plot.Chart {
	c := plot.Chart{Title: title, Zero: true}
	for i, v := range variants {
		mean, low, high := v.band(metric)
		c.Lines = append(c.Lines, plot.Line{Label: v.Name, Points: mean, Low: low, High: high, Color: 2 * i, Dots: dots})
	}
	if metric == "val/pass@1" {
		for _, v := range variants {
			for _, run := range v.Runs {
				if r, ok := collect(run.Points).last("val/random"); ok {
					c.Marks = []plot.Mark{{Label: "random moves", Y: r}}
				}
			}
		}
	}
	return c
}

// band is a metric's mean over the runs and its interval, at every step that all runs have.
func (v Variant) band(metric string) (mean, low, high plot.Series) {
	values := map[float64][]float64{}
	for _, run := range v.Runs {
		for _, p := range collect(run.Points)[metric] {
			values[p.X] = append(values[p.X], p.Y)
		}
	}
	for x, ys := range values {
		if len(ys) < len(v.Runs) {
			continue
		}
		m, half := meanInterval(ys)
		mean = append(mean, plot.Point{X: x, Y: m})
		low, high = append(low, plot.Point{X: x, Y: m - half}), append(high, plot.Point{X: x, Y: m + half})
	}
	for _, s := range []plot.Series{mean, low, high} {
		slices.SortFunc(s, func(a, b plot.Point) int { return int(a.X - b.X) })
	}
	return mean, low, high
}

// compare is the table of the variants.
func compare(variants []Variant) []compareRow {
	var rows []compareRow
	base := map[uint64]float64{}
	for i, v := range variants {
		row := compareRow{Name: v.Name, Algorithm: v.Algorithm, Runs: len(v.Runs)}
		var finals, areas, differences []float64
		for _, run := range v.Runs {
			s := collect(run.Points)["val/pass@1"]
			if len(s) == 0 {
				continue
			}
			area := 0.0
			for _, p := range s {
				area += p.Y
			}
			area /= float64(len(s))
			finals, areas = append(finals, s[len(s)-1].Y), append(areas, area)
			if i == 0 {
				base[run.Seed] = area
			} else if b, ok := base[run.Seed]; ok {
				differences = append(differences, area-b)
			}
		}
		row.Final, row.Area, row.Change = interval("%.3f", finals), interval("%.3f", areas), interval("%+.3f", differences)
		rows = append(rows, row)
	}
	return rows
}

// CompareText is the comparison for a terminal.
func CompareText(variants []Variant) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "VARIANT\tRUNS\tFINAL PASS@1\tMEAN PASS@1\tDIFFERENCE")
	for _, r := range compare(variants) {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", r.Name, r.Runs, r.Final, r.Area, r.Change)
	}
	_ = w.Flush() // a strings.Builder does not fail
	return b.String()
}

// interval writes the mean of some values in a format, and how far it may be off.
func interval(format string, x []float64) string {
	switch m, half := meanInterval(x); len(x) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(format, m)
	default:
		return fmt.Sprintf(format+" ± %.3f", m, half)
	}
}

// meanInterval is the mean and half the width of its 95% interval by Student's t. Of one value nothing is known but it.
func meanInterval(x []float64) (mean, half float64) {
	for _, v := range x {
		mean += v
	}
	mean /= float64(max(1, len(x)))
	if len(x) < 2 {
		return mean, 0
	}
	var squares float64
	for _, v := range x {
		squares += (v - mean) * (v - mean)
	}
	n := float64(len(x))
	return mean, student(len(x)-1) * math.Sqrt(squares/(n-1)/n)
}

// student is the 97.5% quantile of Student's t distribution.
func student(freedom int) float64 {
	table := []float64{
		12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
		2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
	}
	if freedom <= len(table) {
		return table[freedom-1]
	}
	return 1.96 + 2.4/float64(freedom)
}
