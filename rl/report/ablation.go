package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"deepswe/rl/metrics"
	"deepswe/verify/plot"
)

// Ablation compares variants of one configuration over seeds.
type Ablation struct {
	Name   string
	Config string
	// Steps is how many steps each run has and Seeds how many runs each variant has, once all have finished.
	Steps    int
	Seeds    int
	Variants []Variant
	// Note says what the comparison can show and what it cannot, one paragraph a line.
	Note string
}

// Variant has a run for each seed that has begun. The first two variants are the ones to compare; the others differ
// from the first in one thing.
type Variant struct {
	Name      string
	Algorithm string
	Runs      []SeedRun
}

// SeedRun is the record of a run with one seed.
type SeedRun struct {
	Seed   uint64
	Points []metrics.Point
}

// compareRow is a line of the comparison. Final, Area and Change are of the metric that measured names.
type compareRow struct {
	Name, Algorithm     string
	Runs                int
	Final, Area, Change string
	// Tail is the training reward at the end; Submitted and Turns are those of the last validation.
	Tail, Submitted, Turns string
}

// measured returns the metric by which variants are compared: the validation or, without one, the training reward.
func measured(variants []Variant) (metric, title string) {
	if anyPoint(variants, func(p metrics.Point) bool { _, ok := p.Values["val/pass@1"]; return ok }) {
		return "val/pass@1", "Validation pass@1"
	}
	return "reward/mean", "Mean reward of the training rollouts"
}

// Page returns the page of an ablation, whatever part of it is done.
func (a Ablation) Page() plot.Page {
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
		Notes: append(lines(a.Note), template.HTML(`Curves are means over the seeds. Bands and intervals are 95% Student t
intervals of that mean: with few seeds they are wide, and two that overlap decide nothing; fewer than three have no
band. <em>Final</em> is the value after the last step, <em>area</em> the mean over all steps at which it was measured,
which also counts how soon it was learned. <em>Difference</em> is to the first variant, in area, paired by seed.
<em>Training</em> is the mean reward over the last fifth of the steps.`)),
	}
	metric, title := measured(a.Variants)
	p.CompareTitle = title + " by variant"
	main := a.Variants[:min(2, len(a.Variants))]
	charts := []plot.Chart{
		chartOf("Validation pass@1", "val/pass@1", main, true),
		chartOf("Mean reward of the training rollouts", "reward/mean", main, false),
	}
	if submits(a.Variants) {
		charts = append(charts, chartOf("Solved and submitted, in validation", submitted, a.Variants, true),
			chartOf("Turns of a validation rollout", "val/turns", a.Variants, true))
	}
	p.Sections = append(p.Sections, section{"Validation and reward", plot.Draw(charts...)})
	if len(a.Variants) > 2 {
		var charts []plot.Chart
		for i, v := range a.Variants[2:] {
			c := chartOf(v.Name+": "+strings.ToLower(title[:1])+title[1:], metric, []Variant{a.Variants[0], v}, true)
			if len(c.Lines) == 2 {
				c.Lines[1].Color = 1 + i%(plot.Colors-1)
			}
			charts = append(charts, c)
		}
		p.Sections = append(p.Sections, section{"One switch at a time, against " + a.Variants[0].Name, plot.Draw(charts...)})
	}
	p.Sections = append(p.Sections, section{"Diagnostics", plot.Draw(
		chartOf("Entropy of the trained tokens, in nats", "entropy/mean", main, false),
		chartOf("Tokens of a reply before its action", "tokens/think_per_turn", main, false),
		chartOf("Gradient norm before clipping", "optim/grad_norm", main, false),
		chartOf("Fraction of the tokens that were clipped", "loss/clip_fraction", main, false),
		chartOf("Effective groups", "groups/effective", main, false),
		chartOf("Turns of a rollout", "turns/mean", main, false),
	)})
	return p.styled()
}

// submitted is the metric of the share of validation rollouts that solve their task and submit.
const submitted = "val/submitted_pass@1"

// submits reports whether submissions are worth showing: whether any validation has solved rollouts that were not
// submitted.
func submits(variants []Variant) bool {
	return anyPoint(variants, func(p metrics.Point) bool {
		s, ok := p.Values[submitted]
		return ok && s != p.Values["val/pass@1"]
	})
}

func anyPoint(variants []Variant, is func(metrics.Point) bool) bool {
	return slices.ContainsFunc(variants, func(v Variant) bool {
		return slices.ContainsFunc(v.Runs, func(r SeedRun) bool { return slices.ContainsFunc(r.Points, is) })
	})
}

func lines(text string) []template.HTML {
	var out []template.HTML
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, template.HTML(template.HTMLEscapeString(line)))
		}
	}
	return out
}

