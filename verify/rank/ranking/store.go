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
	// ReportFile has the Report, PredsFile the choice as the official harness takes it, PageFile the page for people.
	ReportFile = "ranking.json"
	PredsFile  = "preds.json"
	PageFile   = "report.html"
)

// Store keeps what judge and tests said, in a directory that one process writes at a time. Whatever is recorded is on
// the disk when the call returns, and is there again after a kill.
type Store struct {
	path string
	lock *disk.Lock

	judgements *shelf[keptJudgement]
	baselines  *shelf[keptBaseline]
	results    *shelf[keptResult]
}

// keptJudgement is a line of judgements.jsonl. A judgement is found by its key, which identifies everything that the
// judge has read; by its stamp, which identifies the same files and is quicker to compute; and, where no judge is
// configured, by task, attempt and patch.
type keptJudgement struct {
	Key     string `json:"key"`
	Stamp   string `json:"stamp,omitempty"`
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Patch   string `json:"patch"`
	Model   string `json:"model,omitempty"`
	judge.Judgement
}

// keptBaseline is a line of baselines.jsonl: what a script does on the base, or why there is no script.
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

// place names a candidate, whichever judge has read it.
func place(task string, attempt int, patch string) string {
	return fmt.Sprintf("%s\x00%d\x00%s", task, attempt, patch)
}

func (k *keptBaseline) keys() ([]string, error) { return []string{k.Key}, nil }

// keys keeps each name of a test only once in memory: the candidates for a task pass the same tests.
func (k *keptResult) keys() ([]string, error) {
	for i, name := range k.Passed {
		k.Passed[i] = unique.Make(name).Value()
	}
	return []string{k.Key}, nil
}

// OpenStore opens or makes the directory. It fails with disk.ErrLocked where a living process works in it.
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

// Path is the path of a file in the directory.
func (s *Store) Path(name ...string) string {
	return filepath.Join(append([]string{s.path}, name...)...)
}

// Attempt makes the directory of an attempt to write tests, and returns its path. key identifies how they are written,
// see suite.Writer.Key: an attempt of another model is not taken for one of this.
func (s *Store) Attempt(j run.Job, key string) (string, error) {
	path := s.Path("tests", run.PathName(j.Task), fmt.Sprintf("%d-%s", j.Index, key[:min(8, len(key))]))
	return path, os.MkdirAll(path, 0o755)
}

// Close gives up the directory.
func (s *Store) Close() error {
	return errors.Join(s.judgements.close(), s.baselines.close(), s.results.close(), s.lock.Close())
}

// recorded returns the newest baselines of a task, the regression tests first.
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
