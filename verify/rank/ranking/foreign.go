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
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		switch ext := filepath.Ext(e.Name()); {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			if err := s.readPatches(name, e.Name()); err != nil {
				return err
			}
		case isPatch(ext):
			s.add(strings.TrimSuffix(e.Name(), ext), patchEntry(0, name))
		case ext == ".json" || ext == ".jsonl":
			predictions = append(predictions, name)
		}
	}
	if len(s.Tasks) > 0 {
		return nil // a .json file beside patches is about them
	}
	slices.SortFunc(predictions, natural)
	for i, name := range predictions {
		if err := s.readPredictions(name, i); err != nil {
			return err
		}
	}
	return nil
}

// readPatches reads the patches for one task.
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

// natural orders names as people do: 2 before 10.
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

// readPredictions reads a file of predictions as attempt number id. A task that occurs twice in one file has one
// candidate for each time.
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
		e := Entry{ID: id, Name: fmt.Sprintf("%s #%d", filepath.Base(path), id), Model: p.Model}
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

// add adds a candidate. Where its number is taken, it gets the next free one.
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

// NoteBlind notes how many patches come without a trajectory, where a judge is to read them.
func (s *Source) NoteBlind() {
	blind := 0
	for _, t := range s.Tasks {
		for _, e := range t.Entries {
			blind += countIf(e.Trajectory == "")
		}
	}
	if blind > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("the judge reads %d patches without a trajectory", blind))
	}
}

// Only leaves out the candidates for tasks that are not known, and notes them.
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
		s.Notes = append(s.Notes, fmt.Sprintf("the candidates for %d tasks that the dataset does not have are left out, "+
			"such as %s", len(unknown), unknown[0]))
	}
}
