package report

import (
	"cmp"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	_ "embed"

	"deepswe/agent/cli/plot"
	"deepswe/rl/metrics"
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

// page is what the template fills in.
type page struct {
	Title    string
	Style    template.CSS
	Subtitle string
	Cards    []card
	Warnings []string
	Sections []section
	Table    []tableRow
	Compare  []compareRow
	Note     template.HTML
	Config   string
}

// card is a number at the top of the page.
type card struct{ Name, Value, Detail string }

// section is some charts under a heading.
type section struct {
	Heading string
	Charts  []template.HTML
}

// tableRow is one metric in the table at the end.
type tableRow struct {
	Name, Help, Last, Min, Max string
	Spark                      template.HTML
}

func (p page) write(w io.Writer) error {
	t, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("page template: %w", err)
	}
	p.Style = template.CSS(plot.Style)
	return t.Execute(w, p)
}

// WriteRun writes the page of a run. It may be under way, or have no points at all.
func WriteRun(w io.Writer, r Run) error {
	s := collect(r.Points)
	p := page{
		Title:    r.Name,
		Subtitle: fmt.Sprintf("%s · seed %d · step %d of %d", r.Algorithm, r.Seed, s.lastStep(), r.Steps),
		Cards:    s.cards(), Warnings: r.Warnings, Config: r.Config,
		Sections: []section{
			{"Learning", s.learning()}, {"Groups and rollouts", s.rollouts()}, {"Update", s.update()}, {"Time", s.time()},
		},
		Table: s.table(),
	}
	return p.write(w)
}

// curves are the values of each metric by step.
type curves map[string]plot.Series

// maxDrawable is above every value of a metric that means something, and far below where spans overflow.
const maxDrawable = 1e100

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

func (c curves) cards() []card {
	var out []card
	put := func(title, name, detail string, format func(float64) string) {
		if v, ok := c.last(name); ok {
			out = append(out, card{title, format(v), detail})
		}
	}
	interval := ""
	if low, ok := c.last("val/pass@1_low"); ok {
		high, _ := c.last("val/pass@1_high")
		interval = fmt.Sprintf("95%% interval %s to %s", percent(low), percent(high))
	}
	put("Validation pass@1", "val/pass@1", interval, percent)
	if s := c["val/pass@1"]; len(s) > 1 {
		out = append(out, card{"Before training", percent(s[0].Y), "validation pass@1"})
	}
	put("Random moves", "val/random", "on the same tasks", percent)
	put("Reward", "reward/mean", "mean of the last step", plot.Number)
	put("Entropy", "entropy/mean", "nats per token", plot.Number)
	total := 0.0
	for _, p := range c["time/step"] {
		total += p.Y
	}
	if total > 0 {
		out = append(out, card{"Time", Duration(total), "in steps"})
	}
	return out
}

func (c curves) learning() []template.HTML {
	reward := plot.Chart{Title: "Mean reward of the training rollouts", Lines: []plot.Line{
		{Label: "each step", Points: c["reward/mean"], Color: 0, Faint: true},
		{Label: "smoothed", Points: smooth(c["reward/mean"]), Color: 0},
	}}
	val := plot.Chart{Title: "Validation pass@1, with its 95% interval", Zero: true, Lines: []plot.Line{
		{Label: "pass@1", Points: c["val/pass@1"], Color: 2, Dots: true, Low: c["val/pass@1_low"],
			High: c["val/pass@1_high"]},
		{Label: "pass@k", Points: c["val/pass@k"], Color: 3, Dots: true},
	}}
	if v, ok := c.last("val/random"); ok {
		val.Marks = []plot.Mark{{Label: "random moves", Y: v}}
	}
	return plot.Draw(reward, val)
}

