package verifycmd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"deepswe/agent/agentcmd"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/verify"
)

// grading is one run of grade.
type grading struct {
	d Deps
	o gradeOptions

	ids   []string // of all tasks that are meant
	jobs  []gradeJob
	at    map[string]int // a task's place among the jobs
	model string         // of the first prediction
	dir   *run.Dir

	provider  env.Provider
	evaluator *verify.Evaluator
	progress  *progress

	mu      sync.Mutex
	results map[run.Job]verify.Evaluation
}

func (g *grading) prepare(ctx context.Context) error {
	predictions, err := g.predictions()
	if err != nil {
		return agentcmd.Usage(err)
	}
	if err := g.match(predictions); err != nil {
		return err
	}
	if err := g.openDir(); err != nil {
		return err
	}
	g.results = map[run.Job]verify.Evaluation{}
	g.evaluator = &verify.Evaluator{Timeout: g.o.timeout, Network: g.o.network, Run: filepath.Base(g.dir.Path())}
	g.progress = newProgress(g.d.Err, "graded")
	// Without anything to run, no daemon is needed.
	if slices.ContainsFunc(g.plan(), func(a run.Job) bool { return !g.graded(a) }) {
		var tasks []env.Task
		for _, j := range g.jobs {
			tasks = append(tasks, j.task)
		}
		if g.provider, err = g.o.sandbox.open(ctx, g.d, tasks, g.progress.pull); err != nil {
			return err
		}
		g.evaluator.Provider = g.provider
	}
	return nil
}

// gradeManifest is manifest.json of a directory of grade.
type gradeManifest struct {
	Version int       `json:"version"`
	Kind    string    `json:"kind"`
	Created time.Time `json:"created"`
	Program string    `json:"program"`
}

// openDir takes the directory, which may hold results already.
func (g *grading) openDir() error {
	path := g.o.out
	if path == "" {
		path = newRunPath("grade")
	}
	m := gradeManifest{Version: 1, Kind: "grade", Created: time.Now().UTC(), Program: "deepswe " + g.d.Version}
	var err error
	if run.Exists(path) {
		g.dir, err = run.Open(path, &m)
	} else {
		g.dir, err = run.Create(path, m)
	}
	if err != nil {
		return agentcmd.Usage(err)
	}
	if m.Kind != "grade" {
		return agentcmd.Usage(fmt.Errorf("%s holds a run of %s: choose another --out", path, m.Kind))
	}
	return nil
}

// newRunPath is where a run lies when nobody says: below runs in the working directory.
func newRunPath(kind string) string {
	var b [3]byte
	rand.Read(b[:]) // never fails
	return filepath.Join("runs", kind+"-"+time.Now().UTC().Format("20060102-150405")+"-"+hex.EncodeToString(b[:]))
}

func (g *grading) close() error {
	var err error
	if g.progress != nil {
		g.progress.close()
	}
	if g.provider != nil {
		err = errors.Join(err, g.provider.Close())
	}
	if g.dir != nil {
		err = errors.Join(err, g.dir.Close())
	}
	return err
}

// plan lists what is to be run: every patch as often as asked for.
func (g *grading) plan() []run.Job {
	var plan []run.Job
	for i := range g.o.repeat {
		for _, j := range g.jobs {
			if j.runs() {
				plan = append(plan, run.Job{Task: j.task.ID, Group: j.task.ID, Index: i})
			}
		}
	}
	return plan
}

// path is where the results of an attempt lie: where the harness has them, further ones below.
func (g *grading) path(a run.Job) string {
	j := g.jobs[g.at[a.Task]]
	dir := g.dir.Path("logs", "run_evaluation", g.o.runID, fileName(strings.ReplaceAll(j.model, "/", "__")), fileName(a.Task))
	if a.Index > 0 {
		dir = filepath.Join(dir, "repeat", strconv.Itoa(a.Index))
	}
	return dir
}

// fileName keeps a name from leaving its directory and from hiding in it. Names as they are usual stay as they are.
func fileName(s string) string {
	if s == "" || s[0] == '.' || strings.ContainsAny(s, "/\\\x00%") || len(s) > 200 {
		return "%" + url.PathEscape(s)
	}
	return s
}

