package pages

import (
	"cmp"
	"fmt"
	"net/http"

	"deepswe/agent/run"
	"deepswe/verify/plot"
)

// listed is a run in the list.
type listed struct {
	*loaded
	// Err says why the run cannot be read.
	Err  string
	Cost string
	cost float64
}

// What is what a run worked on.
func (l listed) What() string {
	switch {
	case l.Kind == run.Solve:
		return cmp.Or(l.Settings.Issue, firstLine(l.Settings.Statement), l.Settings.Task)
	case l.Ranking != nil && l.Kind == rankKind:
		return "candidates of " + l.Ranking.Run
	}
	return cmp.Or(l.Settings.flag("tasks"), l.Settings.flag("predictions"), l.Settings.Task)
}

// Result is the score of a run in words.
func (l listed) Result() string {
	t := l.Total
	switch {
	case l.Kind == run.Train:
		return l.Score
	case l.Kind == rankKind && l.Ranking != nil && l.Ranking.Truth > 0:
		return fmt.Sprintf("%d of %d", l.Ranking.ChosenSolved, l.Ranking.Chosen)
	case l.Kind == run.Solve && len(l.Rows) > 0 && t.Graded == 0:
		return l.Rows[0].Reason()
	case t.Graded == 0:
		return ""
	}
	return plot.Percent(t.Rate.Rate)
}

// Interval is the 95% interval of the score, where that is a share of the attempts.
func (l listed) Interval() string {
	if l.Total.Graded == 0 || l.Kind == run.Train || l.Kind == rankKind {
		return ""
	}
	return plot.Interval(l.Total.Rate.Low, l.Total.Rate.High)
}

func (l listed) fields() fields {
	score := l.Total.Rate.Rate
	if l.Kind == run.Train {
		score = l.score
	}
	return fields{
		"": string(l.Kind) + " " + l.ID + " " + l.Model + " " + l.What(), "kind": string(l.Kind), "model": l.Model,
		"is": l.State, "state": l.State, "run": l.ID, "begun": int(l.Created.UnixMilli()), "tasks": l.Total.Tasks,
		"score": score, "tokens": l.Total.Tokens(), "cost": l.cost, "seconds": l.Total.Seconds,
	}
}

// index serves the list of runs.
func (h *Handler) index(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r.URL.Query())
	all, err := h.lib.all()
	if err != nil {
		h.write(w, view{}, err)
		return
	}
	rows := make([]listed, len(all))
	live := false
	for i, f := range all {
		rows[i].loaded, err = h.lib.load(f)
		if err != nil {
			rows[i].loaded, rows[i].Err = &loaded{found: f}, err.Error()
		}
		live = live || rows[i].State == stateRunning
		if rows[i].cost = h.cost(rows[i].loaded); rows[i].cost > 0 {
			rows[i].Cost = plot.Number(rows[i].cost)
		}
	}
	page, n := selectRows(q, rows)
	h.write(w, view{template: "runs", Title: "Runs", Live: live, Data: struct {
		Query   query
		Columns []column
		Runs    []listed
		Pager   pager
		Empty   bool
		Paths   []string
	}{
		q, q.columns("begun:Begun", "kind:Kind", "run:Run", "model:Model", "tasks:#Tasks", "score:#Score",
			"tokens:#Tokens", "cost:#Cost", "seconds:#Time", "state:State"),
		page, q.pager(len(page), n), len(all) == 0, h.lib.paths,
	}}, nil)
}
