package pages

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/verify/compare"
	"deepswe/verify/plot"
	"deepswe/verify/swe"
)

// overview is the first page of a run.
func (h *Handler) overview(r *loaded, req *http.Request) (view, error) {
	switch {
	case r.Kind == run.Train:
		return h.training(r, req)
	case r.Kind == rankKind:
		return h.ranked(r, req)
	case r.Kind == run.Solve && len(r.Rows) == 1:
		return h.solved(r, req)
	}
	return h.evaluation(r, req)
}

// tabs are the pages of a run, with the filter that they share.
func (r *loaded) tabs(here, filter string) []link {
	q := ""
	if filter != "" {
		q = "?" + url.Values{"q": {filter}}.Encode()
	}
	var all []link
	add := func(name, to string) {
		if name == here {
			to = ""
		}
		all = append(all, link{name, to})
	}
	base := r.Base
	switch r.Kind {
	case run.Train:
		add("Curves and steps", base)
		add("Tasks", base+"tasks")
		return all
	case rankKind:
		return nil
	}
	add("Attempts", base+q)
	add("Tasks", base+"?"+url.Values{"by": {"task"}, "q": {filter}}.Encode())
	add("Failures", base+"failures"+q)
	if r.Ranking != nil {
		add("Ranking", base+"ranking")
	}
	return all
}

// taskRow is a task in a table of tasks.
type taskRow struct {
	Name         string
	Attempts     []row
	Solved, Made int
	sum          row
}

func (t taskRow) field(name string) (text string, number float64, numeric bool) {
	if name == "solved" {
		return "", float64(t.Solved) / float64(max(1, t.Made)), true
	}
	return t.sum.field(name)
}

// Link is the address of the task's page below the run's.
func (t taskRow) Link() string { return t.sum.TaskLink() }

// Sum has the task's totals.
func (t taskRow) Sum() row { return t.sum }

// byTask groups rows by their tasks.
func byTask(rows []row) []taskRow {
	at := map[string]int{}
	var all []taskRow
	for _, r := range rows {
		i, ok := at[r.Task]
		if !ok {
			i = len(all)
			at[r.Task] = i
			all = append(all, taskRow{Name: r.Task, sum: row{Job: run.Job{Task: r.Task}}})
		}
		t := &all[i]
		t.Attempts = append(t.Attempts, r)
		t.sum.Steps, t.sum.Read, t.sum.Written = t.sum.Steps+r.Steps, t.sum.Read+r.Read, t.sum.Written+r.Written
		t.sum.Seconds += r.Seconds
		if r.Verdict == solved || r.Verdict == unsolved {
			t.Made++
		}
		if r.Verdict == solved {
			t.Solved++
		}
	}
	return all
}

// evaluation is the first page of a run of many attempts: its figures, and a table of attempts or of tasks.
func (h *Handler) evaluation(r *loaded, req *http.Request) (view, error) {
	q := queryOf(req.URL.Query())
	data := struct {
		Run     *loaded
		Cards   []plot.Card
		Charts  []template.HTML
		Query   query
		Columns []column
		Rows    []row
		Tasks   []taskRow
		Pager   pager
		ByTask  bool
		Several bool
		Next    []string
	}{Run: r, Cards: h.cards(r), Query: q, ByTask: q.rest.Get("by") == "task", Several: len(r.Rows) > r.Total.Tasks}
	if q.Filter == "" && q.Page < 2 {
		data.Charts = r.charts()
	}
	if r.Kind == run.Solve {
		data.Next = nextCommands(r)
	}
	tab := "Attempts"
	if data.ByTask {
		tab = "Tasks"
		terms := parseFilter(q.Filter)
		left := slices.DeleteFunc(slices.Clone(r.Rows), func(x row) bool { return !matches(terms, x) })
		q := q
		q.Filter = ""
		page, all := selectRows(q, byTask(left))
		data.Tasks, data.Pager = page, q.pager(len(page), all)
		data.Columns = q.columns("task:Task", "solved:#Solved", ":Attempts", "steps:#Steps", "tokens:#Tokens",
			"seconds:#Time")
	} else {
		page, all := selectRows(q, r.Rows)
		data.Rows, data.Pager = page, q.pager(len(page), all)
		data.Columns = q.columns("task:Task", "is:Result", "stop:Why it ended", "steps:#Steps", "tokens:#Tokens",
			"seconds:#Time", "patch:#Patch", "suspicious:Suspicious")
	}
	return view{template: "evaluation", Title: r.ID, Tabs: r.tabs(tab, q.Filter), Data: data}, nil
}

