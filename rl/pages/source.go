package pages

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/rl/metrics"
	"deepswe/rl/train/config"
	"deepswe/rl/train/record"
	"deepswe/verify/plot"
	"deepswe/verify/rank/ranking"
	"deepswe/verify/swe"
)

// rankKind is the kind of a ranking's directory, which has no manifest.
const rankKind run.Kind = "rank"

// found is a run, as its directory's manifest describes it.
type found struct {
	ID, Path string
	// Base is the address of the run's first page.
	Base     string
	Kind     run.Kind
	Created  time.Time
	Settings settings
	// Err is why the run cannot be read, for example because another version of the program wrote it.
	Err error
}

// settings are the settings of all kinds of runs that pages show.
type settings struct {
	Model, Task, Issue, Statement string
	Demo                          bool
	Flags                         map[string]json.RawMessage
}

// flag returns the value of a flag that the run began with; empty if it has none, or several.
func (s settings) flag(name string) string {
	var text string
	_ = json.Unmarshal(s.Flags[name], &text) // solve keeps lists
	return text
}

// loaded is the content of a run's directory when it was read.
type loaded struct {
	found
	Model string
	Rows  []row
	Total totals
	// State is running, killed, finished or unfinished.
	State string
	// Score is the last value of a training run's validation or, without one, of its reward, in words.
	Score   string
	score   float64
	Ranking *ranking.Report

	notes []run.Note
	read  time.Time
	stamp string
}

// library finds runs and keeps what was read of them until their files change.
type library struct {
	paths []string // runs, and folders of runs
	base  string   // the address of the list of runs, without its slash

	mu     sync.Mutex
	byID   map[string]string // path by ID
	byPath map[string]string // ID by path
	kept   map[string]*loaded
}

func newLibrary(paths []string, base string) *library {
	return &library{
		paths: paths, base: base, byID: map[string]string{}, byPath: map[string]string{}, kept: map[string]*loaded{},
	}
}

// all returns the runs that are there now, the newest first.
func (l *library) all() ([]found, error) {
	var all []found
	for _, path := range l.paths {
		if f, err := l.describe(path); err == nil {
			all = append(all, f)
			if f.Err == nil {
				continue
			}
		}
		entries, err := os.ReadDir(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if f, err := l.describe(filepath.Join(path, e.Name())); err == nil {
				all = append(all, f)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return b.Created.Compare(a.Created) })
	return all, nil
}

// describe returns the run in a directory. The error is fs.ErrNotExist if there is none.
func (l *library) describe(path string) (found, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return found{}, err
	}
	f := found{Path: full}
	m, err := run.ReadManifest(full)
	switch {
	case err == nil:
		f.Kind, f.Created = m.Kind, m.Created
		_ = json.Unmarshal(m.Settings, &f.Settings) // a kind of run without these settings has others
	case errors.Is(err, fs.ErrNotExist):
		info, err := os.Stat(filepath.Join(full, ranking.ReportFile))
		if err != nil {
			return f, err
		}
		f.Kind, f.Created = rankKind, info.ModTime()
	default:
		f.Err = err
	}
	f.ID = l.id(full)
	f.Base = l.base + "/" + url.PathEscape(f.ID) + "/"
	return f, nil
}

// id returns the name of a run in addresses: that of its directory, unless another run has it.
func (l *library) id(path string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id, ok := l.byPath[path]; ok {
		return id
	}
	id := filepath.Base(path)
	if _, taken := l.byID[id]; taken {
		sum := sha256.Sum256([]byte(path))
		id += "~" + hex.EncodeToString(sum[:4])
	}
	l.byID[id], l.byPath[path] = path, id
	return id
}

// find returns the run with the ID in addresses.
func (l *library) find(id string) (*loaded, error) {
	if _, err := l.all(); err != nil { // gives new runs their IDs
		return nil, err
	}
	l.mu.Lock()
	path, ok := l.byID[id]
	l.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("run %s: %w", id, errNotFound)
	}
	f, err := l.describe(path)
	if err != nil {
		return nil, fmt.Errorf("run %s is no longer there: %w", id, errNotFound)
	}
	return l.load(f)
}

// liveFor is how long the content of a live run is shown before it is read again.
const liveFor = 2 * time.Second

// load reads a run, unless nothing has changed since.
func (l *library) load(f found) (*loaded, error) {
	if f.Err != nil {
		return nil, f.Err
	}
	stamp := stampOf(f)
	l.mu.Lock()
	kept := l.kept[f.Path]
	l.mu.Unlock()
	if kept != nil && kept.stamp == stamp && (kept.State != stateRunning || time.Since(kept.read) < liveFor) {
		return kept, nil
	}
	r := &loaded{found: f, stamp: stamp, read: time.Now(), Model: f.Settings.Model}
	var err error
	switch f.Kind {
	case rankKind:
		err = r.loadRanking(f.Path)
		if err == nil && r.Ranking == nil {
			err = fmt.Errorf("the ranking of %s: %w", r.ID, errNotFound)
		}
		if err == nil {
			l.loadCandidates(r)
		}
	case run.Train:
		err = r.loadTraining()
	default:
		err = r.loadRows()
		if err == nil {
			err = r.loadRanking(filepath.Join(f.Path, "rank"))
		}
	}
	if err != nil {
		return nil, err
	}
	r.mark()
	l.mu.Lock()
	l.kept[f.Path] = r
	l.mu.Unlock()
	return r, nil
}

