package ranking

import (
	"cmp"
	"context"
	"fmt"

	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/verify/rank/suite"
)

// test runs the tests that are not recorded: each script on the base, then on each distinct patch.
func (r *Ranking) test(ctx context.Context) error {
	if r.Tests != nil && len(r.Tasks) == 0 {
		return errNoTask
	}
	if r.Early {
		return r.testEarly(ctx)
	}
	if err := r.prepareScripts(ctx, r.contests, suite.Regression, suite.Reproduction); err != nil {
		return err
	}
	jobs := map[run.Job]func(context.Context) (string, error){}
	for _, c := range r.contests {
		for _, i := range c.distinct() {
			r.planResults(c, i, jobs)
		}
	}
	return r.work(ctx, Testing, jobs)
}

// testEarly tests the candidates that can still change the choice of their task, best scores first, a few at a time:
// first with the regression tests, then with the others.
func (r *Ranking) testEarly(ctx context.Context) error {
	for _, c := range r.contests {
		for _, kind := range []suite.Kind{suite.Regression, suite.Reproduction} {
			if r.settled(c) || kind == suite.Reproduction && len(c.left(r.Rule)) < 2 {
				break
			}
			if err := r.prepareScripts(ctx, []*contest{c}, kind); err != nil {
				return err
			}
			if err := r.testKind(ctx, c, kind); err != nil {
				return err
			}
		}
	}
	return nil
}

// testKind runs the scripts of a kind on the candidates of a task, as long as the results can change the choice.
func (r *Ranking) testKind(ctx context.Context, c *contest, kind suite.Kind) error {
	for _, i := range c.distinct() {
		if c.results[c.patches[i]] != nil {
			r.findResults(c, i) // with places for the new scripts
		}
	}
	tested := map[string]bool{}
	for {
		next := c.toTest(r.Rule, kind, tested)
		if len(next) == 0 || !c.testedBy(kind) {
			return nil
		}
		jobs := map[run.Job]func(context.Context) (string, error){}
		for _, i := range next[:min(len(next), max(1, r.Workers/2))] {
			tested[c.patches[i]] = true
			r.planResults(c, i, jobs)
		}
		if err := r.work(ctx, Testing, jobs); err != nil {
			return err
		}
	}
}

// prepareScripts makes the scripts of some kinds that are not recorded, and runs them on the base.
func (r *Ranking) prepareScripts(ctx context.Context, contests []*contest, kinds ...suite.Kind) error {
	jobs := map[run.Job]func(context.Context) (string, error){}
	for _, c := range contests {
		for _, kind := range kinds {
			if err := r.planBaselines(c, kind, jobs); err != nil {
				return err
			}
		}
	}
	if err := r.work(ctx, Baselines, jobs); err != nil {
		return err
	}
	for _, c := range contests {
		r.once(c)
	}
	return nil
}

// planBaselines takes the scripts of a kind for a task from the store, and plans jobs for those that are missing.
func (r *Ranking) planBaselines(c *contest, kind suite.Kind, jobs map[run.Job]func(context.Context) (string, error),
) error {
	if r.Tests == nil {
		for _, b := range r.Store.recorded(c.set.Task) {
			if b.Script.Kind == kind {
				c.baselines = append(c.baselines, b)
			}
		}
		return nil
	}
	task, err := r.task(c.set.Task)
	if err != nil {
		return err
	}
	from, to := 0, 1
	if kind == suite.Reproduction {
		if from = 1; r.Tests.Writer != nil {
			to += r.Tests.Attempts
		}
	}
	if len(c.distinct()) == 0 {
		return nil // nothing to compare
	}
	for n := from; n < to; n++ {
		key := r.baselineKey(task, n)
		if k := r.Store.baselines.find(key); k != nil {
			c.baselines = append(c.baselines, k.Baseline)
			continue
		}
		jobs[run.Job{Task: task.ID, Group: task.ID, Index: n}] = func(ctx context.Context) (string, error) {
			return r.baselineOne(ctx, c, task, n, key)
		}
		// Until it has run, or if it fails permanently.
		c.baselines = append(c.baselines, suite.Baseline{
			Script: suite.Script{Name: scriptName(n), Kind: kind}, Problem: "not run: infrastructure failure",
		})
	}
	return nil
}

func scriptName(n int) string {
	if n == 0 {
		return string(suite.Regression)
	}
	return fmt.Sprintf("%s-%d", suite.Reproduction, n)
}

// baselineKey identifies the result of a script on the base: the state of the task, and how the script is made.
func (r *Ranking) baselineKey(t env.Task, n int) string {
	how := struct {
		Task, Command, Parser string
		Timeout               string
		Writer                string
		N                     int
	}{Task: r.Tests.Runner.Evaluator.Key(t, nil), Timeout: r.Tests.Timeout.String(), N: n}
	if n == 0 {
		how.Command, how.Parser = r.Tests.Command, r.Tests.Parser
	} else {
		how.Writer = r.Tests.Writer.Key(t)
	}
	return disk.Digest(how)
}

