package pages

import (
	"errors"
	"fmt"
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

// last returns the newest value of a metric.
func last(points []metrics.Point, name string) (float64, bool) {
	for _, p := range slices.Backward(points) {
		if v, ok := p.Values[name]; ok {
			return v, true
		}
	}
	return 0, false
}

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

// overlay draws one chart for each metric, with all runs in it.
func overlay(runs []*loaded, of span) ([]template.HTML, error) {
	points := make([][]metrics.Point, len(runs))
	for i, r := range runs {
		var err error
		if points[i], err = r.points(of); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Path, err)
		}
	}
	var charts []plot.Chart
	for _, m := range []struct {
		name, title string
		share, dots bool
	}{
		{"val/pass@1", "Validation pass@1", true, true},
		{"val/submitted_pass@1", "Solved and submitted, in validation", true, true},
		{"reward/mean", "Mean reward of the training rollouts", false, false},
		{"turns/mean", "Turns of a rollout", false, false},
		{"tokens/sampled/mean", "Tokens that the policy wrote, per rollout", false, false},
		{"entropy/mean", "Entropy of the trained tokens, in nats", false, false},
		{"optim/grad_norm", "Gradient norm before clipping", false, false},
		{"mismatch/kl_k3", "KL(sampler, trainer) with the same weights, estimate k3", false, false},
		{"time/step", "Time of a step, in seconds", false, false},
	} {
		c := plot.Chart{Title: m.title, Zero: true, Share: m.share}
		for i, r := range runs {
			var s plot.Series
			for _, p := range points[i] {
				if v, ok := p.Values[m.name]; ok {
					s = append(s, plot.Point{X: float64(p.Step), Y: v})
				}
			}
			c.Lines = append(c.Lines, plot.Line{Label: r.ID, Points: s, Color: i, Dots: m.dots})
		}
		charts = append(charts, c)
	}
	return plot.Draw(charts...), nil
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
	var body strings.Builder
	if err := report.WriteBody(&body, report.Run{Points: points, Config: string(config)}); err != nil {
		return view{}, err
	}
	return view{template: "training", Title: r.ID, Tabs: r.tabs("Curves and steps", ""), Data: struct {
		Span   span
		Report template.HTML
		Steps  []trainedStep
	}{of, template.HTML(body.String()), stepsOfTraining(points, played)}}, nil
}

func stepsOfTraining(points []metrics.Point, played []int) []trainedStep {
	byStep := map[int]map[string]float64{}
	for _, n := range played {
		byStep[n] = map[string]float64{}
	}
	for _, p := range points {
		if byStep[p.Step] == nil {
			byStep[p.Step] = map[string]float64{}
		}
		maps.Copy(byStep[p.Step], p.Values)
	}
	var rows []trainedStep
	for _, step := range slices.Backward(slices.Sorted(maps.Keys(byStep))) {
		cell := func(name string) string {
			if v, ok := byStep[step][name]; ok {
				return plot.Number(v)
			}
			return ""
		}
		rows = append(rows, trainedStep{
			Step: step, Reward: cell("reward/mean"), Pass: cell("val/pass@1"), None: cell("groups/solve_none"),
			Some: cell("groups/solve_partial"), All: cell("groups/solve_all"), S: clock(byStep[step]["time/step"]),
			Played: slices.Contains(played, step),
		})
	}
	return rows
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
	type cell struct {
		Step, Solved, Graded int
		Class                string
		Played               bool // its rollouts are on the disk
	}
	type row struct {
		Task         string
		Visits       []cell
		Rate         float64
		Turns, Steps string
	}
	byTask := map[string]*row{}
	sums := map[string][2]float64{}
	for _, v := range visits {
		if byTask[v.Task] == nil {
			byTask[v.Task] = &row{Task: v.Task}
		}
		c := cell{Step: v.Step, Class: "some", Played: slices.Contains(played, v.Step)}
		for _, r := range v.Rewards {
			if r == nil {
				continue
			}
			c.Graded++
			if *r >= 1 {
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
		s := sums[v.Task]
		sums[v.Task] = [2]float64{s[0] + float64(c.Solved), s[1] + float64(c.Graded)}
		byTask[v.Task].Visits = append(byTask[v.Task].Visits, c)
	}
	var rows []*row
	for _, name := range slices.Sorted(maps.Keys(byTask)) {
		r := byTask[name]
		if s := sums[name]; s[1] > 0 {
			r.Rate = s[0] / s[1]
		}
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b *row) int { return len(b.Visits) - len(a.Visits) })
	return view{template: "visits", Title: r.ID + ": tasks", Tabs: r.tabs("Tasks", ""), Data: rows}, nil
}