// stampOf changes when the files of a run do.
func stampOf(f found) string {
	stamp := ""
	for _, name := range []string{"events.jsonl", record.MetricsFile, ranking.ReportFile, "rank/" + ranking.ReportFile} {
		if info, err := os.Stat(filepath.Join(f.Path, name)); err == nil {
			stamp += fmt.Sprintf("%s %d %d,", name, info.Size(), info.ModTime().UnixNano())
		}
	}
	return stamp
}

// The states of a run.
const (
	stateRunning  = "running"
	stateKilled   = "killed"
	stateFinished = "finished"
)

// state returns the state of a run by the process that writes to it.
func state(r *run.Reader) string {
	holder, alive := r.Writer()
	switch {
	case alive != disk.Dead:
		return stateRunning
	case holder.PID != 0:
		return stateKilled
	}
	return stateFinished
}

// loadRanking reads a ranking, whose reasons quote models and tests, as texts that are safe to show.
func (r *loaded) loadRanking(dir string) error {
	var content any
	err := disk.ReadJSON(filepath.Join(dir, ranking.ReportFile), &content)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(plainTexts(content))
	if err != nil {
		return err
	}
	r.Ranking = &ranking.Report{}
	return json.Unmarshal(text, r.Ranking)
}

// loadCandidates makes the candidates of a ranking its rows: as they are in the run that was ranked, if that is
// there.
func (l *library) loadCandidates(r *loaded) {
	r.State = stateFinished
	played := map[run.Job]row{}
	if f, err := l.describe(r.Ranking.Run); err == nil && f.Kind != rankKind {
		if of, err := l.load(f); err == nil {
			r.Model = of.Model
			for _, x := range of.Rows {
				if x.Context == 0 { // those with a smaller context are no candidates
					played[run.Job{Task: x.Task, Index: x.Index}] = x
				}
			}
		}
	}
	at := run.At(r.Path)
	for _, t := range r.Ranking.Results {
		for _, c := range t.Candidates {
			job := run.Job{Task: t.Task, Group: t.Task, Index: c.Attempt}
			x, ok := played[run.Job{Task: t.Task, Index: c.Attempt}]
			if !ok || c.Name != fmt.Sprintf("#%d", c.Attempt) { // of predictions, or pooled from several runs
				x = row{Job: job, Dir: at.AttemptDir(job), Stop: string(c.StopReason), Verdict: ungraded, Lost: true}
			}
			if c.Solved != nil {
				x.Verdict = map[bool]verdict{true: solved, false: unsolved}[*c.Solved]
			}
			r.Rows = append(r.Rows, x)
		}
	}
	r.Total = total(r.Rows)
	r.Total.Read, r.Total.Written, r.Total.Seconds = 0, 0, 0 // the run has spent them, not the ranking
}

// mark copies to the rows what the ranking says about them.
func (r *loaded) mark() {
	if r.Ranking == nil {
		return
	}
	at := map[run.Job]*row{}
	for i := range r.Rows {
		if x := &r.Rows[i]; x.Context == 0 {
			at[run.Job{Task: x.Task, Index: x.Index}] = x
		}
	}
	for _, t := range r.Ranking.Results {
		for i, c := range t.Candidates {
			if x := at[run.Job{Task: t.Task, Index: c.Attempt}]; x != nil {
				x.Ranked, x.Chosen = &t.Candidates[i], t.Chosen != nil && *t.Chosen == c.Attempt
			}
		}
	}
}

// plainTexts makes every text of a JSON value plain.
func plainTexts(v any) any {
	switch v := v.(type) {
	case string:
		return plain(v)
	case []any:
		for i := range v {
			v[i] = plainTexts(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = plainTexts(v[name])
		}
	}
	return v
}

// loadTraining reads the metrics of a training run. Its rollouts, which may be large, are read with their step.
func (r *loaded) loadTraining() error {
	r.State = state(run.At(r.Path))
	points, err := metrics.ReadJSONL(filepath.Join(r.Path, record.MetricsFile))
	if err != nil {
		return err
	}
	for _, p := range points {
		r.Total.Seconds += p.Values["time/step"]
	}
	var ok bool
	if r.score, ok = metrics.Last(points, "val/pass@1"); ok {
		r.Score = plot.Percent(r.score)
	} else if r.score, ok = metrics.Last(points, "reward/mean"); ok {
		r.Score = "reward " + plot.Number(r.score)
	}
	if text, err := os.ReadFile(filepath.Join(r.Path, record.ConfigFile)); err == nil {
		keys, _ := config.Flatten(text) // without which the run has no name
		r.Settings.Task = keys["name"]
	}
	return nil
}

// loadRows reads the attempts of a run.
func (r *loaded) loadRows() error {
	reader, err := run.Read(r.Path)
	if err != nil {
		return err
	}
	r.notes = reader.Notes
	r.State = state(reader)
	r.Model = cmp.Or(swe.ModelOf(r.Path), r.Model, r.Settings.flag("model"))
	dirs, err := reader.AttemptDirs()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ended := map[string]bool{}
	for _, o := range reader.Outcomes {
		dir := reader.AttemptDir(o.Job)
		ended[dir] = true
		if o.Group == o.Task || swe.ContextOf(o.Job) > 0 || r.Kind == run.Solve {
			r.Rows = append(r.Rows, rowOf(o, dir))
		}
	}
	for _, dir := range dirs {
		if !ended[dir] {
			r.Rows = append(r.Rows, openRow(dir, r.State == stateRunning))
		}
	}
	r.Total = total(r.Rows)
	return nil
}
