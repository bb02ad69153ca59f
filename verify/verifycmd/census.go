package verifycmd

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/verify"
)

// census grades every task twice before anybody works on it: without any change, which must not solve it, and with its
// reference solution, which must.
type census struct {
	*evaluation
	report censusReport
	found  map[string]censusWord
}

// censusReport is census.json.
type censusReport struct {
	Version int `json:"version"`
	// Sound counts the tasks that are as they should be.
	Sound int `json:"sound"`
	// The tasks that are not, by what is wrong: their tests pass without a change; fail with the reference solution; they
	// bring no solution to try; they cannot be graded at all; or the machinery failed.
	PassesEmpty []string `json:"passes_empty"`
	FailsGold   []string `json:"fails_gold"`
	NoGold      []string `json:"no_gold"`
	Ungradable  []string `json:"ungradable"`
	Failed      []string `json:"failed"`

	Results []censusResult `json:"results"`
}

type censusResult struct {
	Task    string     `json:"task"`
	Verdict censusWord `json:"verdict"`
	Empty   *censusRun `json:"empty"`
	Gold    *censusRun `json:"gold"`
}

type censusRun struct {
	Status     verify.Status          `json:"status,omitempty"`
	Reward     float64                `json:"reward"`
	Suspicious []verify.SuspicionKind `json:"suspicious,omitempty"`
	Error      string                 `json:"error,omitempty"`
}

type censusWord string

const (
	soundTask   censusWord = "sound"
	passesEmpty censusWord = "passes_empty"
	failsGold   censusWord = "fails_gold"
	noGold      censusWord = "no_gold"
	ungradable  censusWord = "ungradable"
	failedRun   censusWord = "failed"
)

const censusFile = "census.json"

func (c *census) sound(id string) bool { return c.found[id] == soundTask }

// censusGroup names the group of a census run: the two of a task are not compared with each other, nor with rollouts.
func censusGroup(kind, id string) string { return "census:" + kind + ":" + id }

// takeCensus runs the census, or what of it is left to do, and writes it down.
func (e *evaluation) takeCensus(ctx context.Context) error {
	c := &census{evaluation: e, found: map[string]censusWord{}}
	var plan []run.Job
	for _, id := range e.ids {
		plan = append(plan, run.Job{Task: id, Group: censusGroup(empty, id)})
		if e.tasks[id].Tests.GoldPatch != "" {
			plan = append(plan, run.Job{Task: id, Group: censusGroup(gold, id)})
		}
	}
	e.progress.plan("census", len(plan))
	e.progress.note("census of %d tasks: no change must not solve them, and the reference solution must", len(e.ids))
	for _, a := range plan {
		if _, ok := e.dir.Find(a); ok {
			e.progress.known(false)
		}
	}
	engine := run.Engine{Runner: c, Journal: e.dir, Options: run.Options{
		Workers: e.o.workers, Retries: 2, MaxFailures: max(12, 3*e.o.workers), Observe: c.observe, Deadline: e.deadline(),
	}}
	outcomes, err := engine.Run(ctx, plan)
	if err != nil {
		return err
	}
	c.judge(outcomes)
	e.census = c
	return writeJSON(e.dir.Path(censusFile), c.report)
}

// Run grades one task, with no change or with its solution.
func (c *census) Run(ctx context.Context, a run.Job) (run.Result, error) {
	task := c.tasks[a.Task]
	patch, kind := []byte{}, empty
	if a.Group == censusGroup(gold, a.Task) {
		patch, kind = []byte(task.Tests.GoldPatch), gold
	}
	e := verify.Evaluator{
		Provider: c.provider, Timeout: c.o.gradeTimeout, Network: c.o.gradeNetwork, Run: filepath.Base(c.dir.Path()),
	}
	v, err := e.Evaluate(ctx, task, patch)
	if err != nil {
		return run.Result{}, err
	}
	if err := v.Save(c.dir.Path("census", kind, fileName(a.Task)), task, patch); err != nil {
		return run.Result{}, run.Abort(err)
	}
	result := run.Result{Reward: &v.Reward, Times: run.Times{Reward: v.Seconds}}
	d := detail{Status: v.Status, InfraReason: v.InfraReason}
	for _, s := range v.Suspicious {
		d.Suspicious = append(d.Suspicious, s.Kind)
	}
	result.Detail, err = json.Marshal(d)
	return result, err
}

