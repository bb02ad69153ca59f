package ranking

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/verify/rank"
	"deepswe/verify/rank/judge"
	"deepswe/verify/rank/suite"
)

// Ranking ranks the candidates of a source. Source, Rule and Store are required. Without a Judge or Tests, only
// recorded results count.
type Ranking struct {
	Source *Source
	Rule   rank.Rule
	Store  *Store
	// Tasks holds the tasks that judge and tests need, by id.
	Tasks map[string]env.Task
	Judge *judge.Judge
	Tests *Tests
	// Early judges and tests only what can still change the choice, best scores first, and has reproduction tests written
	// only where regression tests leave several patches. The choice is the same, but the report contains less.
	Early bool
	// Workers is the number of requests or sandboxes at once; 0 means 4.
	Workers int
	// Observe, if not nil, is called for each event, one call at a time.
	Observe func(Event)

	retries int // the engine's retries, for tests

	mu       sync.Mutex
	contests []*contest
	cost     Cost
}

// Tests says how candidates are tested.
type Tests struct {
	Runner *suite.Runner
	// Writer writes Attempts scripts of reproduction tests for each task. If nil, there are none.
	Writer   *suite.Writer
	Attempts int
	// Command runs the regression tests, and Parser parses their log. If empty, they are detected in the repository.
	Command string
	Parser  string
	// Timeout limits the run time of one script; 0 means the task's or the grader's limit.
	Timeout time.Duration
}

// Part is a phase of a ranking.
type Part string

// The phases, in order. Baselines includes writing tests.
const (
	Judging   Part = "judging"
	Baselines Part = "tests on the base"
	Testing   Part = "tests of candidates"
)

// Event reports that a phase begins, or that one of its jobs has ended.
type Event struct {
	Part Part
	// Total is the number of jobs in the phase without those on record, if Begin is set.
	Total int
	// Begin is set if the phase begins.
	Begin bool
	// Otherwise, Run is the engine's event, Name what it is about, and Text how it ended.
	Run  run.Event
	Name string
	Text string
}

// Cost is what this run of a ranking has cost.
type Cost struct {
	// Requests is the number of requests to the judge; Tokens counts what it read and wrote.
	Requests int `json:"requests"`
	Tokens   int `json:"tokens"`
	// BaseRuns and CandidateRuns count sandboxes in which a script ran, Written the agent's attempts to write tests.
	BaseRuns      int `json:"base_runs"`
	CandidateRuns int `json:"candidate_runs"`
	Written       int `json:"written"`
	// Failures counts jobs that failed for infrastructure reasons.
	Failures int `json:"failures"`
}

// Run judges and tests what is not recorded yet, chooses, and returns the report. If it fails, the results so far are
// recorded.
func (r *Ranking) Run(ctx context.Context) (*Report, error) {
	if err := r.choose(ctx); err != nil {
		return nil, err
	}
	return r.report()
}

// choose does what Run does, except for the report.
func (r *Ranking) choose(ctx context.Context) error {
	if err := r.prepare(); err != nil {
		return err
	}
	r.recall()
	if r.Rule.Verifier.Judges() {
		if err := r.judge(ctx); err != nil {
			return err
		}
	}
	if r.Rule.Verifier.Tests() {
		if err := r.test(ctx); err != nil {
			return err
		}
	}
	for _, c := range r.contests {
		c.filter(r.Rule)
		c.choice = r.Rule.Choose(c.candidates())
	}
	return nil
}

// recall adds the recorded scores and results that the verifier does not need, because the curves show every verifier.
func (r *Ranking) recall() {
	for _, c := range r.contests {
		if !r.Rule.Verifier.Judges() {
			for i, e := range c.set.Entries {
				if k := r.Store.judgements.find(place(c.set.Task, e.ID, c.patches[i])); k != nil && c.patches[i] != "" {
					c.judgements[i] = &k.Judgement
				}
			}
		}
		if !r.Rule.Verifier.Tests() {
			c.baselines = r.Store.recorded(c.set.Task)
			r.once(c)
			for _, i := range c.distinct() {
				for n := range r.findResults(c, i) {
					c.lost[c.patches[i]] = append(c.lost[c.patches[i]], n)
				}
			}
		}
	}
}

// settled reports whether there is only one patch, so that neither judge nor tests can change the choice.
func (r *Ranking) settled(c *contest) bool { return r.Early && len(c.distinct()) < 2 }

// prepare reads the patches.
func (r *Ranking) prepare() error {
	r.contests = nil
	for _, set := range r.Source.Tasks {
		c, err := newContest(set)
		if err != nil {
			return err
		}
		r.contests = append(r.contests, c)
	}
	return nil
}

// work runs the jobs of one phase.
func (r *Ranking) work(ctx context.Context, part Part, jobs map[run.Job]func(context.Context) (string, error)) error {
	plan := slices.SortedFunc(maps.Keys(jobs), compareJobs)
	if len(plan) == 0 {
		return nil
	}
	r.observeEvent(Event{Part: part, Begin: true, Total: len(plan)})
	texts := map[run.Job]string{}
	runner := run.RunnerFunc(func(ctx context.Context, j run.Job) (run.Result, error) {
		text, err := jobs[j](ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		texts[j] = text
		return run.Result{}, err
	})
	workers := r.Workers
	if workers < 1 {
		workers = defaultWorkers
	}
	engine := run.Engine{Runner: runner, Options: run.Options{
		Workers: workers, Retries: r.retries, MaxFailures: max(12, 3*workers),
		Observe: func(e run.Event) {
			r.mu.Lock()
			text := texts[e.Job]
			if e.Kind == run.Failed {
				r.cost.Failures++
			}
			r.mu.Unlock()
			r.observeEvent(Event{Part: part, Run: e, Name: e.Job.Task, Text: text})
		},
	}}
	_, err := engine.Run(ctx, plan)
	if err != nil {
		return fmt.Errorf("%s: %w", part, err)
	}
	return nil
}

const defaultWorkers = 4

func (r *Ranking) observeEvent(e Event) {
	if r.Observe != nil {
		r.Observe(e)
	}
}

// task returns a task that judge or tests need.
func (r *Ranking) task(id string) (env.Task, error) {
	t, ok := r.Tasks[id]
	if !ok {
		return t, run.Abort(fmt.Errorf("the dataset has no task %s", id))
	}
	return t, nil
}

var errNoTask = errors.New("to judge or test candidates, their tasks are needed: give --tasks")
