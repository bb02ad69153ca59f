package ranking

import (
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"deepswe/verify/compare"
	"deepswe/verify/plot"
	"deepswe/verify/rank"
	"deepswe/verify/rank/judge"
	"deepswe/verify/rank/suite"
	"deepswe/verify/swe"
)

//go:embed page.html
var pageTemplate string

// PageStyle is the page's own CSS, which comes after that of package plot.
//
//go:embed page.css
var PageStyle string

// page is the data of the template.
type page struct {
	Title    string
	Style    template.CSS
	Subtitle string
	Cards    []plot.Card
	Notes    []string
	Charts   []template.HTML
	Table    [][]string // a table: its head, the number of tasks with k candidates, and a row for each curve
	// Truth is set if it is known of any candidate whether it solves its task.
	Truth bool
	Tasks []pageTask
	// Left is the number of tasks without details, because the page would be too long to open.
	Left int
}

type pageTask struct {
	TaskReport
	Choice string // "#3 of 16"
	Truth  string
	Lines  []pageCandidate
	// Dropped lists the tests that do not count, with the reasons.
	Dropped []string
}

// pageCandidate is a candidate in a task's table.
type pageCandidate struct {
	Name, Patch, Score, Regression, Reproduction, Truth, Why string
	Chosen                                                   bool
}

// mostDetails is the maximum number of candidates that the page lists. 500 tasks with 16 each are 8000.
const mostDetails = 20000

// Page returns the report as a page without a script.
func (rep *Report) Page() plot.Page {
	p := page{
		Title: "Ranking of " + rep.Run, Style: template.CSS(plot.Style + PageStyle), Subtitle: rep.subtitle(),
		Cards: rep.cards(), Notes: slices.Clone(rep.Notes), Charts: rep.charts(), Table: rep.Table(), Truth: rep.Truth > 0,
	}
	if rep.Truth == 0 {
		p.Notes = append(p.Notes, "It is not known which candidates solve their task, so there are no curves.")
	}
	listed := 0
	for i, task := range rep.Results {
		if listed += len(task.Candidates); listed > mostDetails {
			p.Left = len(rep.Results) - i
			break
		}
		p.Tasks = append(p.Tasks, task.page())
	}
	return plot.Page{Template: pageTemplate, Data: p}
}

func (rep *Report) subtitle() string {
	text := fmt.Sprintf("%s · %s · %d candidates, %d distinct patches", rep.Verifier, rep.tasks(), rep.Candidates,
		rep.Distinct)
	if rep.Judge != "" {
		text += " · judge " + rep.Judge
	}
	return text
}

func (rep *Report) cards() []plot.Card {
	var out []plot.Card
	for _, c := range rep.Curves {
		if len(c.Points) == 0 || c.Name != Oracle && c.Name != string(rep.Verifier) || c.Name == string(rank.None) {
			continue // a verifier that did not choose, or random candidates
		}
		last := c.Points[len(c.Points)-1]
		name := fmt.Sprintf("Best@%d, %s", last.K, c.Name)
		if c.Name == Oracle {
			first := c.Points[0]
			out = slices.Insert(out, 0, plot.Card{
				Name: "Pass@1", Value: plot.Percent(first.Rate), Detail: "95%: " + plot.Interval(first.Low, first.High),
			})
			name = fmt.Sprintf("Pass@%d", last.K)
		}
		detail := "95%: " + plot.Interval(last.Low, last.High)
		if all := c.Points[0].Tasks; last.Tasks < all {
			detail += fmt.Sprintf("; %d of %d tasks have %d", last.Tasks, all, last.K)
		}
		out = append(out, plot.Card{Name: name, Value: plot.Percent(last.Rate), Detail: detail})
	}
	if rep.Truth > 0 {
		solved := fmt.Sprintf("%d of %d", rep.ChosenSolved, rep.Chosen)
		out = append(out, plot.Card{Name: "Chosen", Value: solved, Detail: "solve their task"})
	} else {
		out = append(out, plot.Card{Name: "Chosen", Value: fmt.Sprint(rep.Chosen), Detail: "of " + rep.tasks()})
	}
	return out
}

func (rep *Report) tasks() string {
	if rep.Tasks == 1 {
		return "1 task"
	}
	return fmt.Sprintf("%d tasks", rep.Tasks)
}

// charts returns the charts. Most are drawn only if it is known which candidates solve their tasks.
func (rep *Report) charts() []template.HTML {
	scaling := plot.Chart{Title: "Solved tasks with the best of k candidates, in percent", Zero: true, X: "k"}
	for i, c := range rep.Curves {
		faint := c.Name == string(rank.None)
		line := plot.Line{Label: c.Name, Color: i, Dots: len(c.Points) <= allK && !faint, Faint: faint}
		switch c.Name {
		case Oracle:
			line.Label, line.Color = "oracle (Pass@k)", 5
		case string(rank.None):
			line.Label = "none (drawn at random)"
		}
		for _, p := range c.Points {
			x := float64(p.K)
			line.Points = append(line.Points, plot.Point{X: x, Y: 100 * p.Rate})
			if c.Name == string(rep.Verifier) {
				line.Low = append(line.Low, plot.Point{X: x, Y: 100 * p.Low})
				line.High = append(line.High, plot.Point{X: x, Y: 100 * p.High})
			}
		}
		scaling.Lines = append(scaling.Lines, line)
		if c.Name == Oracle {
			scaling.Ticks = kTicks(c.Points)
		}
	}
	observed, ideal := rep.calibration()
	return plot.Draw(scaling, plot.Chart{
		Title: "Calibration of the judge: share that is right, by score", Zero: true, Fractions: true, X: "score",
		Lines: []plot.Line{ideal, observed},
	}, rep.byContext())
}

