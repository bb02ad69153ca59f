package verifycmd

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/run"
	"deepswe/verify"
)

// reportFile is the report on a run.
const reportFile = "report.json"

// evalReport is report.json of a run of eval. Everything but Seconds, Tries and the texts of Failures is the same for
// the same replies of the model, however often the run was stopped and taken up again.
type evalReport struct {
	Type    string `json:"type"` // "report"
	Version int    `json:"version"`
	// Complete is false while the run was stopped before its end.
	Complete bool   `json:"complete"`
	Model    string `json:"model,omitempty"`
	Tasks    int    `json:"tasks"`
	Attempts int    `json:"attempts"`
	// Finished attempts have a verdict; Failed ones have none because the machinery failed; Missing ones were not made.
	Finished int `json:"finished"`
	Failed   int `json:"failed"`
	Missing  int `json:"missing"`
	// Solved counts attempts by the stricter reading, Resolved by the official harness's rules.
	Solved   int `json:"solved"`
	Resolved int `json:"resolved"`

	PassAtK        []verify.Estimate        `json:"pass_at_k"`
	HarnessPassAtK []verify.Estimate        `json:"harness_pass_at_k"`
	StopReasons    map[agent.StopReason]int `json:"stop_reasons"`
	Statuses       map[verify.Status]int    `json:"statuses"`
	Tokens         attempt.Tokens           `json:"tokens"`
	Steps          int                      `json:"steps"`
	FormatErrors   int                      `json:"format_errors"`
	Split          verify.Split             `json:"split"`
	Suspicious     []suspect                `json:"suspicious"`
	Failures       []failure                `json:"failures"`
	Results        []taskResult             `json:"results"`
	Census         *censusReport            `json:"census,omitempty"`
	Seconds        evalSeconds              `json:"seconds"`
	Tries          int                      `json:"tries"`
}

type suspect struct {
	Task    string                 `json:"task"`
	Attempt int                    `json:"attempt"`
	Kinds   []verify.SuspicionKind `json:"kinds"`
}

type failure struct {
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Error   string `json:"error"`
}

type taskResult struct {
	Task     string          `json:"task"`
	Made     int             `json:"made"`
	Solved   int             `json:"solved"`
	Attempts []attemptResult `json:"attempts"`
}

type attemptResult struct {
	Attempt    int              `json:"attempt"`
	Reward     *float64         `json:"reward"`
	Status     verify.Status    `json:"status,omitempty"`
	StopReason agent.StopReason `json:"stop_reason,omitempty"`
	Steps      int              `json:"steps"`
	Tokens     attempt.Tokens   `json:"tokens"`
	Patch      string           `json:"patch,omitempty"`
}

// evalSeconds sums up where the time of the rollouts went.
type evalSeconds struct {
	Queue       float64 `json:"queue"`
	Model       float64 `json:"model"`
	Environment float64 `json:"environment"`
	Grading     float64 `json:"grading"`
	Total       float64 `json:"total"`
}

// report writes report.json, preds.json and rollouts.jsonl, and prints the report.
func (e *evaluation) report(outcomes []run.Outcome, complete bool) error {
	r := newEvalReport(outcomes, e.o.attempts, !e.o.noGrade)
	r.Complete, r.Model = complete, e.model.Name
	if e.census != nil {
		r.Census = &e.census.report
	}
	if err := writeJSON(e.dir.Path(reportFile), r); err != nil {
		return err
	}
	if e.o.attempts > 0 {
		if err := e.writePredictions(outcomes); err != nil {
			return err
		}
	}
	if e.o.model.tokens {
		if err := e.writeRollouts(outcomes); err != nil {
			return err
		}
	}
	e.progress.plan("", 0) // the live line has done its work
	if e.o.json {
		printJSON(e.d.Out, r)
		return nil
	}
	e.summary(r)
	return nil
}

func newEvalReport(outcomes []run.Outcome, attempts int, graded bool) evalReport {
	r := evalReport{
		Type: "report", Version: 1, Attempts: len(outcomes), PassAtK: []verify.Estimate{}, HarnessPassAtK: []verify.Estimate{},
		StopReasons: map[agent.StopReason]int{}, Statuses: map[verify.Status]int{}, Suspicious: []suspect{}, Failures: []failure{},
		Results: []taskResult{},
	}
	var strict, harness []verify.Attempts
	for _, o := range outcomes {
		if n := len(r.Results); n == 0 || r.Results[n-1].Task != o.Task {
			r.Results = append(r.Results, taskResult{Task: o.Task})
			strict, harness = append(strict, verify.Attempts{Task: o.Task}), append(harness, verify.Attempts{Task: o.Task})
		}
		r.add(o, &strict[len(strict)-1], &harness[len(harness)-1])
	}
	for i, s := range strict {
		r.Results[i].Made, r.Results[i].Solved = s.Made, s.Solved
	}
	r.Tasks = len(r.Results)
	r.Split = verify.SplitTasks(strict)
	for _, k := range ks(attempts) {
		if graded {
			r.PassAtK = append(r.PassAtK, verify.PassRate(strict, k))
			r.HarnessPassAtK = append(r.HarnessPassAtK, verify.PassRate(harness, k))
		}
	}
	return r
}

