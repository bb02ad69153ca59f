package ranking

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

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

	mu sync.Mutex
	// judgements are found by content, by stamp, and the newest of a candidate by its place.
	judgements map[string]judge.Judgement
	// baselines are found by key; latest has the newest of each script, by task and name.
	baselines map[string]suite.Baseline
	latest    map[string]map[string]suite.Baseline
	results   map[string]suite.Result
	logs      [3]*disk.Log
}

// keptJudgement is a line of judgements.jsonl. A judgement is found by its key, which stands for everything that the
// judge has read; by its stamp, which stands for the same files and is quicker to come by; and, where nobody is asked,
// by task, attempt and patch.
type keptJudgement struct {
	Key     string `json:"key"`
	Stamp   string `json:"stamp,omitempty"`
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Patch   string `json:"patch"`
	Model   string `json:"model,omitempty"`
	judge.Judgement
}

// place names a candidate, whoever judged it.
func place(task string, attempt int, patch string) string {
	return fmt.Sprintf("%s\x00%d\x00%s", task, attempt, patch)
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

// OpenStore opens or makes the directory. It fails with disk.ErrLocked where a living process works in it.
func OpenStore(path string) (*Store, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("open ranking: %w (choose another place with --out)", err)
	}
	lock, err := disk.TryLock(filepath.Join(path, lockFile))
	if err != nil {
		return nil, fmt.Errorf("open ranking in %s: %w", path, err)
	}
	s := &Store{
		path: path, lock: lock, judgements: map[string]judge.Judgement{}, baselines: map[string]suite.Baseline{},
		latest: map[string]map[string]suite.Baseline{}, results: map[string]suite.Result{},
	}
	for i, f := range []struct {
		name string
		read func(line []byte) error
	}{
		{judgementsFile, s.readJudgement}, {baselinesFile, s.readBaseline}, {resultsFile, s.readResult},
	} {
		if s.logs[i], err = disk.OpenLog(filepath.Join(path, f.name), f.read); err != nil {
			return nil, errors.Join(fmt.Errorf("open ranking: %w", err), s.Close())
		}
	}
	return s, nil
}

// Path is the path of a file in the directory.
func (s *Store) Path(name ...string) string {
	return filepath.Join(append([]string{s.path}, name...)...)
}

// Attempt makes the directory of an attempt to write tests, and returns its path.
func (s *Store) Attempt(j run.Job) (string, error) {
	path := s.Path("tests", run.PathName(j.Task), strconv.Itoa(j.Index))
	return path, os.MkdirAll(path, 0o755)
}

// Close gives up the directory.
func (s *Store) Close() error {
	var errs []error
	for _, l := range s.logs {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(append(errs, s.lock.Close())...)
}

func (s *Store) readJudgement(line []byte) error {
	var k keptJudgement
	if err := json.Unmarshal(line, &k); err != nil {
		return err
	}
	if k.Score != nil && !judge.Valid(*k.Score) {
		return fmt.Errorf("the score of %s #%d is %v", k.Task, k.Attempt, *k.Score)
	}
	s.rememberJudgement(k)
	return nil
}

func (s *Store) rememberJudgement(k keptJudgement) {
	for _, key := range []string{k.Key, k.Stamp} {
		if key != "" {
			s.judgements[key] = k.Judgement
		}
	}
	s.judgements[place(k.Task, k.Attempt, k.Patch)] = k.Judgement
}

func (s *Store) readBaseline(line []byte) error {
	var k keptBaseline
	err := json.Unmarshal(line, &k)
	s.rememberBaseline(k)
	return err
}

func (s *Store) rememberBaseline(k keptBaseline) {
	s.baselines[k.Key] = k.Baseline
	if s.latest[k.Task] == nil {
		s.latest[k.Task] = map[string]suite.Baseline{}
	}
	s.latest[k.Task][k.Script.Name] = k.Baseline
}

// recorded returns the newest baselines of a task, the regression tests first.
func (s *Store) recorded(task string) []suite.Baseline {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.latest[task]
	return slices.SortedFunc(maps.Values(all), func(a, b suite.Baseline) int {
		return cmp.Or(cmp.Compare(a.Script.Kind, b.Script.Kind), natural(a.Script.Name, b.Script.Name))
	})
}

func (s *Store) readResult(line []byte) error {
	var k keptResult
	err := json.Unmarshal(line, &k)
	s.results[k.Key] = k.Result
	return err
}

// append writes a line to one of the logs, and waits for the disk.
func (s *Store) append(log int, line any) error {
	if err := s.logs[log].Append(line); err != nil {
		return err
	}
	return s.logs[log].Sync()
}

func (s *Store) judgement(key string) (judge.Judgement, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, ok := s.judgements[key]
	return j, ok
}

func (s *Store) keepJudgement(k keptJudgement) error {
	s.mu.Lock()
	s.rememberJudgement(k)
	s.mu.Unlock()
	return s.append(0, k)
}

func (s *Store) baseline(key string) (suite.Baseline, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.baselines[key]
	return b, ok
}

func (s *Store) keepBaseline(k keptBaseline) error {
	s.mu.Lock()
	s.rememberBaseline(k)
	s.mu.Unlock()
	return s.append(1, k)
}

func (s *Store) result(key string) (suite.Result, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.results[key]
	return r, ok
}

func (s *Store) keepResult(k keptResult) error {
	s.mu.Lock()
	s.results[k.Key] = k.Result
	s.mu.Unlock()
	return s.append(2, k)
}