// kTicks returns ticks at the powers of two, and at the last k unless it is too close to one.
func kTicks(points []swe.Estimate) (ticks []plot.Tick) {
	last := points[len(points)-1].K
	for k := 1; k <= last; k *= 2 {
		if k > 1 && 30*k < last {
			continue // it would overlap the one before
		}
		ticks = append(ticks, plot.Tick{At: float64(k), Label: strconv.Itoa(k)})
		if 2*k > last && last >= k+max(1, k/4) {
			ticks = append(ticks, plot.Tick{At: float64(last), Label: strconv.Itoa(last)})
		}
	}
	return ticks
}

// byContext returns a chart of pass@1 and the largest pass@k against the context length, on a logarithmic axis.
func (rep *Report) byContext() plot.Chart {
	c := plot.Chart{Title: "Solved tasks by context length, in percent", Zero: true, X: "context"}
	largest := 0
	var places []float64
	for i, r := range rep.Contexts {
		at := math.Log2(float64(r.Context))
		places = append(places, at)
		c.Ticks = append(c.Ticks, plot.Tick{At: at, Label: swe.ContextName(r.Context)})
		if i == 0 || len(r.PassAtK) < largest {
			largest = len(r.PassAtK)
		}
	}
	for at := range largest {
		if at > 0 && at < largest-1 {
			continue
		}
		var rates []swe.Estimate
		for _, r := range rep.Contexts {
			rates = append(rates, r.PassAtK[at])
		}
		c.Lines = append(c.Lines, compare.Rates(fmt.Sprintf("pass@%d", rates[0].K), at, rates, places))
	}
	return c
}

// bins is the number of bins of the calibration chart, all of equal width.
const bins = 10

// calibration compares scores with the truth.
func (rep *Report) calibration() (observed, ideal plot.Line) {
	var scores [bins]float64
	var right, all [bins]int
	for _, t := range rep.Results {
		for _, c := range t.Candidates {
			if c.Solved == nil || c.Judgement == nil || c.Judgement.Score == nil {
				continue
			}
			b := min(bins-1, int(*c.Judgement.Score*bins))
			scores[b] += *c.Judgement.Score
			all[b]++
			right[b] += countIf(*c.Solved)
		}
	}
	observed = plot.Line{Label: "judge, with 95% interval", Dots: true}
	for b, n := range all {
		if n == 0 {
			continue
		}
		x, share := scores[b]/float64(n), float64(right[b])/float64(n)
		low, high := swe.Wilson(share, float64(n))
		observed.Points = append(observed.Points, plot.Point{X: x, Y: share})
		observed.Low = append(observed.Low, plot.Point{X: x, Y: low})
		observed.High = append(observed.High, plot.Point{X: x, Y: high})
	}
	if len(observed.Points) > 0 {
		ideal = plot.Line{
			Label: "perfect calibration", Color: 5, Faint: true, Points: plot.Series{{X: 0, Y: 0}, {X: 1, Y: 1}},
		}
	}
	return observed, ideal
}

// page returns the template's data for a task.
func (t TaskReport) page() pageTask {
	p := pageTask{TaskReport: t, Choice: "no candidate"}
	for _, c := range t.Candidates {
		one := pageCandidate{
			Name: c.Label(), Patch: short(c.Patch), Why: c.Reason, Truth: truthWords(c.Solved),
			Chosen: t.Chosen != nil && c.Attempt == *t.Chosen, Score: scoreCell(c),
		}
		if c.SameAs != nil {
			one.Patch = fmt.Sprintf("as #%d", *c.SameAs)
		}
		if c.Tests != nil {
			one.Regression, one.Reproduction = fmt.Sprint(c.Tests.Regression), fmt.Sprint(c.Tests.Reproduction)
		}
		if c.Missing != "" && !strings.Contains(one.Why, c.Missing) {
			one.Why += "; " + c.Missing
		}
		if one.Chosen {
			p.Choice, p.Truth = fmt.Sprintf("%s of %d", one.Name, len(t.Candidates)), one.Truth
		}
		p.Lines = append(p.Lines, one)
	}
	for _, s := range t.Scripts {
		if s.Problem != "" {
			p.Dropped = append(p.Dropped, s.Name+": "+s.Problem)
		}
		for _, d := range s.Dropped {
			p.Dropped = append(p.Dropped, s.Name+"::"+d.Test+": "+d.Reason)
		}
	}
	alike := 0
	for _, v := range t.Tests {
		switch {
		case strings.HasPrefix(v.Reason, suite.Alike):
			alike++
		case v.Reason != "":
			p.Dropped = append(p.Dropped, v.ID+": "+v.Reason)
		}
	}
	if alike > 0 {
		p.Dropped = append(p.Dropped, fmt.Sprintf("%d of %d tests tell no candidates apart and do not count", alike,
			len(t.Tests)))
	}
	return p
}

func short(key string) string { return key[:min(8, len(key))] }

func truthWords(solved *bool) string {
	switch {
	case solved == nil:
		return ""
	case *solved:
		return "solved"
	}
	return "not solved"
}

func scoreCell(c CandidateReport) string {
	j := c.Judgement
	if j == nil || j.Score == nil {
		return ""
	}
	sign := map[judge.Bound]string{judge.AtLeast: "≥ ", judge.AtMost: "≤ "}[j.Bound]
	return fmt.Sprintf("%s%.3f", sign, *j.Score)
}
