package swe

import (
	"cmp"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"time"

	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/verify"
	"deepswe/verify/mutant"
)

// DefaultMutants is the usual number of mutants for each task.
const DefaultMutants = 8

// MutationScore says how well the tests of a task tell its solution from wrong ones: mutants of the solution, each of
// which is tried in a strict run of the tests.
type MutationScore struct {
	// Mutants is the number of mutants that were tried and have a result, Killed the number of those with which the
	// tests fail. Score is Killed divided by Mutants, and means nothing if Mutants is 0.
	Mutants int     `json:"mutants"`
	Killed  int     `json:"killed"`
	Score   float64 `json:"score"`
	// Invalid mutants do not compile. Failed ones have no result because of an infrastructure failure. Neither counts.
	Invalid int `json:"invalid"`
	Failed  int `json:"failed"`
	// Survivors are the mutants with which the tests pass, as differences to the solution.
	Survivors []string `json:"survivors"`
}

// The groups of the jobs that make the mutants of a task, and of those that try them.
const (
	mutating = "mutants"
	trying   = "mutant"
	// mutantTests is the part of the check that tries them.
	mutantTests = "mutant tests"
)

// mutants are the result of making the mutants of a task.
type mutants struct {
	Mutants []mutant.Mutant `json:"mutants"`
}

// mutantResult is what the journal stores about a mutant.
type mutantResult struct {
	Status  verify.Status `json:"status"`
	Passes  bool          `json:"passes"`
	Invalid bool          `json:"invalid,omitempty"`
}

// scoreMutants tries the mutants of all sound tasks, and adds the scores to the results.
func (e *Evaluation) scoreMutants(ctx context.Context, s *Soundness, w Watch) error {
	var making, trials []run.Job
	for _, id := range s.SoundTasks() {
		making = append(making, run.Job{Task: id, Group: soundnessGroup(mutating, id)})
	}
	made, err := e.soundnessJobs(ctx, "mutants", making, e.makeMutants, w)
	if err != nil {
		return err
	}
	of := map[string][]mutant.Mutant{}
	failed := map[string]bool{}
	for _, o := range made {
		of[o.Task], failed[o.Task] = mutantsOf(o), o.Failed()
		for i := range of[o.Task] {
			trials = append(trials, run.Job{Task: o.Task, Group: soundnessGroup(trying, o.Task), Index: i})
		}
	}
	outcomes, err := e.soundnessJobs(ctx, mutantTests, trials, func(ctx context.Context, j run.Job) (run.Result, error) {
		return e.tryMutant(ctx, j, of[j.Task][j.Index])
	}, w)
	if err != nil {
		return err
	}
	for i, t := range s.Results {
		switch {
		case failed[t.Task]:
			s.Results[i].Mutation = &MutationScore{Failed: 1, Survivors: []string{}}
		case len(of[t.Task]) > 0:
			s.Results[i].Mutation = newMutationScore(t.Task, of[t.Task], outcomes)
		}
	}
	return nil
}

func (e *Evaluation) makeMutants(ctx context.Context, j run.Job) (run.Result, error) {
	task := e.Runner.Tasks[j.Task]
	files, err := e.Evaluator.Solution(ctx, task)
	if err != nil {
		return run.Result{}, err
	}
	seed := uint64(j.Seed(0, 0)) //nolint:gosec // it is not negative
	detail, err := json.Marshal(mutants{mutant.Of([]byte(task.Tests.GoldPatch), files, e.Mutants, seed)})
	return run.Result{Detail: detail}, err
}

// mutantsOf returns the mutants that a job has made.
func mutantsOf(o run.Outcome) []mutant.Mutant {
	var m mutants
	_ = json.Unmarshal(o.Detail, &m) // a failed job has no detail
	return m.Mutants
}

