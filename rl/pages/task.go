package pages

import (
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env/dataset"
	"deepswe/rl/report"
	"deepswe/verify/compare"
)

// attemptOf is an attempt beside the others at its task.
type attemptOf struct {
	row
	Evidence *evidence
	Patch    []fileDiff
}

// taskPage is the data of a task's page.
type taskPage struct {
	Name, Statement string
	Attempts        []attemptOf
	// Why is why an attempt was chosen.
	Why string
	// Gold is the dataset's own solution, which is not shown until it is asked for.
	Gold    []fileDiff
	GoldErr string
	AskGold string
}

// task is the page of a task: its statement and its attempts side by side.
func (h *Handler) task(r *loaded, req *http.Request) (view, error) {
	name := req.URL.Query().Get("name")
	p := taskPage{Name: name}
	for _, x := range r.Rows {
		if x.Task != name {
			continue
		}
		a := attemptOf{row: x}
		if e, ok := r.evidenceOf(x); ok {
			a.Evidence = &e
		}
		patch, err := patchOf(r, x)
		if err != nil {
			return view{}, err
		}
		a.Patch = diffsOf(patch)
		if x.Chosen {
			p.Why = x.Ranked.Reason
		}
		if p.Statement == "" {
			p.Statement = statementIn(x.Dir)
		}
		p.Attempts = append(p.Attempts, a)
	}
	if len(p.Attempts) == 0 {
		return view{}, fmt.Errorf("task %s: %w", name, errNotFound)
	}
	if path := r.Settings.flag("tasks"); path != "" && r.Kind == run.Eval {
		p.AskGold = queryOf(req.URL.Query()).with("gold", "1") + "#gold"
		if req.URL.Query().Get("gold") != "" {
			p.AskGold = ""
			p.Gold, p.GoldErr = goldPatch(path, name)
		}
	}
	return view{template: "task", Title: name, Crumbs: []link{{name, ""}}, Data: p}, nil
}

// statementIn returns the first request in an attempt's recording, which states its task.
func statementIn(dir string) string {
	rec, err := recordingIn(dir)
	if err != nil {
		return ""
	}
	for _, m := range rec.Messages {
		if m.Role == "user" {
			return plain(strings.TrimSpace(m.Content))
		}
	}
	return ""
}

// goldPatch reads the solution of a task from its dataset.
func goldPatch(path, name string) ([]fileDiff, string) {
	only := dataset.Options{Filter: regexp.MustCompile("^" + regexp.QuoteMeta(name) + "$")}
	for t, err := range dataset.Read(path, only) {
		switch {
		case err != nil:
			return nil, "The dataset cannot be read: " + err.Error()
		case t.Tests.GoldPatch == "":
			return nil, "The dataset has no solution of this task."
		}
		return diffsOf(t.Tests.GoldPatch), ""
	}
	return nil, "The dataset no longer has this task."
}

// ranked is the page of a ranking.
func (h *Handler) ranked(r *loaded, _ *http.Request) (view, error) {
	if r.Ranking == nil {
		return view{}, fmt.Errorf("the ranking of %s: %w", r.ID, errNotFound)
	}
	body, err := r.Ranking.Page().Body()
	if err != nil {
		return view{}, err
	}
	return view{
		template: "body", Title: "Ranking of " + filepath.Base(r.Ranking.Run), Tabs: r.tabs("Ranking", ""), Data: body,
	}, nil
}

// compare is the page of several runs: the curves of training runs, else the verdicts on their tasks.
func (h *Handler) compare(w http.ResponseWriter, req *http.Request) {
	v, err := h.comparison(req)
	v.Crumbs = []link{{"Runs", h.base + "/"}, {"Comparison", ""}}
	h.write(w, v, err)
}

// compared is the data of a comparison's page.
type compared struct {
	Body   template.HTML
	Charts []template.HTML
	Names  []string
	Differ []difference
	Span   span
	// Refused are the reasons why the runs are not compared. Anyway is the address that compares them all the same.
	Refused []string
	Anyway  string
	Hint    string
}

func (h *Handler) comparison(req *http.Request) (view, error) {
	v := view{template: "compared", Title: "Comparison"}
	q := req.URL.Query()
	var runs []*loaded
	trained := 0
	for _, id := range q["run"] {
		r, err := h.lib.find(id)
		if err != nil {
			return v, err
		}
		runs = append(runs, r)
		if r.Kind == run.Train {
			trained++
		}
	}
	var err error
	data := compared{}
	switch {
	case len(runs) < 2:
		data.Hint = "Tick two runs or more in the list of runs, and choose Compare."
	case trained == len(runs):
		err = data.compareTraining(runs, q)
	default:
		err = data.compareEvaluations(runs, q, h.prices)
	}
	v.Data = data
	return v, err
}

// compareTraining draws the curves of training runs beside each other.
func (c *compared) compareTraining(runs []*loaded, q url.Values) error {
	c.Span = spanOf(q)
	var all []report.Variant
	for _, r := range runs {
		points, err := r.points(c.Span)
		if err != nil {
			return err
		}
		all = append(all, report.Variant{Name: r.ID, Runs: []report.SeedRun{{Points: points}}})
		c.Names = append(c.Names, r.ID)
	}
	c.Charts = report.Overlay(all)
	c.Differ = differences(runs)
	return nil
}

// compareEvaluations compares runs by the tasks that they have in common, or says why it does not.
func (c *compared) compareEvaluations(runs []*loaded, q url.Values, prices *cli.Prices) error {
	var sides []*compare.Run
	for _, r := range runs {
		side, err := compare.Read(r.Path)
		if err != nil {
			c.Hint = err.Error()
			return nil
		}
		side.Name = r.ID
		if price, ok := prices.Of(side.Model); ok {
			side.Price = price.Cost
		}
		sides = append(sides, side)
	}
	rep, err := compare.Compare(sides, q.Get("anyway") != "")
	if refused, ok := errors.AsType[*compare.NotComparableError](err); ok {
		c.Refused, c.Anyway = refused.Differences, queryOf(q).with("anyway", "1")
		return nil
	}
	if err != nil {
		return err
	}
	rep.Link = func(name, task string) string {
		i := slices.IndexFunc(runs, func(r *loaded) bool { return r.ID == name })
		return runs[i].Base + row{Job: run.Job{Task: task}}.TaskLink()
	}
	c.Body, err = rep.Page().Body()
	return err
}
