package ranking

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/verify/harness"
)

// readDir reads a directory of patches or of predictions.
func (s *Source) readDir(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	var predictions []string
	trajectories := map[string]bool{}
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		switch ext := filepath.Ext(e.Name()); {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			if err := s.readPatches(name, e.Name()); err != nil {
				return err
			}
		case isPatch(ext):
			one := patchEntry(0, name)
			trajectories[one.Trajectory] = true
			s.add(strings.TrimSuffix(e.Name(), ext), one)
		case ext == ".json" || ext == ".jsonl":
			predictions = append(predictions, name)
		}
	}
	if len(s.Tasks) > 0 {
		others := slices.DeleteFunc(predictions, func(name string) bool { return trajectories[name] })
		if len(others) > 0 {
			s.Notes = append(s.Notes, "the candidates are patches; left out are other files beside them: "+some(others))
		}
		return nil
	}
	slices.SortFunc(predictions, natural)
	for i, name := range predictions {
		if err := s.readPredictions(name, i); err != nil {
			return err
		}
	}
	return nil
}

func (s *Source) readPatches(dir, task string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && isPatch(filepath.Ext(e.Name())) {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	slices.SortFunc(names, natural)
	for i, name := range names {
		s.add(task, patchEntry(i, name))
	}
	return nil
}

func isPatch(ext string) bool { return ext == ".diff" || ext == ".patch" }

func patchEntry(id int, path string) Entry {
	stem := strings.TrimSuffix(path, filepath.Ext(path))
	e := Entry{ID: id, Name: filepath.Base(path), PatchFile: path}
	if _, err := os.Stat(stem + ".json"); err == nil {
		e.Trajectory = stem + ".json"
	}
	return e
}

// some names the first of several names, and says how many more there are.
func some(names []string) string {
	if more := len(names) - 1; more > 0 {
		return fmt.Sprintf("%s and %d more", names[0], more)
	}
	return names[0]
}

// natural compares names in natural order: 2 before 10.
func natural(a, b string) int {
	for a != "" && b != "" {
		m, n := digits(a), digits(b)
		if m > 0 && n > 0 {
			x, y := strings.TrimLeft(a[:m], "0"), strings.TrimLeft(b[:n], "0")
			if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); c != 0 {
				return c
			}
			a, b = a[m:], b[n:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func digits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

// readPredictions reads a file of predictions as attempt number id. A task that occurs several times in the file has
// several candidates.
func (s *Source) readPredictions(path string, id int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	list, err := harness.ReadAllPredictions(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	seen := map[string]int{}
	for _, p := range list {
		e := Entry{ID: id, Name: filepath.Base(path), Model: p.Model}
		if p.Patch != nil {
			e.Patch = []byte(*p.Patch)
		}
		if seen[p.InstanceID]++; seen[p.InstanceID] == 2 {
			s.Notes = append(s.Notes, fmt.Sprintf("%s has several predictions for %s: each is a candidate",
				filepath.Base(path), p.InstanceID))
		}
		s.add(p.InstanceID, e)
	}
	return nil
}

// add adds a candidate. If its number is taken, it gets the next free one.
func (s *Source) add(task string, e Entry) {
	i := slices.IndexFunc(s.Tasks, func(t Set) bool { return t.Task == task })
	if i < 0 {
		i = len(s.Tasks)
		s.Tasks = append(s.Tasks, Set{Task: task})
	}
	set := &s.Tasks[i]
	for slices.ContainsFunc(set.Entries, func(other Entry) bool { return other.ID == e.ID }) {
		e.ID++
	}
	set.Entries = append(set.Entries, e)
}

// NoteBlind adds a note on how many patches have no trajectory for the judge to read.
func (s *Source) NoteBlind() {
	blind := 0
	for _, t := range s.Tasks {
		for _, e := range t.Entries {
			blind += countIf(e.Trajectory == "")
		}
	}
	if blind > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("patches that the judge reads without a trajectory: %d", blind))
	}
}

// Only removes the candidates for unknown tasks, and adds a note on them.
func (s *Source) Only(known func(task string) bool) {
	var unknown []string
	s.Tasks = slices.DeleteFunc(s.Tasks, func(t Set) bool {
		if known(t.Task) {
			return false
		}
		unknown = append(unknown, t.Task)
		return true
	})
	if len(unknown) > 0 {
		s.Notes = append(s.Notes, "left out are candidates for tasks that the dataset does not have: "+some(unknown))
	}
}
