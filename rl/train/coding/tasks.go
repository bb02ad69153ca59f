package coding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"

	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/dataset"
	"deepswe/env/disk"
	"deepswe/rl/train/part"
	"deepswe/verify"
	"deepswe/verify/swe"
)

// Tasks selects tasks of a dataset, like the flags of deepswe eval.
type Tasks struct {
	Path           string  `yaml:"path"`
	Filter         string  `yaml:"filter"`
	ExcludeReposOf string  `yaml:"exclude_repos_of"`
	Shuffle        *uint64 `yaml:"shuffle"`
	Slice          string  `yaml:"slice"`
}

func (t Tasks) validate(section string) error {
	_, err := t.options()
	if err != nil {
		return fmt.Errorf("%s.%w", section, err)
	}
	return nil
}

func (t Tasks) options() (o dataset.Options, err error) {
	o = dataset.Options{ExcludeReposOf: t.ExcludeReposOf, Shuffle: t.Shuffle, Counts: new(dataset.Counts)}
	if t.Filter != "" {
		if o.Filter, err = regexp.Compile(t.Filter); err != nil {
			return o, fmt.Errorf("filter: %w", err)
		}
	}
	if t.Slice != "" {
		if o.Slice, err = dataset.ParseSlice(t.Slice); err != nil {
			return o, fmt.Errorf("slice: %w", err)
		}
	}
	return o, nil
}

// chosenTasks holds the tasks of all splits.
type chosenTasks struct {
	tasks map[string]env.Task
	ids   map[part.Split][]string
	// image is one of their images. Either all tasks have one, or none.
	image string
}

// choose reads the tasks of all splits, and refuses overlaps between training and validation.
func (s *Settings) choose(log *slog.Logger) (*chosenTasks, error) {
	c := &chosenTasks{tasks: map[string]env.Task{}, ids: map[part.Split][]string{}}
	if err := c.read(part.Train, s.Train, s.Sandbox.Image, log); err != nil {
		return nil, err
	}
	if s.Validation.Path != "" {
		if err := c.read(part.Validation, s.Validation.Tasks, s.Sandbox.Image, log); err != nil {
			return nil, err
		}
	} else if s.Share > 0 {
		c.holdOut(s.Share)
	}
	for _, suite := range s.Suites {
		if err := c.read(part.Split(suite.Name), suite.Tasks, s.Sandbox.Image, log); err != nil {
			return nil, err
		}
	}
	if len(c.ids[part.Train]) == 0 {
		return nil, fmt.Errorf("%w: none is left to learn from: validation_share has taken all", part.ErrTasks)
	}
	if err := run.CheckNames(slices.Sorted(maps.Keys(c.tasks))); err != nil {
		return nil, fmt.Errorf("%w: %w", part.ErrTasks, err)
	}
	return c, c.findImage()
}

// problem identifies what a task is about. Tasks with different ids may have the same problem.
type problem struct{ repo, commit, statement string }

func problemOf(t env.Task) problem { return problem{t.Repo, t.BaseCommit, t.Statement} }

// read adds the tasks of a split. Tasks without an image get the given one.
func (c *chosenTasks) read(s part.Split, t Tasks, image string, log *slog.Logger) error {
	o, err := t.options()
	if err != nil {
		return err
	}
	o.Image = image
	learned := map[string]bool{}
	problems := map[problem]bool{}
	for _, id := range c.ids[part.Train] {
		learned[id] = true
		problems[problemOf(c.tasks[id])] = true
	}
	own := map[string]bool{}
	var twice, both, other []string
	for task, err := range dataset.Read(t.Path, o) {
		if bad, ok := errors.AsType[*dataset.RecordError](err); ok {
			log.Warn("left out of the tasks", "record", bad)
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", part.ErrTasks, s, err)
		}
		switch {
		case own[task.ID]:
			twice = append(twice, task.ID)
			continue
		case s != part.Train && (learned[task.ID] || task.Repo != "" && problems[problemOf(task)]):
			both = append(both, task.ID)
			continue
		}
		own[task.ID] = true
		if err := verify.Gradable(task); err != nil {
			log.Warn("left out of the tasks", "error", err)
			continue
		}
		if known, ok := c.tasks[task.ID]; ok && !reflect.DeepEqual(known, task) {
			other = append(other, task.ID)
		}
		c.tasks[task.ID] = task
		c.ids[s] = append(c.ids[s], task.ID)
	}
	switch n := o.Counts; {
	case len(twice) > 0:
		return fmt.Errorf("%w: %s has the task %s twice", part.ErrTasks, t.Path, twice[0])
	case len(both) > 0:
		return fmt.Errorf("%w: %d are both trained and validated on, such as %s; to fix: keep them apart with "+
			"train.filter, train.slice or train.exclude_repos_of, or use validation_share", part.ErrTasks, len(both), both[0])
	case len(other) > 0:
		return fmt.Errorf("%w: %d of %s have the id of a different task of another suite, such as %s; to fix: leave one of "+
			"the suites out, and measure it with deepswe eval", part.ErrTasks, len(other), t.Path, other[0])
	case len(c.ids[s]) == 0:
		return fmt.Errorf("%w: none is left in %s: of its %d records, %d could not be understood, %d did not match the "+
			"filter, and %d are of excluded repositories", part.ErrTasks, t.Path, n.Records, n.Bad, n.Filtered, n.Excluded)
	}
	return nil
}

