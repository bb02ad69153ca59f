package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

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

// charts are the sections of a run's page.
//
//go:embed charts.yaml
var charts []byte

// chart is one chart of the page. It has a line for each metric below Family, if that is set, and the Lines; Suites
// stands for the charts of all validation sets.
type chart struct {
	Title                string
	Zero, Share, Stacked bool
	Family               string
	Suites               bool
	Lines                []struct {
		Label, Metric               string
		Color                       int
		Faint, Dots, Smooth, Spread bool
	}
}

// sections draws the charts.
func (c curves) sections() (out []section, err error) {
	var all []struct {
		Heading string
		Charts  []chart
	}
	if err := yaml.Unmarshal(charts, &all); err != nil {
		return nil, fmt.Errorf("charts of the page: %w", err)
	}
	for _, s := range all {
		var drawn []plot.Chart
		for _, one := range s.Charts {
			if one.Suites {
				drawn = append(drawn, c.validations()...)
			} else {
				drawn = append(drawn, c.chart(one))
			}
		}
		out = append(out, section{s.Heading, plot.Draw(drawn...)})
	}
	return out, nil
}

func (c curves) chart(one chart) plot.Chart {
	out := plot.Chart{Title: one.Title, Zero: one.Zero, Share: one.Share, Stacked: one.Stacked}
	if one.Family != "" {
		out.Lines = c.family(one.Family)
	}
	for _, l := range one.Lines {
		line := plot.Line{Label: l.Label, Points: c[l.Metric], Color: l.Color, Faint: l.Faint, Dots: l.Dots}
		if l.Smooth {
			line.Points = smooth(line.Points)
		}
		if l.Spread {
			line.Points, line.Low, line.High = c[l.Metric+"/mean"], c[l.Metric+"/p10"], c[l.Metric+"/p90"]
		}
		out.Lines = append(out.Lines, line)
	}
	return out
}

func (c curves) validations() (out []plot.Chart) {
	for _, suite := range c.suites() {
		out = append(out, c.validation(suite), plot.Chart{
			Title: named("How validation rollouts end", suite), Zero: true, Lines: c.family("val/" + suite + "stop/"),
		})
	}
	return out
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

// table lists every metric there is, in the order of the catalogue.
func (c curves) table() []tableRow {
	var rows []tableRow
	for name, s := range c {
		low, high := math.Inf(1), math.Inf(-1)
		for _, p := range s {
			low, high = min(low, p.Y), max(high, p.Y)
		}
		d := metrics.Describe(name)
		rows = append(rows, tableRow{
			Name: name, Help: d.Help, Last: plot.Number(s[len(s)-1].Y), Min: plot.Number(low), Max: plot.Number(high),
			Spark: plot.Spark(s), place: d.Place,
		})
	}
	slices.SortFunc(rows, func(a, b tableRow) int {
		return cmp.Or(a.place-b.place, strings.Compare(a.Name, b.Name))
	})
	return rows
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
