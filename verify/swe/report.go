package swe

import (
	"slices"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/verify"
)

// ReportFile contains the report on a run.
const ReportFile = "report.json"

// EvaluationReport is the content of an evaluation's report.json. Everything except Seconds, Tries and the texts of
// Failures depends only on the model's replies, however often the run was stopped and resumed.
type EvaluationReport struct {
	Type    string `json:"type"` // "report"
	Version int    `json:"version"`
	// Complete is false for a run that was stopped before its end.
	Complete bool   `json:"complete"`
	Model    string `json:"model,omitempty"`
	Tasks    int    `json:"tasks"`
	Attempts int    `json:"attempts"`
	// Finished attempts have a verdict, Failed ones have none because of an infrastructure failure, and Missing
	// ones were not made.
	Finished int `json:"finished"`
	Failed   int `json:"failed"`
	Missing  int `json:"missing"`
	// Solved counts attempts by the stricter reading, Resolved by the official harness's rules.
	Solved   int `json:"solved"`
	Resolved int `json:"resolved"`

	// Contexts compares context lengths, if there are several. Everything else is about the largest.
	Contexts []ContextResult `json:"contexts,omitempty"`

	PassAtK        []Estimate               `json:"pass_at_k"`
	HarnessPassAtK []Estimate               `json:"harness_pass_at_k"`
	StopReasons    map[agent.StopReason]int `json:"stop_reasons"`
	Statuses       map[verify.Status]int    `json:"statuses"`
	Tokens         attempt.Tokens           `json:"tokens"`
	Steps          int                      `json:"steps"`
	FormatErrors   int                      `json:"format_errors"`
	Split          Split                    `json:"split"`
	Suspicious     []Suspect                `json:"suspicious"`
	// Canaries counts the attempts for which the first run of the tests gave a reward, by the result of their
	// canary. Unconfirmed are the tasks among them whose rewards no canary confirms.
	Canaries    map[verify.CanaryState]int `json:"canaries"`
	Unconfirmed []Unconfirmed              `json:"unconfirmed"`
	// Varied counts the solved attempts whose tests also ran with other values, Overfits those of them that fail then.
	Varied    int          `json:"varied"`
	Overfits  int          `json:"overfits"`
	Failures  []Failure    `json:"failures"`
	Results   []TaskResult `json:"results"`
	Soundness *Soundness   `json:"census,omitempty"`
	Seconds   Seconds      `json:"seconds"`
	Tries     int          `json:"tries"`
}

// Suspect is an attempt that the stricter reading finds suspicious.
type Suspect struct {
	Task    string                 `json:"task"`
	Attempt int                    `json:"attempt"`
	Kinds   []verify.SuspicionKind `json:"kinds"`
}

// Unconfirmed is a task whose rewards no canary confirms.
type Unconfirmed struct {
	Task   string             `json:"task"`
	Canary verify.CanaryState `json:"canary"`
	Reason string             `json:"reason"`
}

// Failure is an attempt that ended with an infrastructure failure.
type Failure struct {
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Error   string `json:"error"`
}

// TaskResult is the outcome of the attempts at one task.
type TaskResult struct {
	Task     string          `json:"task"`
	Made     int             `json:"made"`
	Solved   int             `json:"solved"`
	Attempts []AttemptResult `json:"attempts"`
}

// AttemptResult is the outcome of one attempt.
type AttemptResult struct {
	Attempt    int              `json:"attempt"`
	Reward     *float64         `json:"reward"`
	Status     verify.Status    `json:"status,omitempty"`
	StopReason agent.StopReason `json:"stop_reason,omitempty"`
	Steps      int              `json:"steps"`
	Tokens     attempt.Tokens   `json:"tokens"`
	Patch      string           `json:"patch,omitempty"`
	// Confirmed is the strictest check that a reward of 1 has passed; Canary is the result of the canary.
	Confirmed string             `json:"confirmed,omitempty"`
	Canary    verify.CanaryState `json:"canary,omitempty"`
	Evidence  verify.Strength    `json:"evidence,omitempty"`
}

// NewAttemptResult converts an outcome of a Runner's job.
func NewAttemptResult(o run.Outcome) AttemptResult {
	d := DetailOf(o)
	return AttemptResult{
		Attempt: o.Index, Reward: o.Reward, Status: d.Status, StopReason: o.StopReason, Steps: d.Steps, Tokens: d.Tokens,
		Patch: d.Patch, Confirmed: d.Confirmed, Canary: d.Canary, Evidence: d.Evidence,
	}
}

