package ranking

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"unique"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/verify/rank/judge"
	"deepswe/verify/rank/suite"
)

// The files of a ranking's directory.
const (
	lockFile       = "LOCK"
	judgementsFile = "judgements.jsonl"
	baselinesFile  = "baselines.jsonl"
	resultsFile    = "results.jsonl"
	// ReportFile contains the Report, PredsFile the choice as predictions for the official harness, PageFile the HTML
	// page.
	ReportFile = "ranking.json"
	PredsFile  = "preds.json"
	PageFile   = "report.html"
)

// Store records the results of judge and tests in a directory that one process at a time may write to. A recorded
// result is on disk when the call returns.
type Store struct {
	path string
	lock *disk.Lock

	judgements *shelf[keptJudgement]
	baselines  *shelf[keptBaseline]
	results    *shelf[keptResult]
}

// keptJudgement is a line of judgements.jsonl. It is looked up by its key, which identifies everything that the judge
// has read; by its stamp, which identifies the files and is quicker to compute; and, if no judge is configured, by
// task, attempt and patch.
type keptJudgement struct {
	Key     string `json:"key"`
	Stamp   string `json:"stamp,omitempty"`
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Patch   string `json:"patch"`
	Model   string `json:"model,omitempty"`
	judge.Judgement
}

// keptBaseline is a line of baselines.jsonl: the result of a script on the base, or why there is no script.
type keptBaseline struct {
	Key  string `json:"key"`
	Task string `json:"task"`
	suite.Baseline
}

// keptResult is a line of results.jsonl.
type keptResult struct {
	Key    string `json:"key"`
	Task   string `json:"task"`
	Script string `json:"script"`
	Patch  string `json:"patch"`
	suite.Result
}

func (k *keptJudgement) keys() ([]string, error) {
	if k.Score != nil && !judge.Valid(*k.Score) {
		return nil, fmt.Errorf("the score of %s #%d is %v", k.Task, k.Attempt, *k.Score)
	}
	return []string{k.Key, k.Stamp, place(k.Task, k.Attempt, k.Patch)}, nil
}

// place is the key of a candidate without its judge.
func place(task string, attempt int, patch string) string {
	return fmt.Sprintf("%s\x00%d\x00%s", task, attempt, patch)
}

func (k *keptBaseline) keys() ([]string, error) { return []string{k.Key}, nil }

// keys also interns test names, because the candidates for a task pass the same tests.
func (k *keptResult) keys() ([]string, error) {
	for i, name := range k.Passed {
		k.Passed[i] = unique.Make(name).Value()
	}
	return []string{k.Key}, nil
}

// OpenStore opens or creates the directory. It fails with disk.ErrLocked if a running process uses it.
func OpenStore(path string) (*Store, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("open ranking: %w (choose another place with --out)", err)
	}
	lock, err := disk.TryLock(filepath.Join(path, lockFile))
	if err != nil {
		return nil, fmt.Errorf("open ranking in %s: %w", path, err)
	}
	s := &Store{path: path, lock: lock}
	s.judgements, err = openShelf(s.Path(judgementsFile), (*keptJudgement).keys)
	if err == nil {
		s.baselines, err = openShelf(s.Path(baselinesFile), (*keptBaseline).keys)
	}
	if err == nil {
		s.results, err = openShelf(s.Path(resultsFile), (*keptResult).keys)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open ranking: %w", err), s.Close())
	}
	return s, nil
}

// Path returns the path of a file in the directory.
func (s *Store) Path(name ...string) string {
	return filepath.Join(append([]string{s.path}, name...)...)
}

// Attempt creates the directory of an attempt to write tests, and returns its path. key identifies the writer, see
// suite.Writer.Key, so that attempts of different models are not confused.
func (s *Store) Attempt(j run.Job, key string) (string, error) {
	path := s.Path("tests", run.PathName(j.Task), fmt.Sprintf("%d-%s", j.Index, key[:min(8, len(key))]))
	return path, os.MkdirAll(path, 0o755)
}

// Close releases the directory.
func (s *Store) Close() error {
	return errors.Join(s.judgements.close(), s.baselines.close(), s.results.close(), s.lock.Close())
}

// recorded returns the newest baselines of a task, regression tests first.
func (s *Store) recorded(task string) []suite.Baseline {
	newest := map[string]suite.Baseline{}
	for _, k := range s.baselines.all() {
		if k.Task == task {
			newest[k.Script.Name] = k.Baseline
		}
	}
	return slices.SortedFunc(maps.Values(newest), func(a, b suite.Baseline) int {
		return cmp.Or(cmp.Compare(a.Script.Kind, b.Script.Kind), natural(a.Script.Name, b.Script.Name))
	})
}
