package compare

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strings"

	"deepswe/verify/plot"
	"deepswe/verify/swe"
)

//go:embed page.html
var pageTemplate string

// PageStyle is the page's own CSS, which comes after that of package plot.
//
//go:embed page.css
var PageStyle string

// Page returns the comparison as a page without a script.
func (rep *Report) Page() plot.Page {
	return plot.Page{Template: pageTemplate, Funcs: template.FuncMap{
		"task": rep.task, "percent": plot.Percent, "points": Points, "p": PValue,
		"tokens": func(r RunReport) string { return Each(r.Tokens, plot.Count) },
		"time":   func(r RunReport) string { return Each(r.Seconds, plot.Duration) },
		"cost":   func(r RunReport) string { return Each(r.Cost, plot.Number) },
		"stops":  rep.Stops, "words": func(s string) string { return strings.ReplaceAll(s, "_", " ") },
	}, Data: struct {
		*Report
		Title  string
		Style  template.CSS
		Charts []template.HTML
	}{rep, fmt.Sprintf("Comparison of %d runs", len(rep.Runs)), template.CSS(plot.Style + PageStyle), rep.charts()}}
}

// task writes a task with links to what both runs of a pair did.
func (rep *Report) task(p Pair, id string) template.HTML {
	text := template.HTMLEscapeString(id)
	if rep.Link != nil {
		for _, name := range []string{p.A, p.B} {
			text += fmt.Sprintf(` <a href="%s">%s</a>`, template.HTMLEscapeString(rep.Link(name, id)),
				template.HTMLEscapeString(name))
		}
	}
	return template.HTML(text)
}

// Points writes a difference of shares in percentage points, with its sign.
func Points(share float64) string {
	return strings.Replace(fmt.Sprintf("%+.1f", 100*share), "-", "−", 1)
}

// PValue writes a p-value with two significant digits.
func PValue(p float64) string {
	if p < 1e-4 {
		return "< 0.0001"
	}
	return fmt.Sprintf("%.2g", p)
}

// Each writes what a solved attempt took; a dash if nothing is known.
func Each(v *float64, write func(float64) string) string {
	if v == nil {
		return "–"
	}
	return write(*v)
}

// Stops returns why attempts ended, in all runs, the most frequent first.
func (rep *Report) Stops() []string {
	sum := map[string]int{}
	for _, r := range rep.Runs {
		for name, n := range r.Stops {
			sum[name] += n
		}
	}
	return slices.SortedFunc(maps.Keys(sum), func(a, b string) int { return cmp.Or(sum[b]-sum[a], strings.Compare(a, b)) })
}

// charts are those that the runs have values for: the score against the model's size, against k, and against the
// context.
func (rep *Report) charts() []template.HTML {
	size := plot.Chart{Title: "Solved tasks by model size in billions of parameters, in percent", X: "size", Zero: true}
	byK := plot.Chart{Title: "Solved tasks with k attempts, in percent", X: "k", Zero: true}
	byContext := plot.Chart{Title: "Solved tasks by context length, in percent", X: "context", Zero: true}
	for i, r := range rep.Runs {
		if r.Size > 0 {
			line := Rates(r.Name, i, []swe.Estimate{r.Rate}, []float64{math.Log2(r.Size)})
			size.Lines = append(size.Lines, line)
			size.Ticks = append(size.Ticks, plot.Tick{At: math.Log2(r.Size), Label: plot.Short(r.Size)})
		}
		if len(r.PassAtK) > 1 {
			var at []float64
			for _, e := range r.PassAtK {
				at = append(at, float64(e.K))
			}
			byK.Lines = append(byK.Lines, Rates(r.Name, i, r.PassAtK, at))
		}
		var rates []swe.Estimate
		var at []float64
		for _, c := range r.Contexts {
			if len(c.PassAtK) > 0 {
				x := math.Log2(float64(c.Context))
				rates, at = append(rates, c.PassAtK[0]), append(at, x)
				byContext.Ticks = append(byContext.Ticks, plot.Tick{At: x, Label: swe.ContextName(c.Context)})
			}
		}
		byContext.Lines = append(byContext.Lines, Rates(r.Name, i, rates, at))
	}
	if len(size.Lines) < 2 {
		size.Lines = nil
	}
	return plot.Draw(size, byK, byContext)
}

// Rates is a line of rates in percent with their intervals, at these places of the horizontal axis.
func Rates(name string, color int, all []swe.Estimate, at []float64) plot.Line {
	line := plot.Line{Label: name, Color: color, Dots: true}
	for i, e := range all {
		line.Points = append(line.Points, plot.Point{X: at[i], Y: 100 * e.Rate})
		line.Low = append(line.Low, plot.Point{X: at[i], Y: 100 * e.Low})
		line.High = append(line.High, plot.Point{X: at[i], Y: 100 * e.High})
	}
	return line
}
