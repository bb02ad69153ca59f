package pages

import (
	"cmp"
	"errors"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"deepswe/rl/metrics"
	"deepswe/rl/report"
	"deepswe/rl/train/config"
	"deepswe/rl/train/record"
	"deepswe/verify/plot"
)

// span is the steps that an address asks for; of all if Part is not set.
type span struct {
	From, To int
	Part     bool
	Runs     []string // those of a comparison
}

func spanOf(v url.Values) span {
	from, errFrom := strconv.Atoi(v.Get("from"))
	to, errTo := strconv.Atoi(v.Get("to"))
	return span{from, to, errFrom == nil && errTo == nil, v["run"]}
}

// leavesOut reports whether a step is not one of them.
func (s span) leavesOut(step int) bool { return s.Part && (step < s.From || step > s.To) }

// points reads the metrics of a training run's steps.
func (r *loaded) points(of span) ([]metrics.Point, error) {
	points, err := metrics.ReadJSONL(filepath.Join(r.Path, record.MetricsFile))
	return slices.DeleteFunc(points, func(p metrics.Point) bool { return of.leavesOut(p.Step) }), err
}

// difference is a configuration key whose values differ, with the value of each run.
type difference struct {
	Key    string
	Values []string
}

// differences returns the keys in which the runs' configurations differ. A configuration that cannot be read has no
// values.
func differences(runs []*loaded) []difference {
	all := make([]map[string]string, len(runs))
	keys := map[string]bool{}
	for i, r := range runs {
		text, err := os.ReadFile(filepath.Join(r.Path, record.ConfigFile))
		if err != nil {
			continue
		}
		all[i], _ = config.Flatten(text)
		for key := range all[i] {
			keys[key] = true
		}
	}
	var out []difference
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		d := difference{Key: key}
		for i := range runs {
			d.Values = append(d.Values, all[i][key])
		}
		if slices.ContainsFunc(d.Values, func(v string) bool { return v != d.Values[0] }) {
			out = append(out, d)
		}
	}
	return out
}

// trainedStep is a step in the table of a training run.
type trainedStep struct {
	Step                             int
	Reward, Pass, None, Some, All, S string
	Played                           bool // its rollouts are on the disk
}

// training is the first page of a training run: its report, and its steps, the newest first.
func (h *Handler) training(r *loaded, req *http.Request) (view, error) {
	of := spanOf(req.URL.Query())
	points, err := r.points(of)
	if err != nil {
		return view{}, err
	}
	played, err := record.Steps(r.Path)
	if err != nil {
		return view{}, err
	}
	played = slices.DeleteFunc(played, of.leavesOut)
	config, err := os.ReadFile(filepath.Join(r.Path, record.ConfigFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return view{}, err
	}
	body, err := report.Run{Points: points, Config: string(config)}.Page().Body()
	if err != nil {
		return view{}, err
	}
	return view{template: "training", Title: r.ID, Tabs: r.tabs("Curves and steps", ""), Data: struct {
		Span   span
		Report template.HTML
		Steps  []trainedStep
	}{of, body, stepsOfTraining(points, played)}}, nil
}

func stepsOfTraining(points []metrics.Point, played []int) []trainedStep {
	byStep := metrics.ByStep(points)
	steps := slices.AppendSeq(slices.Clone(played), maps.Keys(byStep)) // one without a point has a row as well
	slices.Sort(steps)
	var rows []trainedStep
	for _, step := range slices.Backward(slices.Compact(steps)) {
		cell := func(name string) string {
			if v, ok := byStep[step][name]; ok {
				return plot.Number(v)
			}
			return ""
		}
		row := trainedStep{
			Step: step, Reward: cell("reward/mean"), Pass: cell("val/pass@1"), None: cell("groups/solve_none"),
			Some: cell("groups/solve_partial"), All: cell("groups/solve_all"), S: clock(byStep[step]["time/step"]),
			Played: slices.Contains(played, step),
		}
		if step < 0 && !row.Played && row.Pass == "" { // a pass over demonstrations, which a curve shows
			continue
		}
		rows = append(rows, row)
	}
	return rows
}

// taskHistory is how a task went in training.
type taskHistory struct {
	Task           string
	Solved, Graded int
	Visits         []visit
}

// visit is the group of rollouts of a task in a step.
type visit struct {
	Step, Solved, Graded int
	Class                string
	Played               bool // its rollouts are on the disk
}

// tasks returns the history of each task: how many of its rollouts solved it at each visit.
func (h *Handler) tasks(r *loaded, _ *http.Request) (view, error) {
	visits, err := record.ReadVisits(r.Path)
	if err != nil {
		return view{}, err
	}
	played, err := record.Steps(r.Path)
	if err != nil {
		return view{}, err
	}
	byTask := map[string]*taskHistory{}
	for _, v := range visits {
		h := byTask[v.Task]
		if h == nil {
			h = &taskHistory{Task: v.Task}
			byTask[v.Task] = h
		}
		c := visit{Step: v.Step, Class: "some", Played: slices.Contains(played, v.Step)}
		for _, r := range v.Rewards {
			if r != nil {
				c.Graded++
			}
			if r != nil && *r >= 1 {
				c.Solved++
			}
		}
		switch {
		case c.Graded == 0:
			c.Class = "nograde"
		case c.Solved == 0:
			c.Class = "none"
		case c.Solved == c.Graded:
			c.Class = "all"
		}
		h.Solved, h.Graded, h.Visits = h.Solved+c.Solved, h.Graded+c.Graded, append(h.Visits, c)
	}
	rows := slices.SortedFunc(maps.Values(byTask), func(a, b *taskHistory) int {
		return cmp.Or(len(b.Visits)-len(a.Visits), strings.Compare(a.Task, b.Task))
	})
	return view{template: "visits", Title: r.ID + ": tasks", Tabs: r.tabs("Tasks", ""), Data: rows}, nil
}