// ks are the k of pass@k that are worth a line: the powers of two, and all attempts together.
func ks(attempts int) []int {
	var all []int
	for k := 1; k < attempts; k *= 2 {
		all = append(all, k)
	}
	if attempts > 0 {
		all = append(all, attempts)
	}
	return all
}

// add counts one outcome in, for its task by either reading.
func (r *evalReport) add(o run.Outcome, strict, harness *verify.Attempts) {
	d := detailOf(o)
	result := attemptResult{
		Attempt: o.Index, Reward: o.Reward, Status: d.Status, StopReason: o.StopReason, Steps: d.Steps, Tokens: d.Tokens, Patch: d.Patch,
	}
	r.Results[len(r.Results)-1].Attempts = append(r.Results[len(r.Results)-1].Attempts, result)
	r.Tries += o.Tries
	switch {
	case o.Tries == 0:
		r.Missing++
		return
	case o.Failed():
		r.Failed++
		r.Failures = append(r.Failures, failure{o.Task, o.Index, o.Err})
		return
	}
	r.Finished++
	r.StopReasons[o.StopReason]++
	if d.Status != "" {
		r.Statuses[d.Status]++
	}
	if o.Reward != nil {
		strict.Made++
		harness.Made++
	}
	if solved(o) {
		r.Solved++
		strict.Solved++
	}
	if d.Status == verify.Resolved {
		r.Resolved++
		harness.Solved++
	}
	if len(d.Suspicious) > 0 {
		r.Suspicious = append(r.Suspicious, suspect{o.Task, o.Index, d.Suspicious})
	}
	r.Steps += d.Steps
	r.FormatErrors += d.FormatErrors
	r.Tokens.Prompt += d.Tokens.Prompt
	r.Tokens.Completion += d.Tokens.Completion
	r.Tokens.Cached += d.Tokens.Cached
	r.Seconds.Queue += o.Times.Queue
	r.Seconds.Model += o.Times.Model
	r.Seconds.Environment += o.Times.Environment
	r.Seconds.Grading += o.Times.Reward
	r.Seconds.Total += o.Times.Total
}

// summary prints the report for people.
func (e *evaluation) summary(r evalReport) {
	out := e.d.Out
	e.censusSummary()
	if r.Attempts == 0 {
		fmt.Fprintln(out, e.dir.Path(reportFile))
		return
	}
	for _, p := range r.PassAtK {
		fmt.Fprintf(out, "pass@%-4d %5.1f%%  (95%%: %.1f to %.1f, %d tasks)\n", p.K, 100*p.Rate, 100*p.Low, 100*p.High, p.Tasks)
	}
	fmt.Fprintf(out, "attempts  %d solved of %d", r.Solved, r.Finished)
	if r.Resolved != r.Solved {
		fmt.Fprintf(out, ", %d resolved by the harness's rules", r.Resolved)
	}
	if r.Failed > 0 {
		fmt.Fprintf(out, ", %d failed", r.Failed)
	}
	if r.Missing > 0 {
		fmt.Fprintf(out, ", %d not made", r.Missing)
	}
	fmt.Fprintf(out, "\ntasks     %d never, %d sometimes, %d always solved\n", len(r.Split.Never), len(r.Split.Sometimes), len(r.Split.Always))
	fmt.Fprint(out, "ends     ")
	for _, reason := range slices.Sorted(maps.Keys(r.StopReasons)) {
		fmt.Fprintf(out, " %s %d", reason, r.StopReasons[reason])
	}
	s := r.Seconds
	fmt.Fprintf(out, "\ntokens    %s read, %s written, in %d steps\n", count(int64(r.Tokens.Prompt)), count(int64(r.Tokens.Completion)), r.Steps)
	if s.Total > 0 {
		fmt.Fprintf(out, "time      %.0f%% model, %.0f%% sandbox, %.0f%% grading, %.0f%% waiting; %s a rollout\n", 100*s.Model/s.Total,
			100*s.Environment/s.Total, 100*s.Grading/s.Total, 100*s.Queue/s.Total, clock(secondsOf(s.Total/float64(max(1, r.Finished)))))
	}
	fmt.Fprintln(out, e.dir.Path(reportFile))
}

// tell prints a rollout as a line of JSON.
func (e *evaluation) tell(o run.Outcome) {
	d := detailOf(o)
	printJSON(e.d.Out, struct {
		Type    string `json:"type"`
		Version int    `json:"version"`
		Task    string `json:"task"`
		attemptResult
		Suspicious []verify.SuspicionKind `json:"suspicious,omitempty"`
		Error      string                 `json:"error,omitempty"`
		Seconds    run.Times              `json:"seconds"`
	}{
		"rollout", 1, o.Task,
		attemptResult{o.Index, o.Reward, d.Status, o.StopReason, d.Steps, d.Tokens, d.Patch},
		d.Suspicious, o.Err, o.Times,
	})
}

func secondsOf(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// readJSON reads a file that writeJSON wrote.
func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
