package mine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"deepswe/agent"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/disk"
	history "deepswe/env/mine"
	"deepswe/verify"
	"deepswe/verify/swe"
)

// The reasons why what looks like a task is none.
const (
	PassesEmpty history.Reason = "its tests pass without a change when they are graded"
	FailsGold   history.Reason = "its own change is not rewarded when it is graded"
	Exposed     history.Reason = "what is installed has a copy of the change"
	Ungraded    history.Reason = "an infrastructure failure: it is tried again next time"
	SameTests   history.Reason = "the same tests of the same sources as in a newer task"
)

// Miner judges candidates. Builder, Provider, Dir, Workers and Note are required.
type Miner struct {
	Builder  history.Builder
	Provider env.Provider
	// Dir remembers what was judged, so that nothing is judged twice.
	Dir     *run.Dir
	Workers int
	// Mutants is the number of wrong solutions of each task by which its tests are measured; 0 tries none.
	Mutants int
	// Issues are the texts of issues that commits may name.
	Issues history.Issues
	// Setup are the commands of a set-up, or [cli.SetupAuto], which is the default, or
	// [cli.SetupNone].
	Setup []string
	// Again judges candidates again that may be no tasks only for want of something on this machine.
	Again bool
	// Note is told what a set-up does.
	Note func(format string, args ...any)
	// Synthetic are the kinds of bugs to make, besides those of the history: [history.Reverting] and the like.
	Synthetic []string
	// Writer writes the statements that no issue gives. Without it, they are the commits' messages.
	Writer agent.Model
	// BugWriter writes the bugs of [history.Writing]. Without it, only those that were written before are used.
	BugWriter agent.Model

	eras     sync.Map               // of *era, the set-ups of this process
	parents  map[[2]string][]string // what [history.Builder.Parents] returns
	newest   map[string]time.Time   // the time of the newest candidate of each era
	changed  []string               // the names of the source files that the candidates change, without their directories
	outsides sync.Map               // of *outside, by environment
	// downloads is the directory with what npm downloads for the set-ups of this process; empty if they share nothing.
	downloads string
}

// Mined is what has become of candidates.
type Mined struct {
	// Tasks are sound, the oldest first.
	Tasks []env.Task
	// Validated counts the candidates whose tests fail without their change and pass with it; not all of them are sound.
	Validated int
	// Losses are the candidates that did not become tasks, the newest first.
	Losses []Loss
	// Made counts the bugs that were made, Synthetic is what has become of them; nil if none were wanted.
	Made      int
	Synthetic *Mined
}

// Loss is a candidate that did not become a task.
type Loss struct {
	Commit  string         `json:"commit"`
	Subject string         `json:"subject"`
	Reason  history.Reason `json:"reason"`
	Detail  string         `json:"detail,omitempty"`
}

func (m *Miner) name() string { return filepath.Base(m.Dir.Path()) }

// runsGroup is the group of the job that judges a candidate.
func runsGroup(id string) string { return "runs:" + id }

// Job describes a job of the miner.
func Job(j run.Job) string {
	switch j.Group {
	case runsGroup(j.Task):
		return "the tests of " + j.Task
	case statementGroup(j.Task):
		return "the statement of " + j.Task
	case bugGroup(j.Task):
		return "a bug in the change of " + j.Task
	}
	return swe.SoundnessJob(j)
}

// Describe says in a few words what a job of the miner has shown.
func Describe(o run.Outcome) string {
	if o.Group == statementGroup(o.Task) || o.Group == bugGroup(o.Task) {
		if why := readWritten(o).Why; why != "" {
			return "none: " + why
		}
		return "written"
	}
	if o.Group != runsGroup(o.Task) {
		return swe.SoundnessResult(o)
	}
	var j Judged
	_ = json.Unmarshal(o.Detail, &j) // the miner has written it
	if j.Reason != "" {
		return strings.TrimSuffix(string(j.Reason)+": "+j.Detail, ": ")
	}
	tests := j.Task.Tests
	return fmt.Sprintf("fail without the change: %d, pass with and without it: %d", len(tests.FailToPass),
		len(tests.PassToPass))
}

// Mine judges those of the candidates, newest first, that no earlier run has judged, and checks that the tasks left are
// sound. Then it makes bugs, if any are wanted, and judges these.
func (m *Miner) Mine(ctx context.Context, candidates []history.Candidate, w swe.Watch) (_ *Mined, err error) {
	forget, err := m.shareDownloads()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, forget()) }()
	if m.parents, err = m.Builder.Parents(ctx, candidates); err != nil {
		return nil, err
	}
	m.newest = map[string]time.Time{}
	for _, c := range candidates {
		if era := c.Labels["era"]; c.Time.After(m.newest[era]) {
			m.newest[era] = c.Time
		}
	}
	mined, err := m.mine(ctx, "candidates", candidates, w)
	if err != nil || len(m.Synthetic) == 0 {
		return mined, err
	}
	return mined, m.synthesize(ctx, mined, candidates, w)
}