// graded looks for the result of an earlier run that is still good, and takes it.
func (g *grading) graded(a run.Job) bool {
	j := g.jobs[g.at[a.Task]]
	v, err := verify.Load(g.path(a), j.task)
	if err != nil || v.Key != g.evaluator.Key(j.task, j.patch) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			g.d.Log.Warn("an earlier result cannot be used", "error", err)
		}
		return false
	}
	g.keep(a, v)
	return true
}

func (g *grading) keep(a run.Job, v verify.Evaluation) {
	v.Log = nil
	if g.o.repeat == 1 {
		v.Tests = nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.results[a] = v
}

func (g *grading) known(a run.Job) (verify.Evaluation, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, ok := g.results[a]
	return v, ok
}

// Run grades one patch once.
func (g *grading) Run(ctx context.Context, a run.Job) (run.Result, error) {
	j := g.jobs[g.at[a.Task]]
	v, err := g.evaluator.Evaluate(ctx, j.task, j.patch)
	if err != nil {
		return run.Result{}, err
	}
	v.Key = g.evaluator.Key(j.task, j.patch)
	if err := v.Save(g.path(a), j.task, j.patch); err != nil {
		return run.Result{}, run.Abort(err)
	}
	g.keep(a, v)
	return run.Result{Reward: &v.Reward, Times: run.Times{Reward: v.Seconds}}, nil
}

// run grades everything and reports.
func (g *grading) run(ctx context.Context) error {
	plan := g.plan()
	g.progress.plan("graded", len(plan))
	var todo []run.Job
	for _, a := range plan {
		if v, ok := g.known(a); ok {
			g.progress.known(v.Status == verify.Resolved)
			g.tell(v, a)
			continue
		}
		todo = append(todo, a)
	}
	engine := run.Engine{Runner: g, Options: run.Options{
		Workers: g.o.workers, Retries: 2, MaxFailures: max(12, 3*g.o.workers), Observe: g.observe,
	}}
	_, err := engine.Run(ctx, todo)
	if interrupted(ctx, err) {
		fmt.Fprintf(g.d.Err, "stopped; the same command with --out %s goes on\n", g.dir.Path())
		return &exitError{code: agentcmd.ExitInterrupted}
	}
	if err != nil {
		g.progress.note("stopped: %v", err)
	}
	return g.report()
}

func (g *grading) observe(e run.Event) {
	switch e.Kind {
	case run.Started:
		g.progress.start()
	case run.Retrying:
		g.progress.note("%s: %v; trying again in %s", e.Job.Task, e.Err, e.Delay.Round(time.Second))
	case run.Finished:
		v, _ := g.known(e.Job)
		text := fmt.Sprintf("%s: %s", e.Job.Task, describe(v))
		g.progress.end(v.Status == verify.Resolved, false, text)
		g.tell(v, e.Job)
	case run.Failed:
		g.progress.end(false, true, fmt.Sprintf("%s: failed: %s", e.Job.Task, e.Outcome.Err))
	case run.GroupDone:
	}
}

// describe is a verdict in a line.
func describe(v verify.Evaluation) string {
	text := strings.ReplaceAll(string(v.Status), "_", " ")
	if v.Status != verify.Resolved && v.Detail != "" {
		first, _, _ := strings.Cut(v.Detail, "\n")
		text += ": " + first
	}
	for _, s := range v.Suspicious {
		text += fmt.Sprintf("; suspicious (%s): %s", s.Kind, s.Detail)
	}
	return text
}

// tell prints a result as a line of JSON where that is wanted. A reader that goes away must not end the run.
func (g *grading) tell(v verify.Evaluation, a run.Job) {
	if !g.o.json {
		return
	}
	printJSON(g.d.Out, struct {
		Type    string `json:"type"`
		Version int    `json:"version"`
		Repeat  int    `json:"repeat,omitempty"`
		verify.Evaluation
		Path string `json:"path"`
	}{"evaluation", 1, a.Index, v, g.path(a)})
}

// printJSON prints a line of JSON, without escaping < > &.
func printJSON(w io.Writer, v any) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}
