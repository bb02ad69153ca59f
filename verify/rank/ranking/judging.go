package ranking

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"deepswe/agent/llm"
	"deepswe/agent/run"
	"deepswe/agent/trajectory"
	"deepswe/verify/rank/judge"
)

// judge has all candidates judged whose scores are not recorded, except for empty patches, which never win.
func (r *Ranking) judge(ctx context.Context) error {
	jobs := map[run.Job]func(context.Context) (string, error){}
	config := r.judgeConfig()
	for _, c := range r.contests {
		for i, e := range c.set.Entries {
			if c.patches[i] == "" || r.settled(c) {
				continue
			}
			found := place(c.set.Task, e.ID, c.patches[i])
			if r.Judge != nil {
				found = stamp(config, c.set, e, c.patches[i])
			}
			if k := r.Store.judgements.find(found); k != nil {
				c.judgements[i] = &k.Judgement
				continue
			}
			if r.Judge == nil {
				c.failures[i] = "no score is on record"
				continue
			}
			jobs[run.Job{Task: c.set.Task, Group: c.set.Task, Index: i}] = func(ctx context.Context) (string, error) {
				return r.judgeOne(ctx, c, i, found)
			}
		}
	}
	if len(jobs) > 0 && len(r.Tasks) == 0 {
		return errNoTask
	}
	return r.work(ctx, Judging, jobs)
}

// judgeConfig identifies the judge and its settings.
func (r *Ranking) judgeConfig() string {
	if r.Judge == nil {
		return ""
	}
	return r.Judge.Key(judge.Evidence{})
}

// judgeOne judges one candidate, unless the same content was judged before.
func (r *Ranking) judgeOne(ctx context.Context, c *contest, i int, stamp string) (string, error) {
	e := c.set.Entries[i]
	evidence, note, err := r.evidence(c, i)
	if err != nil {
		return "", err
	}
	key := r.Judge.Key(evidence)
	known := r.Store.judgements.find(key)
	var j judge.Judgement
	if known != nil {
		j = known.Judgement
	} else {
		if j, err = r.Judge.Score(ctx, evidence); err != nil {
			r.mu.Lock()
			c.failures[i] = "the judge failed: " + err.Error()
			r.mu.Unlock()
			if refused, ok := errors.AsType[*llm.Error](err); ok && permanent(refused.Status) {
				return "", run.Abort(err)
			}
			return "", err
		}
	}
	kept := &keptJudgement{
		Key: key, Stamp: stamp, Task: c.set.Task, Attempt: e.ID, Patch: c.patches[i], Model: r.Judge.Model, Judgement: j,
	}
	if err := r.Store.judgements.keep(kept); err != nil {
		return "", run.Abort(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.judgements[i], c.failures[i] = &kept.Judgement, ""
	if known == nil {
		r.cost.Requests += j.Calls
		r.cost.Tokens += j.Tokens
	}
	text := fmt.Sprintf("#%d: %s", e.ID, scoreText(j))
	if note != "" {
		text += "; " + note
	}
	return text, nil
}

// permanent reports whether all other requests would be refused, too.
func permanent(status int) bool { return status == 401 || status == 403 || status == 404 }

func scoreText(j judge.Judgement) string {
	if j.Score == nil {
		return "no score: " + j.Reason
	}
	text := fmt.Sprintf("score %.3f", *j.Score)
	switch j.Bound {
	case judge.AtLeast:
		text = fmt.Sprintf("score at least %.3f", *j.Score)
	case judge.AtMost:
		text = fmt.Sprintf("score at most %.3f", *j.Score)
	case judge.Exact:
	}
	if j.Method == judge.BySamples {
		text += fmt.Sprintf(" (%d samples)", j.Samples)
	}
	return text
}

// evidence returns what the judge reads of a candidate. A missing or unreadable trajectory is left out, with a note.
func (r *Ranking) evidence(c *contest, i int) (e judge.Evidence, note string, err error) {
	task, err := r.task(c.set.Task)
	if err != nil {
		return e, "", err
	}
	entry := c.set.Entries[i]
	patch, err := entry.ReadPatch()
	if err != nil {
		return e, "", run.Abort(err)
	}
	e = judge.Evidence{Statement: task.Statement, Patch: strings.ToValidUTF8(string(patch), "\uFFFD")}
	if entry.Trajectory == "" {
		return e, "", nil
	}
	rec, err := trajectory.Open(entry.Trajectory)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return e, "", nil
	case err != nil:
		return e, "its trajectory cannot be read: " + err.Error(), nil
	}
	e.Steps = judge.Steps(rec)
	return e, "", nil
}