// Seconds is how the time of the rollouts was spent, in total.
type Seconds struct {
	Queue       float64 `json:"queue"`
	Model       float64 `json:"model"`
	Environment float64 `json:"environment"`
	Grading     float64 `json:"grading"`
	Total       float64 `json:"total"`
}

// Report writes report.json and the predictions for the outcomes of Run, and returns the report. complete is false
// for a run that was stopped; s is nil if soundness was not checked.
func (e *Evaluation) Report(outcomes []run.Outcome, complete bool, s *Soundness) (EvaluationReport, error) {
	own := slices.DeleteFunc(slices.Clone(outcomes), func(o run.Outcome) bool { return o.Group != o.Task })
	r := newReport(own, e.K, e.Runner.Evaluator != nil)
	r.Complete, r.Model, r.Soundness = complete, e.Runner.Attempt.ModelName, s
	r.Contexts = ByContext(outcomes, e.Runner.Attempt.Limits.Context)
	if err := disk.WriteJSON(e.Dir.Path(ReportFile), r); err != nil {
		return r, err
	}
	return r, e.writePredictions(own)
}

func newReport(outcomes []run.Outcome, attempts int, graded bool) EvaluationReport {
	r := EvaluationReport{
		Type: "report", Version: 1, Attempts: len(outcomes), PassAtK: []Estimate{}, HarnessPassAtK: []Estimate{},
		StopReasons: map[agent.StopReason]int{}, Statuses: map[verify.Status]int{}, Suspicious: []Suspect{},
		Failures: []Failure{}, Results: []TaskResult{}, Canaries: map[verify.CanaryState]int{}, Unconfirmed: []Unconfirmed{},
	}
	var strict, harness []Attempts
	for _, o := range outcomes {
		if n := len(r.Results); n == 0 || r.Results[n-1].Task != o.Task {
			r.Results = append(r.Results, TaskResult{Task: o.Task})
			strict, harness = append(strict, Attempts{Task: o.Task}), append(harness, Attempts{Task: o.Task})
		}
		r.add(o, &strict[len(strict)-1], &harness[len(harness)-1])
	}
	for i, s := range strict {
		r.Results[i].Made, r.Results[i].Solved = s.Made, s.Solved
	}
	r.Tasks = len(r.Results)
	r.Split = splitTasks(strict)
	for _, k := range ks(attempts) {
		if graded {
			r.PassAtK = append(r.PassAtK, PassRate(strict, k))
			r.HarnessPassAtK = append(r.HarnessPassAtK, PassRate(harness, k))
		}
	}
	return r
}

// ks returns the values of k for which pass@k is reported: powers of two, and the number of attempts.
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

// add counts one outcome in the report, and in the attempts at its task: strict counts it as solved by the stricter
// reading, harness by the official harness's rules.
func (r *EvaluationReport) add(o run.Outcome, strict, harness *Attempts) {
	task := &r.Results[len(r.Results)-1]
	task.Attempts = append(task.Attempts, NewAttemptResult(o))
	r.Tries += o.Tries
	switch {
	case o.Tries == 0:
		r.Missing++
		return
	case o.Failed():
		r.Failed++
		r.Failures = append(r.Failures, Failure{o.Task, o.Index, o.Err})
		return
	}
	d := DetailOf(o)
	r.Finished++
	r.StopReasons[o.StopReason]++
	if d.Status != "" {
		r.Statuses[d.Status]++
	}
	if o.Reward != nil {
		strict.Made++
		harness.Made++
	}
	if Solved(o) {
		r.Solved++
		strict.Solved++
	}
	if d.Status == verify.Resolved {
		r.Resolved++
		harness.Solved++
	}
	if d.Canary != "" {
		r.Canaries[d.Canary]++
		r.unconfirmed(o.Task, d)
	}
	if overfit, tried := d.Overfit(); tried {
		r.Varied++
		if overfit {
			r.Overfits++
		}
	}
	if len(d.Suspicious) > 0 {
		r.Suspicious = append(r.Suspicious, Suspect{o.Task, o.Index, d.Suspicious})
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

// unconfirmed records, once, a task whose rewards no canary confirms.
func (r *EvaluationReport) unconfirmed(task string, d Detail) {
	if d.Canary != verify.CanaryNotCanaried && d.Canary != verify.CanaryOff && d.Canary != verify.CanaryDisabled {
		return
	}
	if n := len(r.Unconfirmed); n == 0 || r.Unconfirmed[n-1].Task != task {
		r.Unconfirmed = append(r.Unconfirmed, Unconfirmed{task, d.Canary, d.CanaryReason})
	}
}
