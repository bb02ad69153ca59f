package pages

import (
	"cmp"
	"fmt"
	"net/http"

	"deepswe/agent"
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
	case l.Kind == rankKind:
		return fmt.Sprintf("%d of %d", l.Ranking.ChosenSolved, l.Ranking.Chosen)
	case l.Kind == run.Solve && len(l.Rows) > 0 && t.Graded == 0:
		return l.Rows[0].Reason()
	case t.Graded == 0:
		return ""
	}
	return plot.Percent(t.Rate.Rate)
}

// Tokens is the number of all tokens.
func (l listed) Tokens() int { return l.Total.Tokens() }

// Interval is the 95% interval of the score.
func (l listed) Interval() string {
	if l.Total.Graded == 0 || l.Kind == run.Train {
		return ""
	}
	return fmt.Sprintf("%.1f to %.1f", 100*l.Total.Rate.Low, 100*l.Total.Rate.High)
}

func (l listed) field(name string) (text string, number float64, numeric bool) {
	switch name {
	case "":
		return string(l.Kind) + " " + l.ID + " " + l.Model + " " + l.What(), 0, false
	case "kind":
		return string(l.Kind), 0, false
	case "model":
		return l.Model, 0, false
	case "is", "state":
		return l.State, 0, false
	case "run":
		return l.ID, 0, false
	case "begun":
		return "", float64(l.Created.UnixMilli()), true
	case "tasks":
		return "", float64(l.Total.Tasks), true
	case "score":
		if l.Kind == run.Train {
			return "", l.score, true
		}
		return "", l.Total.Rate.Rate, true
	case "tokens":
		return "", float64(l.Total.Read + l.Total.Written), true
	case "cost":
		return "", l.cost, true
	case "seconds":
		return "", l.Total.Seconds, true
	}
	return "", 0, false
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
		if price, ok := h.prices.Of(rows[i].Model); ok {
			rows[i].cost = price.Cost(agent.Usage{Prompt: rows[i].Total.Read, Completion: rows[i].Total.Written})
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