// holdOut moves a share of the training tasks to validation: those whose ids have the smallest hashes, so that adding
// or removing tasks moves few others.
func (c *chosenTasks) holdOut(share float64) {
	all := c.ids[part.Train]
	byHash := slices.SortedFunc(slices.Values(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(hashOf(a), hashOf(b)), cmp.Compare(a, b))
	})
	held := map[string]bool{}
	for _, id := range byHash[:min(len(all), int(math.Ceil(share*float64(len(all)))))] {
		held[id] = true
	}
	c.ids[part.Validation] = slices.DeleteFunc(slices.Clone(all), func(id string) bool { return !held[id] })
	c.ids[part.Train] = slices.DeleteFunc(slices.Clone(all), func(id string) bool { return held[id] })
}

func hashOf(id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64()
}

// findImage refuses a mixture of tasks with and without images, which no provider can play.
func (c *chosenTasks) findImage() error {
	with, without := "", ""
	for id, t := range c.tasks {
		if image := cmp.Or(t.Image, t.Dockerfile); image != "" {
			c.image, with = image, id
		} else {
			without = id
		}
	}
	if with != "" && without != "" {
		return fmt.Errorf("%w: %s has an image and %s has none: no kind of sandbox plays both", part.ErrTasks, with,
			without)
	}
	return nil
}

// The ways to check training tasks.
const (
	censusCheck = "check"
	censusOff   = "off"
)

// prepare leaves out unsound training tasks: those whose tests pass without a change, or fail with the reference
// solution.
func (e *sweEnvironment) prepare(ctx context.Context, dir *run.Dir) error {
	e.dir, e.attempt.Run = dir, filepath.Base(dir.Path())
	if e.settings.Census == censusOff {
		return nil
	}
	found, err := e.census(ctx)
	if err != nil {
		return err
	}
	log := e.options.World.Logger()
	e.scores = found.MutationScores()
	for _, t := range found.WeakestTests() {
		log.Warn("the tests accept wrong solutions", "task", t.Task, "mutation score", t.Mutation.Score,
			"such as", t.Mutation.Survivors[0])
	}
	results := map[string]swe.TaskSoundness{}
	for _, t := range found.Results {
		results[t.Task] = t
	}
	var left []string
	weak := map[verify.Strength]int{}
	for _, id := range e.ids[part.Train] {
		t, known := results[id]
		if !known {
			return fmt.Errorf("census: %s does not name task %s", e.settings.Census, id)
		}
		switch verdict := e.verdict(t); verdict {
		case swe.Sound, swe.NoGold:
			left = append(left, id)
		case swe.WeakEvidence:
			weak[t.Gold.Evidence]++
			log.Warn("not learned from: the evidence for a reward would be too weak", "task", id,
				"evidence", t.Gold.Evidence, "required", e.settings.Evidence, "canary", t.Gold.Canary,
				"because", t.Gold.CanaryReason)
		default:
			log.Warn("not learned from: the task is not sound", "task", id, "census", verdict)
		}
	}
	advice := e.advice(weak)
	if n := len(e.ids[part.Train]); len(left) == 0 {
		if advice == "" {
			advice = "deepswe eval --census -k 0 says why"
		}
		return fmt.Errorf("%w: none is left to learn from: none of %d is sound; %s", part.ErrTasks, n, advice)
	}
	if advice != "" {
		log.Warn(advice)
	}
	e.ids[part.Train] = left
	return nil
}

// verdict returns the result of a task's check. A census may have required less evidence than rewards do; one without
// canaries says nothing about it.
func (e *sweEnvironment) verdict(t swe.TaskSoundness) swe.SoundnessVerdict {
	if t.Verdict != swe.Sound || t.Gold == nil || t.Gold.Evidence == "" || t.Gold.Canary == verify.CanaryDisabled {
		return t.Verdict
	}
	if !t.Gold.Evidence.Suffices(verify.Strength(e.settings.Evidence)) {
		return swe.WeakEvidence
	}
	return swe.Sound
}

// advice says how to learn from tasks whose evidence is weaker than what is required, given how many have which; empty
// if there are none, or if their evidence is none at all.
func (e *sweEnvironment) advice(weak map[verify.Strength]int) string {
	more := 0
	for _, s := range slices.Backward(verify.Strengths()) {
		if more += weak[s]; more > 0 && s != verify.NoEvidence {
			return fmt.Sprintf("environment.evidence=%s in place of %s would learn from %d more tasks (docs/grading.md)",
				s, e.settings.Evidence, more)
		}
	}
	return ""
}

// census reads the census named in the settings, or makes one.
func (e *sweEnvironment) census(ctx context.Context) (*swe.Soundness, error) {
	if path := e.settings.Census; path != censusCheck {
		var s swe.Soundness
		err := disk.ReadJSON(path, &s)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("census: %w; want check, off, or the census.json of deepswe eval --census", err)
		}
		return &s, err
	}
	return e.check(ctx)
}
