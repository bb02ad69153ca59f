package train

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"deepswe/agent/run"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/verify/swe"
)

// prefixesDir holds the beginnings of earlier rollouts.
const prefixesDir = "prefixes"

// prefix is what all rollouts of a group begin with: the first replies of an earlier rollout, whose log File names.
type prefix struct {
	File    string `json:"file"`
	Replies int    `json:"replies"`
	// Solved tells whether the earlier rollout solved the task.
	Solved bool `json:"solved"`
}

// donor is a rollout that others may begin with.
type donor struct {
	File    string `json:"file"`
	Replies int    `json:"replies"`
}

// prefixes holds the prefix of each group in progress. It is safe for concurrent use.
type prefixes struct {
	dir *run.Dir
	// write is the environment's Beginning.
	write func(j run.Job, path string) (replies int, err error)

	mu      sync.Mutex
	byGroup map[string]*prefix
}

// of returns the prefix of a rollout; the zero value if it starts from the task.
func (p *prefixes) of(j run.Job) part.Prefix {
	p.mu.Lock()
	defer p.mu.Unlock()
	if own := p.byGroup[j.Group]; own != nil {
		return part.Prefix{File: p.dir.Path(prefixesDir, own.File), Replies: own.Replies}
	}
	return part.Prefix{}
}

// beginGroup sets the prefix of a group; with nil, its rollouts start from the task.
func (p *prefixes) beginGroup(group string, own *prefix) {
	if own == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byGroup[group] = own
}

// end forgets a group, and returns its prefix; nil if it started from the task.
func (p *prefixes) end(group string) *prefix {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.byGroup[group]
	delete(p.byGroup, group)
	return own
}

// donate keeps the first rollout of a group that solved the task, and the first that did not, for later groups. A group
// that itself began with an earlier rollout only gives those that are missing.
func (p *prefixes) donate(k *knowledge, outcomes []run.Outcome, continued bool) error {
	for _, solved := range []bool{true, false} {
		at := k.donor(solved)
		if continued && *at != nil {
			continue
		}
		for _, o := range outcomes {
			if o.Reward == nil || swe.Solved(o) != solved {
				continue
			}
			name := run.PathName(o.Group) + "-" + strconv.Itoa(o.Index) + ".jsonl"
			if err := os.MkdirAll(p.dir.Path(prefixesDir), 0o755); err != nil {
				return fmt.Errorf("keep a beginning: %w", err)
			}
			n, err := p.write(o.Job, p.dir.Path(prefixesDir, name))
			if err != nil {
				return fmt.Errorf("keep a beginning: %w", err)
			}
			*at = &donor{name, n}
			break
		}
	}
	return nil
}

// observePrefix records how the rollouts of a group ended, for what later groups at the task begin with. continued is
// whether the group itself began with an earlier rollout, which says nothing about the task from its beginning.
func (t *tasks) observePrefix(
	task string, g *group, solved, graded int, c config.Prefix, m prefixMetrics,
) (continued bool, err error) {
	if t.prefixes == nil {
		return false, nil
	}
	own, k := t.prefixes.end(g.name), t.Tasks[task]
	m.addGroup(own, solved, graded)
	for _, o := range g.outcomes {
		if o.Metrics[part.PrefixDiffers] == 0 {
			continue
		}
		m[part.PrefixDiffers]++
		if d := k.donor(own.Solved); *d != nil && (*d).File == own.File {
			*d = nil
		}
	}
	if c.On && graded > 0 {
		k.steer(float64(solved)/float64(graded), c)
	}
	return own != nil, t.prefixes.donate(k, g.outcomes, own != nil)
}

// donors returns the files with the beginnings that are known.
func (t *tasks) donors() map[string]bool {
	names := map[string]bool{}
	for _, k := range t.list {
		for _, d := range []*donor{k.Success, k.Failure} {
			if d != nil {
				names[d.File] = true
			}
		}
	}
	return names
}

// tidy removes the beginnings that neither a group after the given place nor a resumed run needs.
func (t *tasks) tidy(done place) error {
	keep := t.donors()
	maps.Copy(keep, t.saved)
	for number, c := range t.chosen {
		if c.Prefix != nil && number >= done.Cursor {
			keep[c.Prefix.File] = true
		}
	}
	p := t.prefixes
	entries, err := os.ReadDir(p.dir.Path(prefixesDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("tidy beginnings: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !keep[e.Name()] {
			errs = append(errs, os.Remove(filepath.Join(p.dir.Path(prefixesDir), e.Name())))
		}
	}
	return errors.Join(errs...)
}

// prefixMetrics are the metrics of the groups of an update, by what they began with.
type prefixMetrics map[string]float64

// addGroup adds a group with graded rollouts.
func (m prefixMetrics) addGroup(own *prefix, solved, graded int) {
	if graded == 0 {
		return
	}
	kind := "start"
	switch {
	case own != nil && own.Solved:
		kind = "success"
	case own != nil:
		kind = "failure"
	}
	n := m["prefix/groups/"+kind] + 1
	m["prefix/groups/"+kind] = n
	mean := func(name string, v, n float64) { m[name] += (v - m[name]) / n }
	if own != nil {
		mean("prefix/replies", float64(own.Replies), m["prefix/groups/success"]+m["prefix/groups/failure"])
	}
	mean("prefix/rate/"+kind, float64(solved)/float64(graded), n)
}

// donor returns the field with the donor that solved the task or, if solved is false, with the one that did not.
func (k *knowledge) donor(solved bool) **donor {
	if solved {
		return &k.Success
	}
	return &k.Failure
}

// prefix returns what the next group at the task begins with; nil means the task alone. At least one reply of the
// earlier rollout is left out, so that there is something to do.
func (k *knowledge) prefix(c config.Prefix) *prefix {
	solved := k.Level > 0
	d := *k.donor(solved)
	if !c.On || d == nil {
		return nil
	}
	n := min(int(math.Round(math.Abs(k.Level)*float64(d.Replies))), d.Replies-1)
	if n < 1 {
		return nil
	}
	return &prefix{d.File, n, solved}
}

// steer changes the part of an earlier rollout that the next group begins with, so that half of its rollouts solve the
// task: more of a success, or less of a failure, where most failed, and the other way round.
func (k *knowledge) steer(rate float64, c config.Prefix) {
	if apart := 0.5 - rate; math.Abs(apart) > c.Slack {
		k.Level = max(-c.Most, min(c.Most, k.Level+math.Copysign(c.Step, apart)))
	}
}