// baselineOne makes one script and runs it on the base.
func (r *Ranking) baselineOne(ctx context.Context, c *contest, t env.Task, n int, key string) (string, error) {
	s := suite.Script{
		Name: scriptName(n), Kind: suite.Regression, Command: r.Tests.Command, Parser: r.Tests.Parser,
		Timeout: r.Tests.Timeout,
	}
	var b suite.Baseline
	if n > 0 {
		written, problem, err := r.Tests.Writer.Write(ctx, run.Job{Task: t.ID, Group: t.ID, Index: n - 1})
		if err != nil {
			return "", err
		}
		r.count(func(c *Cost) { c.Written++ })
		s = written
		s.Name, s.Kind, s.Timeout = scriptName(n), suite.Reproduction, r.Tests.Timeout
		b = suite.Baseline{Script: s, Problem: problem, Kept: []string{}, Dropped: []suite.Dropped{}}
	}
	if b.Problem == "" {
		var err error
		if b, err = r.Tests.Runner.Base(ctx, t, s); err != nil {
			return "", err
		}
		r.count(func(c *Cost) { c.BaseRuns++ })
	}
	if err := r.Store.baselines.keep(&keptBaseline{Key: key, Task: t.ID, Baseline: b}); err != nil {
		return "", run.Abort(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.baselines[n] = b
	if b.Problem != "" {
		return fmt.Sprintf("%s: no tests: %s", b.Script.Name, b.Problem), nil
	}
	return fmt.Sprintf("%s: %d tests on the base, %d dropped", b.Script.Name, len(b.Kept), len(b.Dropped)), nil
}

// once leaves out identical scripts, whose tests would count twice.
func (r *Ranking) once(c *contest) {
	seen := map[string]string{}
	for n, b := range c.baselines {
		if b.Problem != "" {
			continue
		}
		s := b.Script
		s.Name = ""
		if first, twice := seen[s.Key()]; twice {
			c.baselines[n].Problem = "the same as " + first
			c.baselines[n].Kept = nil
			continue
		}
		seen[s.Key()] = b.Script.Name
	}
}

// findResults takes the results of a patch from the store. It returns the keys of those that are missing, by the
// script's index.
func (r *Ranking) findResults(c *contest, i int) (missing map[int]string) {
	patch := c.patches[i]
	c.results[patch] = make([]*suite.Result, len(c.baselines))
	missing = map[int]string{}
	for n, b := range c.baselines {
		if b.Problem != "" {
			continue
		}
		key := resultKey(c.set.Task, b, patch)
		if k := r.Store.results.find(key); k != nil {
			c.results[patch][n] = &k.Result
			continue
		}
		missing[n] = key
	}
	return missing
}

// planResults takes the results of a patch from the store, and plans jobs for those that are missing.
func (r *Ranking) planResults(c *contest, i int, jobs map[run.Job]func(context.Context) (string, error)) {
	for n, key := range r.findResults(c, i) {
		if r.Tests == nil {
			c.failures[i] = NotTested
			c.lost[c.patches[i]] = append(c.lost[c.patches[i]], n)
			continue
		}
		// The index is unique among the scripts and patches of the task.
		j := run.Job{Task: c.set.Task, Group: c.set.Task, Index: i*len(c.baselines) + n}
		jobs[j] = func(ctx context.Context) (string, error) { return r.resultOne(ctx, c, i, n, key) }
	}
}

// resultKey identifies the result of a script on a patch: the state of the task, the script with the tests that count,
// the patch, and the grader.
func resultKey(task string, b suite.Baseline, patch string) string {
	return disk.Digest(struct {
		Task, State, Script, Grader, Patch string
		Kept                               []string
	}{task, b.State, b.Script.Key(), suite.Grader, patch, b.Kept})
}

// NotTested begins the reason why a candidate lacks results.
const NotTested = "not tested"

// resultOne runs one script on one patch.
func (r *Ranking) resultOne(ctx context.Context, c *contest, i, n int, key string) (string, error) {
	task, err := r.task(c.set.Task)
	if err != nil {
		return "", err
	}
	patch, err := c.set.Entries[i].ReadPatch()
	if err != nil {
		return "", run.Abort(err)
	}
	b := c.baselines[n]
	result, err := r.Tests.Runner.Run(ctx, task, b, patch)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		c.failures[i] = NotTested + ": " + err.Error()
		c.lost[c.patches[i]] = append(c.lost[c.patches[i]], n)
		return "", err
	}
	r.count(func(c *Cost) { c.CandidateRuns++ })
	kept := &keptResult{Key: key, Task: task.ID, Script: b.Script.Name, Patch: c.patches[i], Result: result}
	if err := r.Store.results.keep(kept); err != nil {
		return "", run.Abort(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.results[c.patches[i]][n] = &kept.Result
	c.failures[i] = ""
	if result.Rejected != "" {
		return fmt.Sprintf("#%d: %s", c.set.Entries[i].ID, result.Rejected), nil
	}
	return fmt.Sprintf("#%d: %s: %d of %d pass", c.set.Entries[i].ID, b.Script.Name, len(result.Passed), len(b.Kept)), nil
}

func (r *Ranking) count(add func(*Cost)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	add(&r.cost)
}

// compareJobs orders jobs by task.
func compareJobs(a, b run.Job) int {
	return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.Index, b.Index))
}
