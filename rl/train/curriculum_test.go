package train

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/rl/train/config"
	"deepswe/rl/train/record"
)

// tasksOf returns tasks with a curriculum and no log.
func tasksOf(names ...string) *tasks {
	t := &tasks{
		settings:        config.Curriculum{On: true, After: 2, Every: 4, MaxRate: 1, Exhausted: config.Warn},
		order:           order{seed: 1, tasks: names},
		curriculumState: curriculumState{Tasks: map[string]*knowledge{}},
	}
	for _, name := range names {
		k := &knowledge{name: name, place: t.place(name, 0)}
		t.Tasks[name] = k
		t.list = append(t.list, k)
	}
	return t
}

// Tasks that are always or never solved come only every fourth round, until that changes.
func TestCurriculumVisitsWhatTeaches(t *testing.T) {
	t.Parallel()
	c := tasksOf("always", "never", "sometimes", "other")
	solved := map[string]int{"always": 4, "never": 0, "sometimes": 2, "other": 1}
	visits := map[string]int{}
	var orders []string
	for range 200 {
		name := c.nextTask()
		c.visit(name)
		visits[name]++
		orders = append(orders, name)
		c.observeVisit(name, solved[name], 4)
	}
	if a, n := visits["always"], visits["never"]; a < 18 || a > 24 || n < 18 || n > 24 {
		t.Errorf("visits %v: want a quarter as many of parked tasks", visits)
	}
	if v := c.values(); v["curriculum/parked_always"] != 1 || v["curriculum/parked_never"] != 1 ||
		v["curriculum/open"] != 2 || v["curriculum/unseen"] != 0 {
		t.Errorf("values %v", v)
	}
	first := orders[:4]
	slices.Sort(first)
	if !slices.Equal(first, []string{"always", "never", "other", "sometimes"}) {
		t.Errorf("the first round had %q", first)
	}
	clear(visits)
	for range 60 {
		name := c.nextTask()
		c.visit(name)
		visits[name]++
		c.observeVisit(name, 2, 4)
	}
	if visits["never"] < 10 || visits["always"] < 10 {
		t.Errorf("visits %v: want unparked tasks in every round", visits)
	}
}

func TestRunningEstimate(t *testing.T) {
	t.Parallel()
	c := tasksOf("a")
	for i, x := range []struct {
		solved int
		want   float64
	}{{4, 1}, {0, 1.0 / 3}, {2, (0.25 + 0 + 0.5) / 1.75}} {
		c.observeVisit("a", x.solved, 4)
		if got := c.Tasks["a"].Rate; got < x.want-1e-12 || got > x.want+1e-12 {
			t.Errorf("after %d visits %v, want %v", i+1, got, x.want)
		}
	}
	before := *c.Tasks["a"]
	if c.observeVisit("a", 0, 0); *c.Tasks["a"] != before {
		t.Error("a visit without a graded rollout counts")
	}
}

// The second stage of arXiv 2508.03501 keeps the tasks that some, but at most two thirds of ten rollouts solve.
func TestCurriculumDropsWhatIsMostlySolved(t *testing.T) {
	t.Parallel()
	solved := map[string]int{"none": 0, "one": 1, "six": 6, "seven": 7, "all": 10}
	c := tasksOf("none", "one", "six", "seven", "all")
	c.settings = config.Curriculum{On: false, After: 1, Every: 0, MaxRate: 2.0 / 3, Exhausted: config.Warn}
	visits := func(rounds int) map[string]int {
		n := map[string]int{}
		for range rounds {
			name := c.nextTask()
			c.visit(name)
			n[name]++
			c.observeVisit(name, solved[name], 10)
		}
		return n
	}
	if first := visits(5); len(first) != 5 {
		t.Errorf("before it is on %v are visited", first)
	}
	c.settings.On = true
	if n := visits(20); n["one"] != 10 || n["six"] != 10 {
		t.Errorf("then %v", n)
	}
	if v := c.values(); v["curriculum/parked_always"] != 2 || v["curriculum/parked_never"] != 1 || v["curriculum/open"] != 2 {
		t.Errorf("values %v", v)
	}
}

// A run in which all tasks are parked says so, or stops for that reason.
func TestAllTasksParked(t *testing.T) {
	t.Parallel()
	dull := func(a run.Job) (float64, error) {
		if a.Task == "t0" {
			return 1, nil
		}
		return 0, nil
	}
	const on = "curriculum.on=true"
	_, dir, err := flip(t, &counting{}, dull, on, "curriculum.exhausted=stop", "steps=9")
	if !errors.Is(err, errGuard) || !strings.Contains(err.Error(), "no task of 5 has groups whose rewards differ: 1 are always solved, and 4") {
		t.Errorf("got %v", err)
	}
	var s state
	if err := disk.ReadJSON(filepath.Join(dir, record.StateFile), &s); err != nil || s.Curriculum == nil || s.Step == 0 {
		t.Errorf("state %+v, %v: what was learned is saved", s, err)
	}
	if _, _, err := flip(t, &counting{}, dull, on, "steps=9"); err != nil {
		t.Errorf("a warning ended the run: %v", err)
	}
}
