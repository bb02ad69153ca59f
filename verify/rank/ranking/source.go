package ranking

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/verify/swe"
)

// Source holds the candidates of a run, or of other files.
type Source struct {
	// Path is where they were read from.
	Path string
	// Manifest is the run's manifest. Its Kind is empty if there is no run.
	Manifest run.Manifest
	// Tasks holds the candidates by task, in the order of the run, or sorted by id.
	Tasks []Set
	// Contexts compares context lengths, if a run has several. The candidates are those of the largest.
	Contexts []swe.ContextResult
	// Notes says what was left out, and why.
	Notes []string
}

// Set holds the candidates for one task.
type Set struct {
	Task    string
	Entries []Entry
}

// Entry is one candidate.
type Entry struct {
	// ID is the number of the attempt.
	ID int
	// Name is where it comes from, for display.
	Name string
	// PatchFile and Trajectory are paths, empty if there is no such file. Patch is set if there is no PatchFile.
	PatchFile  string
	Patch      []byte
	Trajectory string
	// Model is the model's name in predictions.
	Model      string
	StopReason agent.StopReason
	// Solved is the truth; nil if unknown.
	Solved *bool
}

// ReadPatch returns the patch, nil if it is empty.
func (e Entry) ReadPatch() ([]byte, error) {
	if e.PatchFile == "" {
		return e.Patch, nil
	}
	data, err := os.ReadFile(e.PatchFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Play plays k attempts at a task at once, and returns the entries of those that ended by themselves with a patch that
// can be read or with none, in order; not those that were interrupted or failed for infrastructure reasons. It returns
// when all attempts have ended.
func Play(ctx context.Context, k int, play func(context.Context, int) (Entry, error)) []Entry {
	var mu sync.Mutex
	var entries []Entry
	var attempts sync.WaitGroup
	for i := range k {
		attempts.Go(func() {
			e, err := play(ctx, i)
			if err == nil {
				_, err = e.ReadPatch()
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil && e.StopReason != agent.Interrupted {
				entries = append(entries, e)
			}
		})
	}
	attempts.Wait()
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.ID, b.ID) })
	return entries
}

// ErrNoCandidates reports that a path contains nothing to rank.
var ErrNoCandidates = errors.New("there are no candidates")

