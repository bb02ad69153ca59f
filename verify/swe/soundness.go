package swe

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/verify"
)

// Soundness is the content of census.json: the result of grading every task without any change, which must fail, and
// with its reference solution, which must pass.
type Soundness struct {
	Version int `json:"version"`
	// Sound counts the tasks that pass the check.
	Sound int `json:"sound"`
	// Tasks that fail the check, by reason: the tests pass without a change; the tests fail with the reference
	// solution; there is no reference solution; the task cannot be graded at all; an infrastructure failure
	// occurred.
	PassesEmpty []string `json:"passes_empty"`
	FailsGold   []string `json:"fails_gold"`
	NoGold      []string `json:"no_gold"`
	Ungradable  []string `json:"ungradable"`
	Failed      []string `json:"failed"`
	// WeakEvidence: the evidence of a reward is weaker than what is required.
	WeakEvidence []string `json:"weak_evidence"`
	// Tasks with a reference solution whose rewards no canary confirms, because none of their tests can be
	// made wrong or because the reference solution does not pass with wrong ones among them. Their results contain the
	// reasons.
	NotCanaried []string `json:"not_canaried"`
	CanaryOff   []string `json:"canary_off"`

	Results []TaskSoundness `json:"results"`
}

// TaskSoundness is the result for one task.
type TaskSoundness struct {
	Task    string           `json:"task"`
	Verdict SoundnessVerdict `json:"verdict"`
	Empty   *SoundnessRun    `json:"empty"`
	Gold    *SoundnessRun    `json:"gold"`
	// Mutation is the mutation score of a sound task; nil if it was not measured.
	Mutation *MutationScore `json:"mutation,omitempty"`
}

// SoundnessRun is the grading of one of the two patches.
type SoundnessRun struct {
	Status     verify.Status          `json:"status,omitempty"`
	Reward     float64                `json:"reward"`
	Suspicious []verify.SuspicionKind `json:"suspicious,omitempty"`
	Error      string                 `json:"error,omitempty"`
	// Canary is the result of the canary; CanaryReason explains it. Evidence is the weakest evidence of a reward.
	Canary       verify.CanaryState `json:"canary,omitempty"`
	CanaryReason string             `json:"canary_reason,omitempty"`
	Evidence     verify.Strength    `json:"evidence,omitempty"`
}

// SoundnessVerdict names what is wrong with a task.
type SoundnessVerdict string

// The verdicts, named like the lists in Soundness.
const (
	Sound            SoundnessVerdict = "sound"
	PassesEmpty      SoundnessVerdict = "passes_empty"
	FailsGold        SoundnessVerdict = "fails_gold"
	NoGold           SoundnessVerdict = "no_gold"
	Ungradable       SoundnessVerdict = "ungradable"
	WeakEvidence     SoundnessVerdict = "weak_evidence"
	SoundnessUnknown SoundnessVerdict = "failed"
)

// SoundnessFile contains the Soundness, in the run's directory. soundnessDir, beside it, contains the evaluations.
const (
	SoundnessFile = "census.json"
	soundnessDir  = "census"
)

// soundnessGroup returns the group of a job of the check. The two jobs of a task are in different groups, because
// they are compared neither with each other nor with rollouts.
func soundnessGroup(patch, id string) string { return soundnessDir + ":" + patch + ":" + id }

// soundnessPatch returns which patch a job of the check is about.
func soundnessPatch(j run.Job) string {
	patch, _, _ := strings.Cut(strings.TrimPrefix(j.Group, soundnessDir+":"), ":")
	return patch
}

// SoundnessJob describes a job of the check.
func SoundnessJob(j run.Job) string {
	switch soundnessPatch(j) {
	case Empty:
		return j.Task + " with no change"
	case Gold:
		return j.Task + " with its solution"
	case mutating:
		return "the mutants of " + j.Task
	}
	return fmt.Sprintf("%s with mutant %d of its solution", j.Task, j.Index+1)
}

// SoundnessResult says in a few words what a job of the check has shown.
func SoundnessResult(o run.Outcome) string {
	var m mutantResult
	switch soundnessPatch(o.Job) {
	case mutating:
		return fmt.Sprintf("%d made", len(mutantsOf(o)))
	case trying:
		_ = json.Unmarshal(o.Detail, &m) // a failed job has no detail
	}
	switch {
	case m.Passes:
		return "the tests pass"
	case m.Invalid:
		return "does not compile"
	case m.Status == verify.Unresolved:
		return "the tests fail"
	}
	return strings.ReplaceAll(string(DetailOf(o).Status), "_", " ")
}

// soundnessPlan returns the jobs that grade the two patches of each task.
func (e *Evaluation) soundnessPlan() []run.Job {
	var plan []run.Job
	for _, id := range e.IDs {
		plan = append(plan, run.Job{Task: id, Group: soundnessGroup(Empty, id)})
		if e.Runner.Tasks[id].Tests.GoldPatch != "" {
			plan = append(plan, run.Job{Task: id, Group: soundnessGroup(Gold, id)})
		}
	}
	return plan
}

