package mine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"deepswe/agent/run"
	history "deepswe/env/mine"
)

// A candidate is judged once, unless it is no task for a reason that may be gone: the user gives another set-up, image
// or time limit, or has installed something and says so. Each judgement is a job of its own, and none is forgotten:
// what has become a task stays one in runs with other settings.

// mayChange reports whether a candidate that was judged so may become a task on another machine, with another set-up or
// with more time.
func (j Judged) mayChange() bool {
	reasons := []history.Reason{NeverRuns, TooSlow, Exposed, history.NoRunner, history.NoReader}
	return j.Again || slices.Contains(reasons, j.Reason)
}

// settings names what the judgement of a candidate depends on, as far as the user says it.
func (m *Miner) settings() string {
	var given []string
	if m.given() {
		given = m.Setup
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "%q %q %s", given, m.Builder.Image, m.Builder.TestTimeout))
	return hex.EncodeToString(hash[:4])
}

// job returns the job that judges a candidate: that of an earlier run if its result still holds, and otherwise a new
// one.
func (m *Miner) job(id string) run.Job {
	same := -1
	for j := (run.Job{Task: id, Group: runsGroup(id)}); ; j.Index++ {
		o, known := m.Dir.Find(j)
		var before Judged
		if known && !o.Failed() {
			_ = json.Unmarshal(o.Detail, &before) // the miner has written it
		}
		switch {
		case known && !before.mayChange():
			return j
		case known && before.With == m.settings():
			same = j.Index
		case !known && same >= 0 && !m.Again:
			j.Index = same
			return j
		case !known:
			return j
		}
	}
}