// tryMutant runs the tests of a task with a mutant. The evaluation of a mutant that passes or is invalid is kept for
// a person to look at.
func (e *Evaluation) tryMutant(ctx context.Context, j run.Job, m mutant.Mutant) (run.Result, error) {
	task := e.Runner.Tasks[j.Task]
	patch := m.Patch([]byte(task.Tests.GoldPatch))
	v, err := e.mutantEvaluator(task).Evaluate(ctx, task, patch)
	if err != nil {
		return run.Result{}, err
	}
	// Whether a test passes plainly does not matter here: the solution does not always do so either.
	passes := v.Solved() || task.Tests.RewardFile == "" && v.Status == verify.Resolved
	result := mutantResult{Status: v.Status, Passes: passes, Invalid: !passes && invalid(v)}
	if passes || result.Invalid {
		dir := e.Dir.Path(soundnessDir, mutating, run.PathName(j.Task), strconv.Itoa(j.Index))
		if err := v.Save(dir, task, patch); err != nil {
			return run.Result{}, run.Abort(err)
		}
	}
	detail, err := json.Marshal(result)
	return run.Result{Times: run.Times{Reward: v.Seconds}, Detail: detail}, err
}

// mutantEvaluator returns the evaluator for the mutants of a task: one strict run of the tests. Mutants that do not end
// are common, so the limit is not much longer than the evaluation of the solution took.
func (e *Evaluation) mutantEvaluator(t env.Task) *verify.Evaluator {
	limit := cmp.Or(e.Evaluator.Timeout, t.Tests.Timeout, verify.EvaluationTimeout)
	if gold, ok := e.Dir.Find(run.Job{Task: t.ID, Group: soundnessGroup(Gold, t.ID)}); ok && gold.Times.Reward > 0 {
		took := time.Duration(gold.Times.Reward * float64(time.Second))
		limit = min(limit, max(leastMutantLimit, 2*took))
	}
	return &verify.Evaluator{
		Provider: e.Evaluator.Provider, Timeout: limit, Network: e.Evaluator.Network, Run: e.Evaluator.Run, Training: true,
		Canary: verify.CanaryNever,
	}
}

// leastMutantLimit is the shortest limit for the tests of a mutant, unless the task's own is shorter.
const leastMutantLimit = 30 * time.Second

// rejected matches what compilers and interpreters print about a program that is not valid.
var rejected = regexp.MustCompile(
	`\[(build|setup) failed\]|\b(SyntaxError|IndentationError|TabError)\b|[Ss]yntax error|error (TS|CS)\d+:|` +
		`error: could not compile|COMPILATION ERROR|\.\w+:\d+(:\d+)?: error:`)

// invalid reports whether no test could run, because a mutant does not compile.
func invalid(v verify.Evaluation) bool {
	return v.Status == verify.PatchFailed || len(v.Fixed) == 0 && rejected.Match(v.Log)
}

func newMutationScore(id string, all []mutant.Mutant, outcomes []run.Outcome) *MutationScore {
	s := &MutationScore{Survivors: []string{}}
	for _, o := range outcomes {
		if o.Task != id {
			continue
		}
		var r mutantResult
		switch err := json.Unmarshal(o.Detail, &r); {
		case o.Failed() || err != nil:
			s.Failed++
		case r.Invalid:
			s.Invalid++
		case r.Passes:
			s.Mutants++
			s.Survivors = append(s.Survivors, all[o.Index].Diff())
		default:
			s.Mutants++
			s.Killed++
		}
	}
	if s.Mutants > 0 {
		s.Score = float64(s.Killed) / float64(s.Mutants)
	}
	return s
}

// WeakestTests returns the tasks with mutation scores below 1, the lowest first.
func (s *Soundness) WeakestTests() []TaskSoundness {
	weak := slices.DeleteFunc(slices.Clone(s.Results), func(t TaskSoundness) bool {
		return t.Mutation == nil || len(t.Mutation.Survivors) == 0
	})
	slices.SortStableFunc(weak, func(a, b TaskSoundness) int { return cmp.Compare(a.Mutation.Score, b.Mutation.Score) })
	return weak
}

// MutationScores returns the mutation scores of tasks by their ids; those without a mutant that has a result have none.
func (s *Soundness) MutationScores() map[string]float64 {
	scores := map[string]float64{}
	for _, t := range s.Results {
		if t.Mutation != nil && t.Mutation.Mutants > 0 {
			scores[t.Task] = t.Mutation.Score
		}
	}
	return scores
}