// Watch follows the soundness check. Its functions may be nil.
type Watch struct {
	// Begin is called before each part, with all of its jobs, including those that are done already.
	Begin func(part string, plan []run.Job)
	// Observe is called for the events of the jobs.
	Observe func(run.Event)
}

// CheckSoundness performs the soundness check, or the rest of it, and writes census.json.
func (e *Evaluation) CheckSoundness(ctx context.Context, w Watch) (*Soundness, error) {
	outcomes, err := e.soundnessJobs(ctx, "soundness check", e.soundnessPlan(), e.gradeBuiltin, w)
	if err != nil {
		return nil, err
	}
	s := newSoundness(e.IDs, e.Runner.Tasks, outcomes)
	if e.Mutants > 0 {
		if err := e.scoreMutants(ctx, s, w); err != nil {
			return nil, err
		}
	}
	return s, disk.WriteJSON(e.Dir.Path(SoundnessFile), s)
}

// soundnessJobs performs one part of the check.
func (e *Evaluation) soundnessJobs(
	ctx context.Context, part string, plan []run.Job, r run.RunnerFunc, w Watch,
) ([]run.Outcome, error) {
	if w.Begin != nil && len(plan) > 0 {
		w.Begin(part, plan)
	}
	return e.engine(r, 2, w.Observe).Run(ctx, plan)
}

// gradeBuiltin grades one task, with no change or with its reference solution.
func (e *Evaluation) gradeBuiltin(ctx context.Context, j run.Job) (run.Result, error) {
	task, name, patch := e.Runner.Tasks[j.Task], soundnessPatch(j), []byte{}
	if name == Gold {
		patch = []byte(task.Tests.GoldPatch)
	}
	v, err := e.Evaluator.Evaluate(ctx, task, patch)
	if err != nil {
		return run.Result{}, err
	}
	if err := v.Save(e.Dir.Path(soundnessDir, name, run.PathName(j.Task)), task, patch); err != nil {
		return run.Result{}, run.Abort(err)
	}
	return graded(v)
}

// newSoundness turns the outcomes of the check into a verdict on every task.
func newSoundness(ids []string, tasks map[string]env.Task, outcomes []run.Outcome) *Soundness {
	s := &Soundness{
		Version: 1, PassesEmpty: []string{}, FailsGold: []string{}, NoGold: []string{}, Ungradable: []string{},
		Failed: []string{}, WeakEvidence: []string{}, Results: []TaskSoundness{}, NotCanaried: []string{},
		CanaryOff: []string{},
	}
	runs := map[string]*SoundnessRun{}
	for _, o := range outcomes {
		d := DetailOf(o)
		r := &SoundnessRun{
			Status: d.Status, Suspicious: d.Suspicious, Error: o.Err, Canary: d.Canary, CanaryReason: d.CanaryReason,
			Evidence: d.Evidence,
		}
		if o.Reward != nil {
			r.Reward = *o.Reward
		}
		runs[o.Group] = r
	}
	lists := map[SoundnessVerdict]*[]string{
		PassesEmpty: &s.PassesEmpty, FailsGold: &s.FailsGold, NoGold: &s.NoGold, Ungradable: &s.Ungradable,
		SoundnessUnknown: &s.Failed, WeakEvidence: &s.WeakEvidence,
	}
	for _, id := range ids {
		t := TaskSoundness{Task: id, Empty: runs[soundnessGroup(Empty, id)], Gold: runs[soundnessGroup(Gold, id)]}
		t.Verdict = t.judge(tasks[id])
		s.Results = append(s.Results, t)
		if t.Gold != nil {
			switch t.Gold.Canary {
			case verify.CanaryNotCanaried:
				s.NotCanaried = append(s.NotCanaried, id)
			case verify.CanaryOff:
				s.CanaryOff = append(s.CanaryOff, id)
			}
		}
		if list, ok := lists[t.Verdict]; ok {
			*list = append(*list, id)
		} else {
			s.Sound++
		}
	}
	return s
}

func (s TaskSoundness) judge(t env.Task) SoundnessVerdict {
	switch {
	case verify.Gradable(t) != nil:
		return Ungradable
	case s.Empty.Error != "" || s.Gold != nil && s.Gold.Error != "":
		return SoundnessUnknown
	case s.Empty.Status == verify.Resolved:
		return PassesEmpty
	case s.Gold == nil:
		return NoGold
	case s.Gold.Status == verify.Ungradable && s.Gold.Evidence != "" && len(s.Gold.Suspicious) == 0:
		return WeakEvidence
	case s.Gold.Reward < 1:
		return FailsGold
	}
	return Sound
}

// SoundTasks returns the IDs of the tasks that pass the check, in order.
func (s *Soundness) SoundTasks() []string {
	var ids []string
	for _, t := range s.Results {
		if t.Verdict == Sound {
			ids = append(ids, t.Task)
		}
	}
	return ids
}
