package train

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"deepswe/env/disk"
	"deepswe/rl/train/config"
)

// tasks assigns tasks to groups. It is used by the loop only.
type tasks struct {
	// settings are in force at the step that the last group was admitted for.
	settings config.Curriculum
	order    order // used without a curriculum

	curriculumState
	// log records every choice. A resumed run repeats the recorded ones, whatever was learned after the groups had
	// begun.
	log    *disk.Log
	chosen map[int]choice
	list   []*knowledge // in the order of order.tasks
	warned bool

	prefixes *prefixes // nil if every rollout begins with its task
	// saved are the beginnings that the newest checkpoint needs.
	saved map[string]bool
}

// tasksFile has a line for each group of a run with a curriculum, in the order of admission.
const tasksFile = "tasks.jsonl"

// choice is a line of tasksFile.
type choice struct {
	Group int    `json:"group"`
	Task  string `json:"task"`
	// Prefix is what its rollouts begin with; nil means the task alone.
	Prefix *prefix `json:"prefix,omitempty"`
}

// curriculumState is the part of a checkpoint that a curriculum needs.
type curriculumState struct {
	// Chosen is the number of groups to which a task was assigned.
	Chosen int                   `json:"chosen"`
	Tasks  map[string]*knowledge `json:"tasks"`
}

// knowledge is the history of a task.
type knowledge struct {
	// Round is the round in which the task comes next, Visits the number of its visits so far.
	Round  int `json:"round"`
	Visits int `json:"visits"`
	// Rate estimates the share of its rollouts that solve it: the mean over visits, each weighted half as much as the
	// next. Seen is the number of visits with a graded rollout.
	Rate float64 `json:"rate"`
	Seen int     `json:"seen"`
	// Same is the number of visits in a row in which all rollouts solved it, or none, as Last says.
	Same int     `json:"same"`
	Last float64 `json:"last"`
	// Level is the share of an earlier rollout's replies that the next group replays: those of Success if it is positive,
	// those of Failure if it is negative.
	Level   float64 `json:"level,omitempty"`
	Success *donor  `json:"success,omitempty"`
	Failure *donor  `json:"failure,omitempty"`

	name  string
	place uint64 // its position in the round
}

// demoted reports whether the task is visited less often, because its rollouts do not differ.
func (k *knowledge) demoted(c config.Curriculum) bool {
	return c.On && (k.Same >= c.After || k.Rate > c.MaxRate)
}

// openTasks reads the choices made so far from the file at a path. kept is the state of a checkpoint, if there is one.
// If only a later stage has a curriculum, the histories that it needs are kept from the first step on.
func openTasks(g *stages, step int, all order, path string, kept *curriculumState) (*tasks, error) {
	if len(all.tasks) == 0 {
		return nil, errors.New("the environment has no tasks to learn from")
	}
	t := &tasks{settings: g.at(step).Curriculum, order: all}
	if !g.any(func(c *config.Config) bool { return c.Curriculum.On || c.Prefix.On }) {
		return t, nil
	}
	var known map[string]*knowledge
	if kept != nil {
		t.Chosen, known = kept.Chosen, kept.Tasks
	}
	t.Tasks = make(map[string]*knowledge, len(all.tasks))
	for _, name := range all.tasks {
		k := known[name]
		if k == nil {
			k = &knowledge{}
		}
		k.name, k.place = name, t.place(name, k.Round)
		t.Tasks[name] = k
		t.list = append(t.list, k)
	}
	t.chosen = map[int]choice{}
	t.saved = t.donors()
	var err error
	t.log, err = disk.OpenLog(path, func(line []byte) error {
		var c choice
		err := json.Unmarshal(line, &c)
		t.chosen[c.Group] = c
		return err
	})
	return t, err
}

// at returns the task of a group, and what its rollouts begin with. Groups must be asked for in order, each with the
// settings of its step.
func (t *tasks) at(number int, now *config.Config) (choice, error) {
	t.settings = now.Curriculum
	if t.Tasks == nil {
		return choice{Group: number, Task: t.order.at(number)}, nil
	}
	c, known := t.chosen[number]
	if !known || t.Tasks[c.Task] == nil {
		name := t.nextTask()
		c = choice{number, name, t.Tasks[name].prefix(now.Prefix)}
	}
	if number >= t.Chosen {
		t.visit(c.Task)
		t.Chosen = number + 1
	}
	if known {
		return c, nil
	}
	t.chosen[number] = c
	return c, t.log.Append(c)
}