// chartOf draws one metric of some variants, each as mean and band.
func chartOf(title, metric string, variants []Variant, dots bool) plot.Chart {
	c := plot.Chart{Title: title, Zero: true, Share: strings.Contains(metric, "pass@1")}
	for i, v := range variants {
		middle, low, high := v.band(metric)
		c.Lines = append(c.Lines, plot.Line{Label: v.Name, Points: middle, Low: low, High: high, Color: i, Dots: dots})
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

// Overlay draws a chart for each metric that tells how training goes, with all variants in it.
func Overlay(all []Variant) []template.HTML {
	return plot.Draw(
		chartOf("Validation pass@1", "val/pass@1", all, true),
		chartOf("Solved and submitted, in validation", submitted, all, true),
		chartOf("Mean reward of the training rollouts", "reward/mean", all, false),
		chartOf("Loss on examples, in nats per token", "sft/loss", all, false),
		chartOf("Turns of a rollout", "turns/mean", all, false),
		chartOf("Tokens that the policy wrote, per rollout", "tokens/sampled/mean", all, false),
		chartOf("Entropy of the trained tokens, in nats", "entropy/mean", all, false),
		chartOf("Gradient norm before clipping", "optim/grad_norm", all, false),
		chartOf("KL(sampler, trainer) with the same weights, estimate k3", "mismatch/kl_k3", all, false),
		chartOf("Time of a step, in seconds", "time/step", all, false),
	)
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
		m, half := MeanInterval(ys)
		mean = append(mean, plot.Point{X: x, Y: m})
		if len(ys) < 3 {
			continue // the interval would be wider than anything that is drawn in it
		}
		low, high = append(low, plot.Point{X: x, Y: m - half}), append(high, plot.Point{X: x, Y: m + half})
	}
	for _, s := range []plot.Series{mean, low, high} {
		slices.SortFunc(s, func(a, b plot.Point) int { return int(a.X - b.X) })
	}
	return mean, low, high
}

func compare(variants []Variant) []compareRow {
	var rows []compareRow
	metric, _ := measured(variants)
	base := map[uint64]float64{}
	for i, v := range variants {
		row := compareRow{Name: v.Name, Algorithm: v.Algorithm, Runs: len(v.Runs)}
		var finals, areas, differences, tails, done, turns []float64
		for _, run := range v.Runs {
			c := collect(run.Points)
			if reward := c["reward/mean"]; len(reward) > 0 {
				tails = append(tails, mean(reward[len(reward)*4/5:]))
			}
			if last, ok := c.last(submitted); ok {
				done = append(done, last)
			}
			if last, ok := c.last("val/turns"); ok {
				turns = append(turns, last)
			}
			s := c[metric]
			if len(s) == 0 {
				continue
			}
			area := mean(s)
			finals, areas = append(finals, s[len(s)-1].Y), append(areas, area)
			if i == 0 {
				base[run.Seed] = area
			} else if b, ok := base[run.Seed]; ok {
				differences = append(differences, area-b)
			}
		}
		row.Final, row.Area, row.Change = interval("%.3f", finals), interval("%.3f", areas), interval("%+.3f", differences)
		row.Tail, row.Submitted, row.Turns = interval("%.3f", tails), interval("%.3f", done), interval("%.2f", turns)
		rows = append(rows, row)
	}
	return rows
}

// mean returns the mean of a curve that has at least one point.
func mean(s plot.Series) float64 {
	sum := 0.0
	for _, p := range s {
		sum += p.Y
	}
	return sum / float64(len(s))
}

// CompareText is the comparison for a terminal.
func CompareText(variants []Variant) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	head, also := "FINAL PASS@1\tMEAN PASS@1", submits(variants)
	if metric, _ := measured(variants); metric != "val/pass@1" {
		head = "FINAL REWARD\tMEAN REWARD"
	}
	fmt.Fprintf(w, "VARIANT\tRUNS\t%s\tDIFFERENCE", head)
	if also {
		fmt.Fprint(w, "\tSUBMITTED\tTURNS")
	}
	fmt.Fprintln(w)
	for _, r := range compare(variants) {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s", r.Name, r.Runs, r.Final, r.Area, r.Change)
		if also {
			fmt.Fprintf(w, "\t%s\t%s", r.Submitted, r.Turns)
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // a strings.Builder does not fail
	return b.String()
}

// interval writes the mean of some values in a format, and how far it may be off.
func interval(format string, x []float64) string {
	switch m, half := MeanInterval(x); len(x) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(format, m)
	default:
		return fmt.Sprintf(format+" ± %.3f", m, half)
	}
}

// MeanInterval is the mean and half the width of its 95% interval by Student's t. With a single value, half is 0,
// because the interval is not known.
func MeanInterval(x []float64) (mean, half float64) {
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
