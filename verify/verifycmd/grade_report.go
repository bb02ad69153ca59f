package verifycmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"deepswe/agent/agentcmd"
	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/verify"
)

// report writes the harness's report on the run, and what else there is to say, and returns the error that the exit code
// comes from.
func (g *grading) report() error {
	report := verify.RunReport{Tasks: g.ids}
	counts := map[verify.Status]int{}
	missing := 0
	for _, j := range g.jobs {
		r := verify.TaskResult{ID: j.task.ID, EmptyPatch: !j.runs()}
		v, ok := g.known(run.Job{Task: j.task.ID, Group: j.task.ID})
		switch {
		case ok:
			r.Report, r.Infra = v.Report, v.Infra()
			counts[v.Status]++
		case j.runs():
			missing++
		default:
			counts[verify.NoPatch]++
		}
		report.Results = append(report.Results, r)
	}
	name := g.dir.Path(fileName(report.Name(g.model, g.o.runID)))
	if err := disk.WriteFile(name, report.JSON()); err != nil {
		return err
	}
	flaky := g.flaky()
	if g.o.repeat > 1 {
		if err := writeJSON(g.dir.Path(flakyFile), flaky); err != nil {
			return err
		}
	}
	g.progress.plan("", 0) // the live line has done its work
	if g.o.json {
		printJSON(g.d.Out, struct {
			Type     string `json:"type"`
			Version  int    `json:"version"`
			Tasks    int    `json:"tasks"`
			Resolved int    `json:"resolved"`
			Failed   int    `json:"failed"`
			Flaky    int    `json:"flaky,omitempty"`
			Report   string `json:"report"`
		}{"report", 1, len(g.jobs), counts[verify.Resolved], missing, len(flaky.Tasks), name})
	} else {
		g.summary(counts, missing, flaky, name)
	}
	switch {
	case missing == len(g.jobs):
		return exit(agentcmd.ExitSandbox)
	case missing > 0:
		return exit(agentcmd.ExitUnsolved)
	}
	return nil
}

func (g *grading) summary(counts map[verify.Status]int, missing int, flaky flakyReport, name string) {
	out := g.d.Out
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(out, "%-14s %d\n", status, counts[status])
	}
	if missing > 0 {
		fmt.Fprintf(out, "%-14s %d\n", "failed", missing)
	}
	for _, t := range flaky.Tasks {
		fmt.Fprintf(out, "flaky: %s: %v, %d tests\n", plain(t.ID), t.Statuses, len(t.Tests))
	}
	fmt.Fprintf(out, "%d of %d resolved (%.1f%%)\n%s\n", counts[verify.Resolved], len(g.jobs), 100*float64(counts[verify.Resolved])/float64(len(g.jobs)), name)
}

// flakyFile lists what does not agree with itself.
const flakyFile = "flaky.json"

// flakyReport is flaky.json.
type flakyReport struct {
	Version int         `json:"version"`
	Repeat  int         `json:"repeat"`
	Tasks   []flakyTask `json:"tasks"`
}

type flakyTask struct {
	ID string `json:"id"`
	// Statuses are the verdicts in the order of the runs.
	Statuses []verify.Status `json:"statuses"`
	// Tests are those whose status was not the same in all runs, with their statuses in the order of the runs; an empty
	// one where the log did not name the test.
	Tests map[string][]string `json:"tests"`
}

// flaky compares the runs of each patch with each other.
func (g *grading) flaky() flakyReport {
	r := flakyReport{Version: 1, Repeat: g.o.repeat, Tasks: []flakyTask{}}
	if g.o.repeat < 2 {
		return r
	}
	for _, j := range g.jobs {
		t := flakyTask{ID: j.task.ID, Tests: map[string][]string{}}
		var runs []verify.Evaluation
		names := map[string]bool{}
		for i := range g.o.repeat {
			if v, ok := g.known(run.Job{Task: j.task.ID, Group: j.task.ID, Index: i}); ok {
				runs = append(runs, v)
				t.Statuses = append(t.Statuses, v.Status)
				if v.Tests != nil {
					for name := range v.Tests.All() {
						names[name] = true
					}
				}
			}
		}
		for name := range names {
			var statuses []string
			for _, v := range runs {
				status := ""
				if v.Tests != nil {
					s, _ := v.Tests.Status(name)
					status = string(s)
				}
				statuses = append(statuses, status)
			}
			if len(slices.Compact(slices.Clone(statuses))) > 1 {
				t.Tests[name] = statuses
			}
		}
		if len(t.Tests) > 0 || len(slices.Compact(slices.Clone(t.Statuses))) > 1 {
			r.Tasks = append(r.Tasks, t)
		}
	}
	return r
}

// writeJSON writes a file of JSON for people and programs, without escaping < > &.
func writeJSON(path string, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return disk.WriteFile(path, b.Bytes())
}
