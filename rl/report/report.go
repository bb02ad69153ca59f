package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"

	"deepswe/rl/metrics"
	"deepswe/verify/plot"
)

// Run is one training run.
type Run struct {
	Name      string
	Algorithm string
	Seed      uint64
	// Steps is how many there are to be.
	Steps int
	// Config is the resolved configuration.
	Config   string
	Warnings []string
	Points   []metrics.Point
}

//go:embed page.html
var pageTemplate string

// page is the data of the template.
type page struct {
	Title    string
	Style    template.CSS
	Subtitle string
	Cards    []plot.Card
	Warnings []string
	Sections []section
	Table    []tableRow
	Compare  []compareRow
	// CompareTitle is the title of Compare, Notes are the text below it.
	CompareTitle string
	Notes        []template.HTML
	Config       string
}

// section is some charts under a heading.
type section struct {
	Heading string
	Charts  []template.HTML
}

// tableRow is one metric in the table at the end.
type tableRow struct {
	Name, Help, Last, Min, Max string
	Spark                      template.HTML
	place                      int // in the catalogue
}

func (p page) styled() plot.Page {
	p.Style = template.CSS(plot.Style)
	return plot.Page{Template: pageTemplate, Data: p}
}

// Page returns the page of the run, which may be live or have no points at all.
func (r Run) Page() plot.Page {
	s := collect(r.Points)
	subtitle := ""
	if r.Steps > 0 {
		subtitle = fmt.Sprintf("%s · seed %d · step %d of %d", r.Algorithm, r.Seed, s.lastStep(), r.Steps)
	}
	return plot.Page{Template: pageTemplate, Data: runPage{page{
		Title: r.Name, Subtitle: subtitle, Cards: s.cards(), Warnings: r.Warnings, Config: r.Config, Table: s.table(),
		Style: template.CSS(plot.Style),
	}, s}}
}

// runPage is the page of a run, whose charts are drawn when they are written.
type runPage struct {
	page
	curves curves
}

// Sections are the charts of the run.
func (p runPage) Sections() ([]section, error) { return p.curves.sections() }

// maxDrawable is above every value of a metric that means something, and far below where spans overflow.
const maxDrawable = 1e100

func (c curves) cards() []plot.Card {
	var out []plot.Card
	put := func(title, name, detail string, format func(float64) string) {
		if v, ok := c.last(name); ok {
			out = append(out, plot.Card{Name: title, Value: format(v), Detail: detail})
		}
	}
	interval := ""
	if low, ok := c.last("val/pass@1_low"); ok {
		high, _ := c.last("val/pass@1_high")
		interval = fmt.Sprintf("95%% interval %s to %s", plot.Percent(low), plot.Percent(high))
	}
	put("Validation pass@1", "val/pass@1", interval, plot.Percent)
	if s := c["val/pass@1"]; len(s) > 1 {
		out = append(out, plot.Card{Name: "Before training", Value: plot.Percent(s[0].Y), Detail: "validation pass@1"})
	}
	put("Validation loss", "val/loss", "nats per token, on examples held out", plot.Number)
	put("Loss", "sft/loss", "nats per token, last update", plot.Number)
	put("Random moves", "val/random", "on the same tasks", plot.Percent)
	put("Reward", "reward/mean", "mean of the last step", plot.Number)
	put("Entropy", "entropy/mean", "nats per token", plot.Number)
	total := 0.0
	for _, p := range c["time/step"] {
		total += p.Y
	}
	if total > 0 {
		out = append(out, plot.Card{Name: "Time", Value: plot.Duration(total), Detail: "in steps"})
	}
	return out
}

// suites returns the names of the validation sets, which metrics have after val/; "" is the one without a name.
func (c curves) suites() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if rest, ok := strings.CutPrefix(name, "val/"); ok && strings.HasSuffix(rest, "pass@1") {
			if suite := strings.TrimSuffix(rest, "pass@1"); suite == "" || strings.HasSuffix(suite, "/") {
				out = append(out, suite)
			}
		}
	}
	return out
}

func (c curves) validation(suite string) plot.Chart {
	at := "val/" + suite
	val := plot.Chart{Title: named("Validation pass@1, with its 95% interval", suite), Zero: true, Share: true,
		Lines: []plot.Line{{Label: "pass@1", Points: c[at+"pass@1"], Color: 2, Dots: true, Low: c[at+"pass@1_low"],
			High: c[at+"pass@1_high"]}}}
	if s := c[at+"submitted_pass@1"]; !slices.Equal(s, c[at+"pass@1"]) {
		val.Lines = append(val.Lines, plot.Line{Label: "solved and submitted", Points: s, Color: 1, Dots: true})
	}
	for _, k := range c.passesAt(at) {
		name := fmt.Sprintf("pass@%d", k)
		val.Lines = append(val.Lines, plot.Line{Label: name, Points: c[at+name], Color: len(val.Lines) + 2, Dots: true})
	}
	if v, ok := c.last("val/random"); ok && suite == "" {
		val.Marks = []plot.Mark{{Label: "random moves", Y: v}}
	}
	return val
}

// passesAt returns every k above 1 with a pass@k below prefix, in ascending order.
func (c curves) passesAt(prefix string) []int {
	var ks []int
	for name := range c {
		if after, ok := strings.CutPrefix(name, prefix+"pass@"); ok {
			if k, err := strconv.Atoi(after); err == nil && k > 1 {
				ks = append(ks, k)
			}
		}
	}
	slices.Sort(ks)
	return ks
}

func named(title, suite string) string {
	if suite == "" {
		return title
	}
	return strings.TrimSuffix(suite, "/") + ": " + title
}
