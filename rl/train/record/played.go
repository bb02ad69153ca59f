package record

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"deepswe/env/disk"
	"deepswe/rl"
	"deepswe/rl/rowfile"
)

// Played is a rollout as read from a run's files.
type Played struct {
	rl.Rollout
	extras
}

// Steps returns the numbers of the steps whose rollouts are in a run's directory, in order.
func Steps(dir string) ([]int, error) {
	entries, err := os.ReadDir(filepath.Join(dir, StepsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var steps []int
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if len(disk.Glob(filepath.Join(dir, StepsDir, e.Name()), rolloutsFile+"*")) > 0 {
			steps = append(steps, n)
		}
	}
	slices.Sort(steps)
	return steps, err
}

// ReadStep reads the finished rollouts of the groups that were admitted for a step, ordered by group and index. The
// step may still be under way.
func ReadStep(dir string, step int) ([][]Played, error) {
	groups := map[string][]Played{}
	err := readPlayed(filepath.Join(dir, StepsDir, StepName(step), rolloutsFile), func(p Played) {
		groups[p.Group] = append(groups[p.Group], p)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the rollouts of step %d are not there: %w; train keeps them with rollouts.keep_logs", step,
			err)
	}
	if err != nil {
		return nil, fmt.Errorf("read step %d: %w", step, err)
	}
	all := slices.SortedFunc(maps.Values(groups), func(a, b []Played) int {
		return cmp.Compare(slotOf(a[0].Group), slotOf(b[0].Group))
	})
	for _, g := range all {
		slices.SortFunc(g, func(a, b Played) int { return cmp.Compare(a.Attempt, b.Attempt) })
	}
	return all, nil
}

// readPlayed reads a file of rollouts, compressed or not. An incomplete last line is left out.
func readPlayed(path string, add func(Played)) (err error) {
	r, err := rowfile.Decompressed(path)
	if errors.Is(err, fs.ErrNotExist) {
		r, err = rowfile.Decompressed(path + ".zst")
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return disk.ReadLines(r, func(line []byte) error {
		p, err := decode(line)
		if err == nil {
			add(p)
		}
		return err
	})
}

// slotOf returns a group's slot in the step that it was admitted for.
func slotOf(group string) int {
	_, slot, _ := strings.Cut(group, ".")
	n, _ := strconv.Atoi(slot) // 0 for any other name
	return n
}
