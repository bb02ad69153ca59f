package verifycmd

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/verify"
	"deepswe/verify/rank"
	"deepswe/verify/rank/judge"
	"deepswe/verify/rank/ranking"
	"deepswe/verify/rank/suite"
	"deepswe/verify/swe"
)

type ranker struct {
	session
	o     *rankOptions
	flags *pflag.FlagSet // nil as a part of eval

	store   *ranking.Store
	ranking ranking.Ranking
	model   *cli.LiveModel // that writes tests, and may judge
}

func (r *ranker) close() error {
	err := r.session.close()
	if r.store != nil {
		err = errors.Join(err, r.store.Close())
	}
	return err
}

// prepare opens what the verifier needs, the cheap and likely failures first.
func (r *ranker) prepare(ctx context.Context) error {
	source, err := ranking.ReadAll(r.o.run)
	if err != nil {
		return cli.Usage(err)
	}
	if err := r.inherit(source); err != nil {
		return err
	}
	if err := r.readTasks(source); err != nil {
		return err
	}
	out := r.o.out
	if out == "" {
		out = rankDir(r.o.run[0], source)
	}
	if r.store, err = ranking.OpenStore(out); err != nil {
		return cli.Usage(err)
	}
	if r.progress == nil {
		r.progress = newProgress(r.d.Err, "ranking")
	}
	r.ranking.Source, r.ranking.Store = source, r.store
	r.ranking.Rule = rank.Rule{Verifier: rank.Verifier(r.o.verifier.Verifier), Top: r.o.verifier.Top}
	r.ranking.Workers, r.ranking.Observe = r.o.workers, r.observeEvent
	if r.o.verifier.Judges() {
		source.NoteBlind()
	}
	for _, note := range source.Notes {
		r.progress.note("%s", note)
	}
	if r.o.recorded {
		return nil
	}
	if r.o.verifier.Tests() && r.o.verifier.Written > 0 && r.model == nil {
		model, err := r.o.model.Open(ctx, r.d.World)
		if err != nil {
			return err
		}
		r.model = &model
	}
	if r.o.verifier.Judges() {
		if r.ranking.Judge, err = openJudge(ctx, r.d.World, &r.o.verifier, &r.o.model, r.model, r.progress.note); err != nil {
			return err
		}
	}
	if r.o.verifier.Tests() {
		return r.openTests(ctx)
	}
	return nil
}

// inherited are the flags that rank takes over from the run of eval, so that what eval has judged and tested is found
// again. Endpoints are not among them: a directory from elsewhere must not say where keys are sent.
var inherited = []string{
	"top", "write-tests", "test", "test-parser", "test-timeout", "judge-context", "judge-samples", "judge-pack",
}

// inherit sets the flags that were not given to the values of the run of eval.
func (r *ranker) inherit(source *ranking.Source) error {
	if r.flags == nil {
		return nil
	}
	for _, name := range inherited {
		value := source.Setting(name)
		if f := r.flags.Lookup(name); value != "" && !f.Changed {
			if err := f.Value.Set(value); err != nil {
				return cli.Usagef("%s: the run began with --%s %q: %w", source.Path, name, value, err)
			}
		}
	}
	return r.o.verifier.Check()
}

// rankDir returns the directory for the ranking of a path: in the run, or next to the file.
func rankDir(path string, s *ranking.Source) string {
	if s.Manifest.Kind == "" && filepath.Ext(path) != "" {
		path = filepath.Dir(path)
	}
	return filepath.Join(path, "rank")
}

// readTasks reads the tasks if they are needed: those that the flags name, or those of the run.
func (r *ranker) readTasks(source *ranking.Source) error {
	if r.ranking.Tasks != nil {
		return nil
	}
	given := r.o.tasks.Path != ""
	if r.o.tasks.Path = cmp.Or(r.o.tasks.Path, source.Setting("tasks")); r.o.tasks.Path == "" {
		return nil
	}
	r.o.tasks.Image = cmp.Or(r.o.tasks.Image, source.Setting("image"))
	if r.o.recorded && !given || r.o.verifier.Verifier == string(rank.None) && !given {
		return nil
	}
	tasks, _, err := r.o.tasks.Read(r.d.World)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, t := range source.Tasks {
		wanted[t.Task] = true
	}
	r.ranking.Tasks = map[string]env.Task{}
	for t, err := range tasks {
		if err != nil {
			return err
		}
		if _, twice := r.ranking.Tasks[t.ID]; twice {
			return cli.Usagef("%s has two tasks with the id %s", r.o.tasks.Path, t.ID)
		}
		if wanted[t.ID] {
			r.ranking.Tasks[t.ID] = t
		}
	}
	source.Only(func(task string) bool {
		_, ok := r.ranking.Tasks[task]
		return ok
	})
	if source.Manifest.Kind == run.Eval {
		switch err := swe.SameTasks(source.Path, r.ranking.Tasks); {
		case errors.Is(err, swe.ErrChanged): // or graded by newer rules; a patch of another base will not apply
			source.Notes = append(source.Notes, err.Error()+": the candidates may be of another base")
		case err != nil:
			return err
		}
	}
	if len(source.Tasks) == 0 {
		return cli.Usagef("none of the candidates in %s is for a task in %s", strings.Join(r.o.run, ", "), r.o.tasks.Path)
	}
	return nil
}

