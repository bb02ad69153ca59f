package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
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
}

// write writes a part of the page: page is all of it.
func (p page) write(w io.Writer, part string) error {
	t, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("page template: %w", err)
	}
	p.Style = template.CSS(plot.Style)
	return t.ExecuteTemplate(w, part, p)
}

// WriteRun writes the page of a run, which may be live or have no points at all.
func WriteRun(w io.Writer, r Run) error { return newPage(r).write(w, "page") }

// WriteBody writes the part of the page below its heading, for a page around it that has the style of package plot.
func WriteBody(w io.Writer, r Run) error { return newPage(r).write(w, "body") }

func newPage(r Run) page {
	s := collect(r.Points)
	return page{
		Title:    r.Name,
		Subtitle: fmt.Sprintf("%s · seed %d · step %d of %d", r.Algorithm, r.Seed, s.lastStep(), r.Steps),
		Cards:    s.cards(), Warnings: r.Warnings, Config: r.Config,
		Sections: []section{
			{"Learning", s.learning()}, {"Groups and rollouts", s.rollouts()}, {"Update", s.update()}, {"Time", s.time()},
		},
		Table: s.table(),
	}
}

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

func (c curves) learning() []template.HTML {
	charts := []plot.Chart{{Title: "Mean reward of the training rollouts", Lines: []plot.Line{
		{Label: "each step", Points: c["reward/mean"], Color: 0, Faint: true},
		{Label: "smoothed", Points: smooth(c["reward/mean"]), Color: 0},
	}}}
	charts = append(charts, plot.Chart{Title: "Cross-entropy of the examples, in nats for each token", Zero: true,
		Lines: []plot.Line{
			{Label: "each update", Points: c["sft/loss"], Color: 0, Faint: true},
			{Label: "smoothed", Points: smooth(c["sft/loss"]), Color: 0},
			{Label: "held out", Points: c["val/loss"], Color: 2, Dots: true},
		}})
	charts = append(charts, plot.Chart{Title: "Imitation before step 0: cross-entropy in nats for each token", Zero: true,
		Lines: []plot.Line{{Label: "each pass", Points: c["imitation/loss"], Color: 0, Dots: true}}})
	for _, suite := range c.suites() {
		charts = append(charts, c.validation(suite),
			plot.Chart{
				Title: named("How validation rollouts end", suite), Zero: true, Lines: c.family("val/" + suite + "stop/"),
			})
	}
	return plot.Draw(append(charts,
		plot.Chart{Title: "Mean reward by repository", Zero: true, Lines: c.family("reward/repo/")},
		plot.Chart{Title: "Tasks of the curriculum", Stacked: true, Lines: []plot.Line{
			{Label: "parked, never solved", Points: c["curriculum/parked_never"], Color: 1},
			{Label: "visited in every round", Points: c["curriculum/open"], Color: 2},
			{Label: "parked, always solved", Points: c["curriculum/parked_always"], Color: 0},
		}},
	)...)
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

// validation is the chart of a suite.
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

// named is a title with the suite that it is about.
func named(title, suite string) string {
	if suite == "" {
		return title
	}
	return strings.TrimSuffix(suite, "/") + ": " + title
}

func (c curves) rollouts() []template.HTML {
	return plot.Draw(
		plot.Chart{Title: "Groups by how many of their rollouts solve the task", Stacked: true, Lines: []plot.Line{
			{Label: "none", Points: c["groups/solve_none"], Color: 1},
			{Label: "some", Points: c["groups/solve_partial"], Color: 2},
			{Label: "all", Points: c["groups/solve_all"], Color: 0},
		}},
		plot.Chart{Title: "Groups that teach something", Zero: true, Lines: []plot.Line{
			{Label: "groups with an advantage", Points: c["groups/effective"], Color: 2},
			{Label: "all groups", Points: c["groups/total"], Color: 5},
		}},
		plot.Chart{Title: "How rollouts end, in fractions", Zero: true, Lines: c.family("stop/")},
		plot.Chart{Title: "Masked for how they ended, in fractions", Zero: true, Lines: c.family("masked/")},
		c.spread("Turns of a rollout", "turns", 0),
		plot.Chart{Title: "Tokens of a rollout", Zero: true, Lines: []plot.Line{
			{Label: "environment", Points: c["tokens/environment/mean"], Color: 5},
			{Label: "policy", Points: c["tokens/sampled/mean"], Color: 0},
		}},
		c.single("Tokens of a reply before its action", "mean", "tokens/think_per_turn", 3),
		plot.Chart{Title: "Tokens of a reply before its action, by tool", Zero: true, Lines: c.family("think/")},
		plot.Chart{Title: "Rollouts with tests of the agent, in fractions", Zero: true, Lines: []plot.Line{
			{Label: "ran tests", Points: c["tests/ran"], Color: 0}, {Label: "wrote tests", Points: c["tests/wrote"], Color: 2},
		}},
		plot.Chart{Title: "Errors, in fractions of replies or calls", Zero: true, Lines: c.family("errors/")},
		plot.Chart{Title: "Tries that failed, by what failed", Zero: true, Lines: c.family("retries/")},
		plot.Chart{Title: "Age of the rollouts, in policy versions", Zero: true, Lines: []plot.Line{
			{Label: "mean", Points: c["staleness/mean"], Color: 0}, {Label: "max", Points: c["staleness/max"], Color: 1},
		}},
	)
}

func (c curves) update() []template.HTML {
	return plot.Draw(
		c.single("Entropy of the trained tokens, in nats", "mean", "entropy/mean", 0),
		c.single("Gradient norm before clipping", "mean", "optim/grad_norm", 0),
		plot.Chart{Title: "Fraction of the tokens that were clipped", Zero: true, Lines: []plot.Line{
			{Label: "above, with a positive advantage", Points: c["loss/clip_fraction_high"], Color: 2},
			{Label: "below, with a negative one", Points: c["loss/clip_fraction_low"], Color: 1},
		}},
		plot.Chart{Title: "KL(before, after the update), estimate k3", Zero: true, Lines: []plot.Line{
			{Label: "after all of its steps", Points: c["update/kl_k3"], Color: 0},
			{Label: "mean over its passes", Points: c["loss/kl_k3"], Color: 5},
		}},
		plot.Chart{Title: "KL(sampler, trainer), estimate k3", Zero: true, Lines: []plot.Line{
			{Label: "with the same weights", Points: c["mismatch/kl_k3"], Color: 1},
			{Label: "with those of its time", Points: c["off_policy/kl_k3"], Color: 5},
		}},
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
			{Label: "other", Points: c["time/other"], Color: 5},
		}},
		plot.Chart{Title: "Who works and who waits, in fractions of the time", Zero: true, Share: true, Lines: []plot.Line{
			{Label: "workers busy", Points: c["workers/busy"], Color: 0},
			{Label: "trainer busy", Points: c["trainer/busy"], Color: 2},
			{Label: "trainer waits for rollouts", Points: c["trainer/waiting"], Color: 1},
		}},
		plot.Chart{Title: "Tokens per second", Zero: true, Lines: []plot.Line{
			{Label: "all", Points: c["perf/tokens_per_second"], Color: 5},
			{Label: "sampled", Points: c["perf/sampled_per_second"], Color: 0},
			{Label: "trained", Points: c["perf/trained_per_second"], Color: 2},
		}},
	)
}