// mine judges the candidates of one part.
func (m *Miner) mine(ctx context.Context, part string, candidates []history.Candidate, w swe.Watch) (*Mined, error) {
	m.changed = changedBy(candidates)
	var plan []run.Job
	of := map[string]history.Candidate{}
	for _, c := range candidates {
		id := m.Builder.ID(c)
		of[id] = c
		plan = append(plan, m.job(id))
	}
	outcomes, err := m.do(ctx, part, plan, w, func(ctx context.Context, j run.Job) (any, error) {
		result, err := m.candidate(ctx, of[j.Task])
		result.With = m.settings()
		if err != nil || result.log == "" {
			return result, err
		}
		return result, m.keep(j.Task+".log", result.log)
	})
	if err != nil {
		return nil, err
	}
	mined := &Mined{}
	judged := mined.sort(outcomes, of, m.state)
	mined.Validated = len(judged)
	if err := m.check(ctx, mined, judged, of, w); err != nil {
		return nil, err
	}
	return mined, m.write(ctx, mined, judged, of, w)
}

// do does the jobs of one part. Their results are kept as JSON.
func (m *Miner) do(
	ctx context.Context, part string, plan []run.Job, w swe.Watch, job func(context.Context, run.Job) (any, error),
) ([]run.Outcome, error) {
	if w.Begin != nil {
		w.Begin(part, plan)
	}
	e := run.Engine{Journal: m.Dir, Options: run.Options{
		Workers: m.Workers, MaxFailures: max(12, 3*m.Workers), Observe: w.Observe,
	}, Runner: run.RunnerFunc(func(ctx context.Context, j run.Job) (run.Result, error) {
		result, err := job(ctx, j)
		if err != nil {
			return run.Result{}, err
		}
		detail, err := json.Marshal(result)
		return run.Result{Detail: detail}, err
	})}
	return e.Run(ctx, plan)
}

// candidate judges one candidate with what this machine has and, if its tests do not run well with that, with a set-up
// of its era.
func (m *Miner) candidate(ctx context.Context, c history.Candidate) (Judged, error) {
	if m.given() {
		return m.installed(ctx, c, Judged{})
	}
	j, err := m.attempt(ctx, c, history.Installation{})
	if err != nil || !j.Again {
		return j, err
	}
	return m.installed(ctx, c, j)
}

// keep keeps the log of tests that do not run here.
func (m *Miner) keep(name, log string) error {
	if err := os.MkdirAll(m.Dir.Path(LogsDir), 0o755); err != nil {
		return err
	}
	return disk.WriteFile(m.Dir.Path(LogsDir, name), []byte(log))
}

// installed judges a candidate with the set-up of its era and, if its tests do not run with that, with what they lack
// as well, and then with packages that are as old as the candidate. Without a set-up, it returns the earlier judgement,
// with the reason.
func (m *Miner) installed(ctx context.Context, c history.Candidate, before Judged) (Judged, error) {
	why, ran := "", false
	newest := m.newest[c.Labels["era"]]
	if m.given() {
		newest = time.Time{}
	}
	for v := (variant{}); ; {
		in, failure, err := m.install(ctx, c, v)
		if err != nil {
			return Judged{}, err
		}
		why = cmp.Or(why, failure)
		var lacking []string
		if in.Dir != "" {
			j, err := m.attempt(ctx, c, in)
			if err != nil || j.Reason != NeverRuns {
				return v.label(j), err
			}
			if !ran {
				before, ran = j, true
			}
			if lacking, err = m.Builder.Lacking(ctx, c, j.log); err != nil {
				return Judged{}, err
			}
			lacking = slices.DeleteFunc(lacking, func(name string) bool { return slices.Contains(v.also, name) })
		}
		switch {
		case len(lacking) > 0 && !m.given():
			v.also = append(v.also, lacking...)
		case v.at.IsZero() && !newest.IsZero():
			v.at = newest
		case ran:
			return before, nil
		default:
			return unset(before, why), nil
		}
	}
}

// unset is the judgement of a candidate, before, that has no set-up, for a reason that may be known.
func unset(before Judged, why string) Judged {
	switch {
	case before.Reason == "":
		return Judged{Reason: NeverRuns, Detail: why}
	case why == "":
	case before.Reason == NeverRuns:
		before.Detail = why
	default:
		before.Detail = strings.TrimPrefix(before.Detail+"; "+why, "; ")
	}
	return before
}