// openJudge opens the judge, and says so if the model judges itself.
func openJudge(ctx context.Context, w cli.World, v *cli.VerifierFlags, m *cli.ModelFlags, model *cli.LiveModel,
	say func(format string, args ...any)) (*judge.Judge, error) {
	pack, err := judge.Builtin()
	if v.JudgePack != "" {
		pack, err = judge.Load(v.JudgePack)
	}
	if err != nil {
		return nil, cli.Usage(err)
	}
	live, self, err := v.OpenJudge(ctx, w, model, m)
	if err != nil {
		return nil, err
	}
	endpoint, ok := live.Model.(judge.Endpoint)
	if !ok {
		return nil, cli.Usagef("%s cannot judge: it answers from a recording; name a live endpoint with --judge-url",
			live.Name)
	}
	window := live.Context
	if v.JudgeContext > 0 && (window == 0 || v.JudgeContext < window) {
		window = v.JudgeContext
	}
	if self {
		say("no separate judge (--judge-url, --judge-model): %s judges itself", live.Name)
	}
	return &judge.Judge{Endpoint: endpoint, Model: live.Name, Pack: pack, Context: window, Samples: v.JudgeSamples}, nil
}

// openTests opens the sandboxes, and what writes tests.
func (r *ranker) openTests(ctx context.Context) error {
	if len(r.ranking.Tasks) == 0 {
		return cli.Usagef("to test candidates, their tasks are needed: give --tasks PATH")
	}
	if r.provider == nil {
		all := slices.Collect(maps.Values(r.ranking.Tasks))
		if err := r.openSandbox(ctx, &r.o.sandbox, 0, all); err != nil {
			return err
		}
	}
	var err error
	r.ranking.Tests, err = newTests(r.d.World, &r.o.verifier, &r.o.model, r.model, r.provider, r.ranking.Tasks, r.store)
	return err
}

// newTests describes how candidates are tested. Without a model, no tests are written.
func newTests(w cli.World, v *cli.VerifierFlags, m *cli.ModelFlags, model *cli.LiveModel, p env.Provider,
	tasks map[string]env.Task, store *ranking.Store) (*ranking.Tests, error) {
	name := filepath.Base(filepath.Dir(store.Path()))
	t := &ranking.Tests{
		Runner:  &suite.Runner{Evaluator: &verify.Evaluator{Provider: p, Timeout: v.Timeout, Run: name}},
		Command: v.Command, Parser: v.Parser, Timeout: v.Timeout,
	}
	if model == nil || v.Written == 0 {
		return t, nil
	}
	attempt, err := m.Attempt(w, *model, false)
	if err != nil {
		return nil, err
	}
	attempt.Provider, attempt.Run, attempt.Prompt = p, name, suite.Prompt(false)
	if !m.Given("temperature") {
		one := 1.0 // several attempts at the same task should differ
		attempt.Sampling.Temperature = &one
	}
	t.Attempts = v.Written
	t.Writer = &suite.Writer{Runner: &swe.Runner{Tasks: tasks, Attempt: attempt}}
	t.Writer.Runner.Dir = func(j run.Job) (string, error) { return store.Attempt(j, t.Writer.Key(tasks[j.Task])) }
	return t, nil
}

// observeEvent shows what happens.
func (r *ranker) observeEvent(e ranking.Event) {
	if e.Begin {
		r.progress.plan(string(e.Part), e.Total)
		r.progress.note("%s: %d to do", e.Part, e.Total)
		return
	}
	r.progress.observeEvent(e.Run, e.Name, "trying again", func() (*bool, string) { return nil, e.Text })
}