// Read reads the candidates at the path: the directory of a run of eval, a file of predictions, a directory of such
// files (each one attempt at its tasks), or a directory of patches: TASK/NAME.diff, or TASK.diff where each task has
// one. Beside NAME.diff, NAME.json may be its trajectory.
func Read(path string) (*Source, error) {
	if run.Exists(path) {
		return readRun(path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	s := &Source{Path: path}
	switch {
	case info.IsDir():
		err = s.readDir(path)
	case isPatch(filepath.Ext(path)):
		return nil, fmt.Errorf("%s is a single patch: name the directory that has the candidates, as TASK/NAME.diff", path)
	default:
		err = s.readPredictions(path, 0)
	}
	if err != nil {
		return nil, err
	}
	if len(s.Tasks) == 0 {
		return nil, fmt.Errorf("%w in %s: it holds neither a run, nor predictions (.json, .jsonl), nor patches "+
			"(.diff, .patch)", ErrNoCandidates, path)
	}
	return s, nil
}

// ReadAll reads the candidates at one path, or pools the attempts of several runs of eval at the same tasks. Attempts
// are then numbered anew, and settings are those of the first run.
func ReadAll(paths []string) (*Source, error) {
	pool := &Source{Path: paths[0]}
	var sources []*Source
	for _, path := range paths {
		s, err := Read(path)
		if err != nil || len(paths) == 1 {
			return s, err
		}
		if err := s.fits(sources); err != nil {
			return nil, err
		}
		sources = append(sources, s)
		for _, set := range s.Tasks {
			for _, e := range set.Entries {
				e.Name, e.Model = filepath.Base(path)+" "+e.Name, s.model()
				pool.add(set.Task, e)
			}
		}
		for _, note := range s.Notes {
			pool.Notes = append(pool.Notes, path+": "+note)
		}
	}
	pool.Manifest = sources[0].Manifest
	pool.Notes = append(pool.Notes, "the attempts of several runs are pooled: "+strings.Join(paths, ", "))
	slices.SortFunc(pool.Tasks, func(a, b Set) int { return cmp.Compare(a.Task, b.Task) })
	return pool, nil
}

// ErrUnfit reports that the attempts of a run cannot be pooled with those of another.
var ErrUnfit = errors.New("cannot be pooled")

// fits checks that a run can be pooled with others.
func (s *Source) fits(others []*Source) error {
	if s.Manifest.Kind != run.Eval {
		return fmt.Errorf("%s %w: only runs of eval can", s.Path, ErrUnfit)
	}
	own, err := swe.KeptTasks(s.Path)
	if err != nil {
		return err
	}
	for _, o := range others {
		tasks, err := swe.KeptTasks(o.Path)
		switch {
		case err != nil:
			return err
		case o.Manifest.ID == s.Manifest.ID && o.Manifest.Created.Equal(s.Manifest.Created):
			return fmt.Errorf("%s %w with %s: they are the same run", s.Path, ErrUnfit, o.Path)
		case !maps.Equal(own, tasks):
			return fmt.Errorf("%s %w with %s: their tasks are not the same", s.Path, ErrUnfit, o.Path)
		}
	}
	return nil
}

func readRun(path string) (*Source, error) {
	r, err := run.Read(path)
	if err != nil {
		return nil, err
	}
	if r.Manifest.Kind != run.Eval && r.Manifest.Kind != run.Solve {
		return nil, fmt.Errorf("%s is a run of %s: rank takes runs of eval, and in runs of solve with several attempts", path,
			r.Manifest.Kind)
	}
	if holder, alive := r.Writer(); alive == disk.Alive && holder.PID != os.Getpid() {
		return nil, fmt.Errorf("the run in %s is still under way (process %d)", path, holder.PID)
	}
	s := &Source{Path: path, Manifest: r.Manifest}
	s.Contexts = swe.ByContext(r.Outcomes, largest(s.Setting("context")))
	at := map[string]int{}
	failed := 0
	for _, o := range r.Outcomes {
		if o.Group != o.Task {
			continue // from the soundness check, or with a smaller context
		}
		if o.Failed() {
			failed++
			continue
		}
		i, ok := at[o.Task]
		if !ok {
			i = len(s.Tasks)
			at[o.Task] = i
			s.Tasks = append(s.Tasks, Set{Task: o.Task})
		}
		s.Tasks[i].Entries = append(s.Tasks[i].Entries, runEntry(r, o))
	}
	if failed > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d attempts ended with an infrastructure failure and are no candidates",
			failed))
	}
	if len(s.Tasks) == 0 {
		return nil, fmt.Errorf("%w in %s: no attempt has ended", ErrNoCandidates, path)
	}
	for _, t := range s.Tasks {
		slices.SortFunc(t.Entries, func(a, b Entry) int { return cmp.Compare(a.ID, b.ID) })
	}
	slices.SortFunc(s.Tasks, func(a, b Set) int { return cmp.Compare(a.Task, b.Task) })
	return s, nil
}

// largest returns the last of the context lengths in a flag's value, 0 if it is invalid.
func largest(contexts string) int {
	n, _ := strconv.Atoi(contexts[strings.LastIndex(contexts, ",")+1:])
	return n
}

func runEntry(r *run.Reader, o run.Outcome) Entry {
	dir := r.AttemptDir(o.Job)
	e := Entry{
		ID: o.Index, Name: fmt.Sprintf("#%d", o.Index), PatchFile: filepath.Join(dir, attempt.PatchFile),
		Trajectory: filepath.Join(dir, attempt.TrajectoryFile), StopReason: o.StopReason,
	}
	if o.Reward != nil {
		solved := swe.Solved(o)
		e.Solved = &solved
	}
	return e
}

// model returns the model's name for predictions.
func (s *Source) model() string {
	var settings struct {
		Model string `json:"model"` // of solve
	}
	_ = json.Unmarshal(s.Manifest.Settings, &settings)
	return cmp.Or(swe.ModelOf(s.Path), settings.Model, "deepswe")
}

// Setting returns the value of a flag of a run of eval; empty if it was not set.
func (s *Source) Setting(flag string) string {
	var settings struct {
		Flags map[string]string `json:"flags"`
	}
	_ = json.Unmarshal(s.Manifest.Settings, &settings) // other kinds of runs have no flags
	return settings.Flags[flag]
}