// cards are the figures of a run.
func (h *Handler) cards(r *loaded) []plot.Card {
	t := r.Total
	var cards []plot.Card
	add := func(name, value, detail string) {
		if value != "" {
			cards = append(cards, plot.Card{Name: name, Value: value, Detail: detail})
		}
	}
	if t.Graded > 0 {
		add("pass@1", plot.Percent(t.Rate.Rate), fmt.Sprintf("95%%: %.1f to %.1f", 100*t.Rate.Low, 100*t.Rate.High))
		if t.Most.K > 1 {
			add(fmt.Sprintf("pass@%d", t.Most.K), plot.Percent(t.Most.Rate),
				fmt.Sprintf("95%%: %.1f to %.1f", 100*t.Most.Low, 100*t.Most.High))
		}
		add("Solved", fmt.Sprint(t.Solved), fmt.Sprintf("of %d graded", t.Graded))
	}
	open := ""
	if t.Open > 0 {
		open = fmt.Sprintf(", %d open", t.Open)
	}
	add("Attempts", fmt.Sprint(t.Attempts), fmt.Sprintf("at %d tasks%s", t.Tasks, open))
	if t.Failed > 0 {
		add("Failed", fmt.Sprint(t.Failed), "infrastructure")
	}
	if t.Suspicious > 0 {
		add("Suspicious", fmt.Sprint(t.Suspicious), "attempts")
	}
	spent := func(name string, v float64, write func(float64) string) {
		each := ""
		if t.Solved > 0 {
			each = write(v/float64(t.Solved)) + " per solved attempt"
		}
		if v > 0 {
			add(name, write(v), each)
		}
	}
	spent("Tokens", float64(t.Tokens()), plot.Count)
	spent("Time", t.Seconds, plot.Duration)
	if price, ok := h.prices.Of(r.Model); ok {
		spent("Cost", price.Cost(agent.Usage{Prompt: t.Read, Completion: t.Written}), plot.Number)
	}
	return cards
}

// charts are those of the run's report: pass@k, and why attempts ended.
func (r *loaded) charts() []template.HTML {
	var charts []plot.Chart
	var rep swe.EvaluationReport
	if disk.ReadJSON(filepath.Join(r.Path, swe.ReportFile), &rep) == nil && len(rep.PassAtK) > 1 {
		c := plot.Chart{Title: "Solved tasks with k attempts, in percent", X: "k", Zero: true}
		var at []float64
		for _, e := range rep.PassAtK {
			at = append(at, float64(e.K))
			c.Ticks = append(c.Ticks, plot.Tick{At: float64(e.K), Label: strconv.Itoa(e.K)})
		}
		c.Lines = []plot.Line{compare.Rates("pass@k", 0, rep.PassAtK, at)}
		charts = append(charts, c)
	}
	out := plot.Draw(charts...)
	if len(r.Total.Stops) > 0 {
		out = append(out, stopBars(r))
	}
	return out
}

// stopBars draws how many attempts ended for each reason, the solved ones apart. A bar leads to its attempts.
func stopBars(r *loaded) template.HTML {
	solvedBy := map[string]int{}
	most := 1
	for _, x := range r.Rows {
		if x.Verdict == solved {
			solvedBy[cmp.Or(x.Stop, x.Status)]++
		}
	}
	names := slices.SortedFunc(maps.Keys(r.Total.Stops), func(a, b string) int {
		return cmp.Or(r.Total.Stops[b]-r.Total.Stops[a], strings.Compare(a, b))
	})
	for _, n := range r.Total.Stops {
		most = max(most, n)
	}
	const left, width, line = 130.0, 380.0, 30.0
	field := "stop"
	if r.Kind == run.Grade {
		field = "status"
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<figure><figcaption>Why attempts ended</figcaption><svg viewBox="0 0 560 %g" role="img" `+
		`aria-label="Why attempts ended">`, line*float64(len(names)))
	for i, name := range names {
		n, good := r.Total.Stops[name], solvedBy[name]
		y := line * float64(i)
		unit := width / float64(most)
		to := "?" + url.Values{"q": {field + ":" + name}}.Encode()
		fmt.Fprintf(&b, `<a href="%s"><text class="ylabel" x="%g" y="%.1f">%s</text>`, template.HTMLEscapeString(to), left-8,
			y+19, template.HTMLEscapeString(strings.ReplaceAll(cmp.Or(name, "?"), "_", " ")))
		fmt.Fprintf(&b, `<rect class="dot c2" x="%g" y="%.1f" width="%.1f" height="20"><title>%d solved</title></rect>`, left,
			y+5, unit*float64(good), good)
		fmt.Fprintf(&b, `<rect class="dot c5" x="%.1f" y="%.1f" width="%.1f" height="20"><title>%d not solved</title></rect>`,
			left+unit*float64(good), y+5, unit*float64(n-good), n-good)
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f">%d</text></a>`, left+unit*float64(n)+8, y+19, n)
	}
	b.WriteString(`</svg><div class="legend"><span><i class="c2"></i>solved</span><span><i class="c5"></i>` +
		`not solved</span></div></figure>`)
	return template.HTML(b.String())
}

// verdictClasses returns the CSS class of a verdict.
func verdictClasses(v verdict) string {
	switch v {
	case solved:
		return "all"
	case unsolved, failed:
		return "none"
	case playing:
		return "some"
	}
	return "nograde"
}

// firstLine returns the first line of a text, cut where it is long.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if runes := []rune(line); len(runes) > 90 {
		return string(runes[:89]) + "…"
	}
	return line
}
