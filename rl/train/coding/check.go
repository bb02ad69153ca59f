package coding

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/rl/train/part"
	"deepswe/verify/swe"
)

// check makes the soundness check of the training tasks, or the rest of it if the run was interrupted. It reuses the
// result of an earlier run with the same tasks and settings.
func (e *sweEnvironment) check(ctx context.Context) (*swe.Soundness, error) {
	log, ids := e.options.World.Logger(), e.ids[part.Train]
	kept, err := e.keptCheck(ids)
	if err != nil {
		return nil, err
	}
	var earlier swe.Soundness
	if kept != "" && disk.ReadJSON(kept, &earlier) == nil {
		log.Info("the tasks were checked by an earlier run", "tasks", len(ids), "kept in", kept)
		return &earlier, disk.WriteJSON(e.dir.Path(swe.SoundnessFile), earlier)
	}
	check := swe.Evaluation{
		IDs: ids, Runner: &swe.Runner{Tasks: e.tasks, Dir: e.dir.Attempt, Attempt: e.attempt},
		Evaluator: e.evaluator(part.Train), Dir: e.dir, Workers: e.options.Workers,
		Mutants: e.settings.CensusMutants, Log: log,
	}
	found, err := check.CheckSoundness(ctx, e.checkLines().watch())
	if err != nil || kept == "" || len(found.Failed) > 0 {
		return found, err
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o755), disk.WriteJSON(kept, found)); err != nil {
		log.Warn("other runs will check the tasks again", "error", err)
	}
	return found, nil
}

// keptCheck returns the file in which the result of a check is cached. Its name is a hash of all that the result
// depends on. It is empty without a cache directory, or if a task has no image: then, the result depends on what is
// installed on this machine.
func (e *sweEnvironment) keptCheck(ids []string) (string, error) {
	w, s := e.options.World, e.settings
	if w.Getenv == nil || w.Getenv("HOME") == "" && w.Getenv("XDG_CACHE_HOME") == "" {
		return "", nil
	}
	if slices.ContainsFunc(ids, func(id string) bool { return e.tasks[id].Image == "" }) {
		return "", nil
	}
	h := sha256.New()
	all := json.NewEncoder(h)
	err := all.Encode([]any{
		w.Version, s.Canary, s.Evidence, s.Odds, s.CensusMutants, s.GradeTimeout, s.Sandbox.Env, s.Sandbox.Network,
	})
	for _, id := range ids {
		if err == nil {
			err = all.Encode(e.tasks[id])
		}
	}
	return filepath.Join(w.CacheDir("soundness"), hex.EncodeToString(h.Sum(nil)[:16])+".json"), err
}

// checkEvery is the time between two lines about a check.
const checkEvery = time.Minute

// checkLines reports the progress of a check.
type checkLines struct {
	out io.Writer
	dir *run.Dir
	now func() time.Time

	mu          sync.Mutex
	part        string
	done, left  int
	begun, last time.Time
}

func (e *sweEnvironment) checkLines() *checkLines {
	c := &checkLines{out: e.options.World.Err, dir: e.dir, now: time.Now}
	if c.out == nil {
		c.out = io.Discard
	}
	return c
}

func (c *checkLines) watch() swe.Watch { return swe.Watch{Begin: c.begin, Observe: c.observe} }

func (c *checkLines) begin(part string, plan []run.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.part, c.done, c.left, c.begun = part, 0, 0, c.now()
	c.last = c.begun
	for _, j := range plan {
		if _, done := c.dir.Find(j); !done {
			c.left++
		}
	}
	if c.left > 0 {
		fmt.Fprintf(c.out, "%s of the tasks: %d gradings before the first step\n", c.part, c.left)
	}
}

func (c *checkLines) observe(e run.Event) {
	if e.Kind != run.Finished && e.Kind != run.Failed {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	c.left--
	at := c.now()
	if c.left <= 0 || at.Sub(c.last) < checkEvery {
		return
	}
	c.last = at
	still := at.Sub(c.begun) / time.Duration(c.done) * time.Duration(c.left)
	fmt.Fprintf(c.out, "%s of the tasks: %d of %d, about %s left\n", c.part, c.done, c.done+c.left,
		still.Round(time.Minute))
}