// nextTask returns the task that comes next: the first of the earliest round. Tasks that never come again come last.
func (t *tasks) nextTask() string {
	dropped := func(k *knowledge) int {
		if t.settings.Every == 0 && k.demoted(t.settings) {
			return 1
		}
		return 0
	}
	return slices.MinFunc(t.list, func(a, b *knowledge) int {
		return cmp.Or(dropped(a)-dropped(b), cmp.Compare(a.Round, b.Round), cmp.Compare(a.place, b.place))
	}).name
}

// place returns a task's position in a round.
func (t *tasks) place(name string, round int) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %d %s", t.order.seed^orderStream, round, name)
	return h.Sum64()
}

// visit records that a task was chosen, and sets its next round.
func (t *tasks) visit(name string) {
	k := t.Tasks[name]
	k.Visits++
	k.Round++
	if k.demoted(t.settings) {
		k.Round += max(0, t.settings.Every-1)
	}
	k.place = t.place(name, k.Round)
}

// observeVisit records how many of a group's graded rollouts solved its task.
func (t *tasks) observeVisit(name string, solved, graded int) {
	if t.Tasks == nil || graded == 0 {
		return
	}
	k := t.Tasks[name]
	rate := float64(solved) / float64(graded)
	k.Seen++
	// The mean over all visits so far, with the weights 1, 1/2, 1/4, … from the last one back.
	weight := 0.5 / (1 - math.Pow(0.5, float64(k.Seen)))
	k.Rate += weight * (rate - k.Rate)
	switch {
	case rate > 0 && rate < 1:
		k.Same = 0
	case k.Same > 0 && k.Last != rate:
		k.Same = 1
	default:
		k.Same++
	}
	k.Last = rate
}

// values returns the metrics of the curriculum.
func (t *tasks) values() map[string]float64 {
	if t.Tasks == nil {
		return nil
	}
	var unseen, always, never, seen, rate float64
	for _, k := range t.list {
		switch {
		case k.Seen == 0:
			unseen++
			continue
		case k.demoted(t.settings) && (k.Last > 0 || k.Rate > t.settings.MaxRate):
			always++
		case k.demoted(t.settings):
			never++
		}
		seen++
		rate += k.Rate
	}
	v := map[string]float64{
		"curriculum/unseen": unseen, "curriculum/parked_always": always, "curriculum/parked_never": never,
		"curriculum/open": seen - always - never,
	}
	if seen > 0 {
		v["curriculum/rate"] = rate / seen
	}
	return v
}

// warn returns a warning, or an error, if every task is demoted.
func (t *tasks) warn() (warnings []string, err error) {
	v := t.values()
	exhausted := t.settings.On && v["curriculum/unseen"]+v["curriculum/open"] == 0
	first := exhausted && !t.warned
	t.warned = exhausted
	if !first || t.settings.Exhausted == config.Off {
		return nil, nil
	}
	text := fmt.Sprintf("no task of %d has groups whose rewards differ: %.0f are always solved, and %.0f never; they "+
		"are still tried, in turn. To fix: train on other tasks, give rollouts more steps or context, or set "+
		"curriculum.on: false",
		len(t.order.tasks), v["curriculum/parked_always"], v["curriculum/parked_never"])
	if t.settings.Exhausted == config.Stop {
		return nil, fmt.Errorf("%w: %s", errGuard, text)
	}
	return []string{text}, nil
}

// state returns the state for a checkpoint.
func (t *tasks) state() *curriculumState {
	if t.Tasks == nil {
		return nil
	}
	s := curriculumState{Chosen: t.Chosen, Tasks: map[string]*knowledge{}}
	for _, k := range t.list {
		if own := *k; own.Visits > 0 {
			s.Tasks[k.name] = &own
		}
	}
	t.saved = t.donors()
	return &s
}

func (t *tasks) close() error {
	if t.log == nil {
		return nil
	}
	return t.log.Close()
}

// order is the sequence of tasks: all of them, shuffled anew for each pass. It depends on the seed and the number of
// tasks taken only, so a resumed run continues it.
type order struct {
	seed  uint64
	tasks []string

	round   int
	shuffle []int
}

const orderStream = 0x6f72646572

// at returns the task at a position of the endless sequence.
func (o *order) at(place int) string {
	round := place / len(o.tasks)
	if o.shuffle == nil || round != o.round {
		o.round = round
		o.shuffle = rand.New(rand.NewPCG(o.seed^orderStream, uint64(round))).Perm(len(o.tasks))
	}
	return o.tasks[o.shuffle[place%len(o.tasks)]]
}