func (c *census) observe(ev run.Event) {
	kind, _, _ := strings.Cut(strings.TrimPrefix(ev.Job.Group, "census:"), ":")
	name := fmt.Sprintf("%s with %s", ev.Job.Task, map[string]string{empty: "no change", gold: "its solution"}[kind])
	switch ev.Kind {
	case run.Started:
		c.progress.start()
	case run.Retrying:
		c.progress.note("%s: %v; trying again in %s", name, ev.Err, ev.Delay.Round(time.Second))
	case run.Finished:
		c.progress.end(solved(*ev.Outcome), false, name+": "+strings.ReplaceAll(string(detailOf(*ev.Outcome).Status), "_", " "))
	case run.Failed:
		c.progress.end(false, true, name+": failed: "+ev.Outcome.Err)
	case run.GroupDone:
	}
}

// judge turns the runs into a verdict on every task.
func (c *census) judge(outcomes []run.Outcome) {
	c.report = censusReport{
		Version: 1, PassesEmpty: []string{}, FailsGold: []string{}, NoGold: []string{}, Ungradable: []string{}, Failed: []string{}, Results: []censusResult{},
	}
	runs := map[string]*censusRun{}
	for _, o := range outcomes {
		d := detailOf(o)
		run := &censusRun{Status: d.Status, Suspicious: d.Suspicious, Error: o.Err}
		if o.Reward != nil {
			run.Reward = *o.Reward
		}
		runs[o.Group] = run
	}
	lists := map[censusWord]*[]string{
		passesEmpty: &c.report.PassesEmpty, failsGold: &c.report.FailsGold, noGold: &c.report.NoGold, ungradable: &c.report.Ungradable,
		failedRun: &c.report.Failed,
	}
	for _, id := range c.ids {
		r := censusResult{Task: id, Empty: runs[censusGroup(empty, id)], Gold: runs[censusGroup(gold, id)]}
		r.Verdict = judgeTask(c.tasks[id], r)
		c.found[id] = r.Verdict
		c.report.Results = append(c.report.Results, r)
		if list, ok := lists[r.Verdict]; ok {
			*list = append(*list, id)
		} else {
			c.report.Sound++
		}
	}
}

func judgeTask(t env.Task, r censusResult) censusWord {
	switch {
	case verify.Gradable(t) != nil:
		return ungradable
	case r.Empty.Error != "" || r.Gold != nil && r.Gold.Error != "":
		return failedRun
	case r.Empty.Status == verify.Resolved:
		return passesEmpty
	case r.Gold == nil:
		return noGold
	case r.Gold.Reward < 1:
		return failsGold
	}
	return soundTask
}

// censusSummary prints what the census has found.
func (e *evaluation) censusSummary() {
	if e.census == nil {
		return
	}
	r := e.census.report
	fmt.Fprintf(e.d.Out, "census    %d of %d tasks are sound\n", r.Sound, len(r.Results))
	for _, list := range []struct {
		says  string
		tasks []string
	}{
		{"solved without any change", r.PassesEmpty}, {"not solved by the reference solution", r.FailsGold},
		{"without a reference solution", r.NoGold}, {"cannot be graded", r.Ungradable}, {"not graded, because the machinery failed", r.Failed},
	} {
		if len(list.tasks) > 0 {
			fmt.Fprintf(e.d.Out, "  %d %s: %s\n", len(list.tasks), list.says, plain(strings.Join(list.tasks, " ")))
		}
	}
}