// attempt judges a candidate once.
func (m *Miner) attempt(ctx context.Context, c history.Candidate, in history.Installation) (Judged, error) {
	d, why, err := m.Builder.Draft(ctx, c, in)
	if err != nil || why != "" {
		return Judged{Reason: why}, err
	}
	at, err := m.hide(ctx, c, &d)
	if err != nil || at != "" {
		return Judged{Reason: Exposed, Detail: at, Again: true}, err
	}
	j, symptoms, err := m.judge(ctx, d)
	if err != nil || j.Reason != "" {
		return j, err
	}
	j.Symptoms = symptoms
	if labels := j.Task.Labels; labels["before"] == "does not load" && len(c.Interface()) == 0 {
		labels["needs_interface"] = "yes"
	}
	return j, nil
}

// state gives a task its statement, or returns the reason why there is none. It is made anew in each run, because there
// may be more texts than in the one before.
func (m *Miner) state(c history.Candidate, j *Judged) (why history.Reason) {
	texts := []history.Text{
		{From: history.FromIssue, Body: m.Issues.Text(c.Commit)}, {From: history.FromMessage, Body: c.Message},
	}
	j.Task.Statement, j.Task.Labels["statement"], why = c.Statement(texts, j.Symptoms)
	if m.writes(j.Task.ID) {
		return ""
	}
	return why
}

// sort returns what is a task, or will be one when its statement is written, the newest first, and records the
// losses.
func (r *Mined) sort(
	outcomes []run.Outcome, of map[string]history.Candidate,
	state func(history.Candidate, *Judged) (why history.Reason),
) (tasks []Judged) {
	seen := map[string]bool{}
	for _, o := range outcomes {
		c := of[o.Task]
		var j Judged
		if err := json.Unmarshal(o.Detail, &j); o.Failed() || err != nil {
			j = Judged{Reason: Ungraded, Detail: o.Err}
		}
		if j.Reason == "" {
			j.Reason = state(c, &j)
		}
		if j.Reason == "" {
			fail := j.Task.Tests.FailToPass
			key := fmt.Sprint(fail, c.SourceFiles())
			if c.Labels["synthetic"] != "" { // bugs of the same code that the same tests find
				key += c.Sources
			}
			if c.Labels["tests"] == "data" || ofMany(fail, c.ChangedTests()) { // only the cases tell tasks apart
				key += c.Tests
			}
			if seen[key] {
				j.Reason = SameTests
			}
			seen[key] = true
		}
		if j.Reason != "" {
			r.lose(c, j.Reason, j.Detail)
			continue
		}
		tasks = append(tasks, j)
	}
	return tasks
}

// ofMany reports whether the failing tests are programs with many cases each, as with CTest: then none of them is named
// after a function that the commit changes in the tests. It is false where no such function is known.
func ofMany(fail, changed []string) bool {
	return len(changed) > 0 && !slices.ContainsFunc(fail, func(test string) bool { return namedAfter(test, changed) })
}

func (r *Mined) lose(c history.Candidate, why history.Reason, detail string) {
	r.Losses = append(r.Losses, Loss{c.Hash, c.Subject(), why, detail})
}

// check grades the tasks as evaluations and training do, and keeps those that are sound.
func (m *Miner) check(
	ctx context.Context, mined *Mined, judged []Judged, of map[string]history.Candidate, w swe.Watch,
) error {
	e := swe.Evaluation{
		Runner: &swe.Runner{Tasks: map[string]env.Task{}}, Dir: m.Dir, Workers: m.Workers, Mutants: m.Mutants,
		Evaluator: &verify.Evaluator{Provider: m.Provider, Run: m.name(), Seed: 1}, // the same labels every time
	}
	for _, j := range judged {
		e.IDs = append(e.IDs, j.Task.ID)
		e.Runner.Tasks[j.Task.ID] = j.Task
	}
	s, err := e.CheckSoundness(ctx, w)
	if err != nil {
		return err
	}
	for i := len(s.Results) - 1; i >= 0; i-- {
		r := s.Results[i]
		switch r.Verdict {
		case swe.Sound:
			t := e.Runner.Tasks[r.Task]
			t.Labels["evidence"] = string(r.Gold.Evidence)
			if r.Mutation != nil && r.Mutation.Mutants > 0 {
				t.Labels["mutation"] = strconv.FormatFloat(r.Mutation.Score, 'f', 2, 64)
				t.Labels["mutants"] = strconv.Itoa(r.Mutation.Mutants)
			}
			mined.Tasks = append(mined.Tasks, t)
		case swe.PassesEmpty:
			mined.lose(of[r.Task], PassesEmpty, "")
		case swe.SoundnessUnknown:
			mined.lose(of[r.Task], Ungraded, r.Empty.Error)
		default:
			mined.lose(of[r.Task], FailsGold, string(r.Verdict)+": "+unrewarded(r.Gold))
		}
	}
	return nil
}

// unrewarded says why a reference solution got no reward.
func unrewarded(r *swe.SoundnessRun) string {
	if r == nil {
		return "it was not graded"
	}
	return fmt.Sprint(r.Status, " ", r.Suspicious, " ", r.CanaryReason, " ", r.Error)
}
