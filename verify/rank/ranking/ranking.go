package ranking

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// Ranking ranks the candidates of a source. Source, Rule and Store are required. Without a Judge or Tests, what is on
// record counts.
type Ranking struct {
	Source *Source
	Rule   rank.Rule
	Store  *Store
	// Tasks are the tasks by id, as far as judge and tests need them.
	Tasks map[string]env.Task
	Judge *judge.Judge
	Tests *Tests
	// Early judges and tests only what can still change the choice, the best scores first: the choice is the same, but
	// there is less to report.
	Early bool
	// Workers is how many requests or sandboxes there are at once: 4 when 0.
	Workers int
	// Observe, when not nil, is called for what happens, one call at a time.
	Observe func(Event)
	Log     *slog.Logger // nil is silent

	retries int // of the engine, for tests

	mu       sync.Mutex
	contests []*contest
	cost     Cost
}

// Tests says how candidates are tested.
type Tests struct {
	Runner *suite.Runner
	// Writer writes Attempts scripts of reproduction tests for each task; none when nil.
	Writer   *suite.Writer
	Attempts int
	// Command and Parser run the regression tests; found in the repository when empty.
	Command string
	Parser  string
	// Timeout is the longest that one script may run; 0 leaves it to the task or the grader.
	Timeout time.Duration
}

// Part is a part of the work.
type Part string

// The parts, in their order. Writing tests belongs to Baselines.
const (
	Judging   Part = "judging"
	Baselines Part = "tests on the base"
	Testing   Part = "tests of candidates"
)

// Event is something that happened: a part begins, or a job of it ended.
type Event struct {
	Part Part
	// Total is set where the part begins: how many jobs it has, beside those on record.
	Total int
	// Begin is set where the part begins.
	Begin bool
	// Run is the engine's event otherwise, Name what it is about, and Text how it ended.
	Run  run.Event
	Name string
	Text string
}

// Cost is what a ranking took, this time.
type Cost struct {
	// Requests were made to the judge, with Tokens read and written.
	Requests int `json:"requests"`
	Tokens   int `json:"tokens"`
	// BaseRuns and CandidateRuns are sandboxes in which a script ran, Written attempts of an agent to write tests.
	BaseRuns      int `json:"base_runs"`
	CandidateRuns int `json:"candidate_runs"`
	Written       int `json:"written"`
	// Failures are jobs without a result because of infrastructure.
	Failures int `json:"failures"`
}

// Run judges and tests as far as that is not on record, chooses, and returns the report. Where it fails, what was done
// until then is on record.
func (r *Ranking) Run(ctx context.Context) (*Report, error) {
	if err := r.choose(ctx); err != nil {
		return nil, err
	}
	return r.report()
}

// choose is Run without the report.
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
		c.filter()
		c.choice = r.Rule.Choose(c.candidates())
	}
	return nil
}

// recall takes the scores and results from the record that the verifier itself does not ask for: the curves are about
// every verifier.
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
				r.findResults(c, i)
			}
		}
	}
}

// settled reports whether nothing that judge or tests may say can change the choice: there is only one patch.
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

// work plays the jobs of one part.
func (r *Ranking) work(ctx context.Context, part Part, jobs map[run.Job]func(context.Context) (string, error)) error {
	plan := slices.SortedFunc(maps.Keys(jobs), compareJobs)
	if len(plan) == 0 {
		return nil
	}
	r.observe(Event{Part: part, Begin: true, Total: len(plan)})
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
	engine := run.Engine{Runner: runner, Log: nil, Options: run.Options{
		Workers: workers, Retries: r.retries, MaxFailures: max(12, 3*workers),
		Observe: func(e run.Event) {
			r.mu.Lock()
			text := texts[e.Job]
			if e.Kind == run.Failed {
				r.cost.Failures++
			}
			r.mu.Unlock()
			r.observe(Event{Part: part, Run: e, Name: e.Job.Task, Text: text})
		},
	}}
	_, err := engine.Run(ctx, plan)
	if err != nil {
		return fmt.Errorf("%s: %w", part, err)
	}
	return nil
}

const defaultWorkers = 4

func (r *Ranking) observe(e Event) {
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

// errNoTask says that nothing is known about the tasks.
var errNoTask = errors.New("to judge or test candidates, their tasks are needed: give --tasks")