func (c curves) rollouts() []template.HTML {
	return plot.Draw(
		plot.Chart{Title: "Groups by how many of their rollouts solve the task", Stacked: true, Lines: []plot.Line{
			{Label: "none", Points: c["groups/solve_none"], Color: 1},
			{Label: "some", Points: c["groups/solve_partial"], Color: 2},
			{Label: "all", Points: c["groups/solve_all"], Color: 0},
		}},
		plot.Chart{Title: "Groups that teach something", Zero: true, Lines: []plot.Line{
			{Label: "effective", Points: c["groups/effective"], Color: 2}, {Label: "of", Points: c["groups/total"], Color: 5},
		}},
		plot.Chart{Title: "How rollouts end, in fractions", Zero: true, Lines: c.family("stop/")},
		plot.Chart{Title: "Masked for how they ended, in fractions", Zero: true, Lines: c.family("masked/")},
		c.single("Turns of a rollout", "mean", "turns/mean", 0),
		plot.Chart{Title: "Tokens of a rollout", Zero: true, Lines: []plot.Line{
			{Label: "environment", Points: c["tokens/environment/mean"], Color: 5},
			{Label: "policy", Points: c["tokens/sampled/mean"], Color: 0},
		}},
		c.single("Tokens of a reply before its action", "mean", "tokens/think_per_turn", 3),
		plot.Chart{Title: "Age of the rollouts, in policy versions", Zero: true, Lines: []plot.Line{
			{Label: "mean", Points: c["staleness/mean"], Color: 0}, {Label: "max", Points: c["staleness/max"], Color: 1},
		}},
	)
}

func (c curves) update() []template.HTML {
	return plot.Draw(
		c.single("Entropy at the trained tokens, in nats", "mean", "entropy/mean", 0),
		c.single("Norm of the gradient, before clipping", "mean", "optim/grad_norm", 0),
		plot.Chart{Title: "Fraction of the tokens that were clipped", Zero: true, Lines: []plot.Line{
			{Label: "above, with a positive advantage", Points: c["loss/clip_fraction_high"], Color: 2},
			{Label: "below, with a negative one", Points: c["loss/clip_fraction_low"], Color: 1},
		}},
		c.single("KL(old policy, new policy), estimate k3", "k3", "loss/kl_k3", 0),
		c.single("KL(sampler, trainer), estimate k3", "k3", "mismatch/kl_k3", 1),
		plot.Chart{Title: "Extremes of the probability ratio", Lines: []plot.Line{
			{Label: "largest", Points: c["loss/ratio_max"], Color: 2},
			{Label: "smallest", Points: c["loss/ratio_min"], Color: 1},
		}},
		c.single("Size of the advantages", "mean", "advantage/abs_mean", 0),
		c.single("Learning rate", "learning rate", "optim/lr", 0),
	)
}

func (c curves) time() []template.HTML {
	return plot.Draw(
		plot.Chart{Title: "Where a step's time goes, in seconds", Stacked: true, Lines: []plot.Line{
			{Label: "rollouts", Points: c["time/rollouts"], Color: 0}, {Label: "rows", Points: c["time/rows"], Color: 4},
			{Label: "update", Points: c["time/update"], Color: 2}, {Label: "publish", Points: c["time/publish"], Color: 3},
		}},
		plot.Chart{Title: "Where a rollout's time goes, in seconds", Stacked: true, Lines: []plot.Line{
			{Label: "model", Points: c["time/model"], Color: 0}, {Label: "environment", Points: c["time/environment"], Color: 2},
			{Label: "reward", Points: c["time/reward"], Color: 3}, {Label: "waiting", Points: c["time/queue"], Color: 1},
		}},
		c.single("Fraction of the workers' time without a rollout", "idle", "workers/idle", 1),
	)
}

// single is a chart of one metric.
func (c curves) single(title, label, metric string, color int) plot.Chart {
	return plot.Chart{Title: title, Zero: true, Lines: []plot.Line{{Label: label, Points: c[metric], Color: color}}}
}

// family are the curves below a name, without those that are zero throughout.
func (c curves) family(prefix string) []plot.Line {
	var out []plot.Line
	for _, name := range slices.Sorted(maps.Keys(c)) {
		label, ok := strings.CutPrefix(name, prefix)
		if !ok || !slices.ContainsFunc(c[name], func(p plot.Point) bool { return p.Y != 0 }) {
			continue
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

// byCatalogue orders names as the catalogue has them, what it does not know last.
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

func percent(v float64) string { return fmt.Sprintf("%.1f%%", 100*v) }

// Duration writes seconds as 9.5s, 3m20s or 1h02m.
func Duration(seconds float64) string {
	switch d := time.Duration(seconds * float64(time.Second)); {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	default:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
}
