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
	if r.Kind == run.Train {
		add("Curves and steps", base)
		add("Tasks", base+"tasks")
		return all
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
	Sum          row // its totals
}

func (t taskRow) fields() fields {
	f := t.Sum.fields()
	f["solved"] = float64(t.Solved) / float64(max(1, t.Made))
	return f
}

// byTask groups rows by their tasks.
func byTask(rows []row) []taskRow {
	at := map[string]int{}
	var all []taskRow
	for _, r := range rows {
		i, ok := at[r.Task]
		if !ok {
			i = len(all)
			at[r.Task] = i
			all = append(all, taskRow{Name: r.Task, Sum: row{Job: run.Job{Task: r.Task}}})
		}
		t := &all[i]
		t.Attempts = append(t.Attempts, r)
		t.Sum.Steps, t.Sum.Read, t.Sum.Written = t.Sum.Steps+r.Steps, t.Sum.Read+r.Read, t.Sum.Written+r.Written
		t.Sum.Seconds += r.Seconds
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
		Stops   []bar
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
		data.Charts, data.Stops = r.charts(), stopBars(r)
	}
	if r.Kind == run.Solve {
		data.Next = nextCommands(r)
	}
	tab := "Attempts"
	if data.ByTask {
		tab = "Tasks"
		terms := parseFilter(q.Filter)
		left := slices.DeleteFunc(slices.Clone(r.Rows), func(x row) bool { return !matches(terms, x.fields()) })
		q := q
		q.Filter = ""
		page, all := selectRows(q, byTask(left))
		data.Tasks, data.Pager = page, q.pager(len(page), all)
		data.Columns = q.columns("task:Task", "solved:#Solved", ":Attempts", "steps:#Steps", "tokens:#Tokens",
			"seconds:#Time")
	} else {
		page, all := selectRows(q, r.Rows)
		data.Rows, data.Pager = page, q.pager(len(page), all)
		columns := []string{"task:Task", "is:Result", "stop:Why it ended", "steps:#Steps", "tokens:#Tokens",
			"seconds:#Time", "patch:#Patch", "suspicious:Suspicious"}
		if r.Ranking != nil {
			columns = slices.Insert(columns, 2, "score:#Score", "chosen:#Chosen")
		}
		data.Columns = q.columns(columns...)
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
	if k := r.Ranking; k != nil && k.Truth > 0 {
		add("Chosen", fmt.Sprintf("%d of %d", k.ChosenSolved, k.Chosen), "solve their task")
	}
	if t.Graded > 0 {
		add("pass@1", plot.Percent(t.Rate.Rate), "95%: "+plot.Interval(t.Rate.Low, t.Rate.High))
		if t.Most.K > 1 {
			add(fmt.Sprintf("pass@%d", t.Most.K), plot.Percent(t.Most.Rate), "95%: "+plot.Interval(t.Most.Low, t.Most.High))
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
	spent("Cost", h.cost(r), plot.Number)
	return cards
}

// charts returns the charts of the run's report.
func (r *loaded) charts() []template.HTML {
	var rep swe.EvaluationReport
	if disk.ReadJSON(filepath.Join(r.Path, swe.ReportFile), &rep) != nil || len(rep.PassAtK) < 2 {
		return nil
	}
	c := plot.Chart{Title: "Solved tasks with k attempts, in percent", X: "k", Zero: true}
	var at []float64
	for _, e := range rep.PassAtK {
		at = append(at, float64(e.K))
		c.Ticks = append(c.Ticks, plot.Tick{At: float64(e.K), Label: strconv.Itoa(e.K)})
	}
	c.Lines = []plot.Line{compare.Rates("pass@k", 0, rep.PassAtK, at)}
	return plot.Draw(c)
}

// bar is how many attempts ended for a reason, in a drawing; it leads to them.
type bar struct {
	Name, To             string
	Number, Solved       int
	Y, Good, Bad, Middle float64
}

// stopBars are how many attempts ended for each reason, the solved ones apart.
func stopBars(r *loaded) []bar {
	solvedBy := map[string]int{}
	for _, x := range r.Rows {
		if x.Verdict == solved {
			solvedBy[cmp.Or(x.Stop, x.Status)]++
		}
	}
	field := "stop"
	if r.Kind == run.Grade {
		field = "status"
	}
	stops := r.Total.Stops
	var bars []bar
	for _, name := range slices.SortedFunc(maps.Keys(stops), func(a, b string) int {
		return cmp.Or(stops[b]-stops[a], strings.Compare(a, b))
	}) {
		bars = append(bars, bar{
			Name: cmp.Or(phrase(name), "?"), To: "?" + url.Values{"q": {field + ":" + name}}.Encode(), Number: stops[name],
			Solved: solvedBy[name], Y: 30 * float64(len(bars)),
		})
	}
	for i := range bars {
		b := &bars[i]
		unit := 380 / float64(bars[0].Number)
		b.Good, b.Bad = unit*float64(b.Solved), unit*float64(b.Number-b.Solved)
		b.Middle = 130 + b.Good
	}
	return bars
}

// firstLine returns the first line of a text, cut where it is long.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if runes := []rune(line); len(runes) > 90 {
		return string(runes[:89]) + "…"
	}
	return line
}
