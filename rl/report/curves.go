package report

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"deepswe/rl/metrics"
	"deepswe/verify/plot"
)

// curves are the values of each metric by step.
type curves map[string]plot.Series

func collect(points []metrics.Point) curves {
	c := curves{}
	for _, p := range points {
		for name, v := range p.Values {
			if math.Abs(v) < maxDrawable { // false for NaN
				c[name] = append(c[name], plot.Point{X: float64(p.Step), Y: v})
			}
		}
	}
	return c
}

func (c curves) lastStep() int {
	last := 0.0
	for _, s := range c {
		last = max(last, s[len(s)-1].X)
	}
	return int(last)
}

// last is the newest value of a metric.
func (c curves) last(name string) (float64, bool) {
	if s := c[name]; len(s) > 0 {
		return s[len(s)-1].Y, true
	}
	return 0, false
}

// spread is a chart of a metric's mean, with its 10th to 90th percentile as a band.
func (c curves) spread(title, metric string, color int) plot.Chart {
	return plot.Chart{Title: title + ", with its 10th to 90th percentile", Zero: true, Lines: []plot.Line{{
		Label: "mean", Points: c[metric+"/mean"], Low: c[metric+"/p10"], High: c[metric+"/p90"], Color: color,
	}}}
}

// single is a chart of one metric.
func (c curves) single(title, label, metric string, color int) plot.Chart {
	return plot.Chart{Title: title, Zero: true, Lines: []plot.Line{{Label: label, Points: c[metric], Color: color}}}
}

// family returns the curves below a name, except for those that are always 0.
func (c curves) family(prefix string) []plot.Line {
	var out []plot.Line
	for _, name := range slices.Sorted(maps.Keys(c)) {
		label, ok := strings.CutPrefix(name, prefix)
		if !ok || !slices.ContainsFunc(c[name], func(p plot.Point) bool { return p.Y != 0 }) {
			continue
		}
		if label == "submitted" {
			label = "submitted, or ended by the task"
		}
		out = append(out, plot.Line{Label: strings.ReplaceAll(label, "_", " "), Points: c[name], Color: len(out)})
	}
	return out
}

// table lists every metric there is.
func (c curves) table() []tableRow {
	var rows []tableRow
	for _, name := range slices.SortedFunc(maps.Keys(c), byCatalogue()) {
		s := c[name]
		low, high := math.Inf(1), math.Inf(-1)
		for _, p := range s {
			low, high = min(low, p.Y), max(high, p.Y)
		}
		d := metrics.Describe(name)
		rows = append(rows, tableRow{
			Name: name, Help: d.Help, Last: plot.Number(s[len(s)-1].Y), Min: plot.Number(low), Max: plot.Number(high),
			Spark: plot.Spark(s),
		})
	}
	return rows
}

// byCatalogue sorts names in the order of the catalogue, unknown names last.
func byCatalogue() func(a, b string) int {
	rank := map[string]int{}
	all := metrics.Catalogue()
	for i, d := range all {
		rank[d.Name] = i + 1
	}
	place := func(name string) int {
		if r := rank[name]; r > 0 {
			return r
		}
		for i := len(name); i > 0; i-- {
			if name[i-1] == '/' && rank[name[:i]] > 0 {
				return rank[name[:i]]
			}
		}
		return len(all) + 1
	}
	return func(a, b string) int { return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a, b)) }
}

// smooth is an exponential mean with a window of about ten points, started without a bias.
func smooth(s plot.Series) plot.Series {
	const keep = 0.85
	out := make(plot.Series, len(s))
	sum, weight := 0.0, 0.0
	for i, p := range s {
		sum = keep*sum + (1-keep)*p.Y
		weight = keep*weight + (1 - keep)
		out[i] = plot.Point{X: p.X, Y: sum / weight}
	}
	return out
}
