package record

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"deepswe/agent/run"
	"deepswe/agent/trajectory"
	"deepswe/env/disk"
)

// visitsFile has a Visit for each group that a run has learned from, in that order.
const visitsFile = "visits.jsonl"

// Visit is how a task's rollouts ended when a run learned from them.
type Visit struct {
	// Update is the step that learned from the group, Step the one that it was admitted for.
	Update int    `json:"update"`
	Step   int    `json:"step"`
	Group  string `json:"group"`
	Task   string `json:"task"`
	// Rewards and Stops are in the order of the attempts; a reward is null if there is none.
	Rewards []*float64              `json:"rewards"`
	Stops   []trajectory.StopReason `json:"stops"`
}

// OpenVisits opens the file for appending after the last update that counts.
func OpenVisits(dir *run.Dir, after int) (*disk.Log, error) {
	return disk.OpenLog(dir.Path(visitsFile), func(line []byte) error {
		var v Visit
		err := json.Unmarshal(line, &v)
		if err == nil && v.Update > after {
			err = io.EOF
		}
		return err
	})
}

// ReadVisits reads what a run has learned from so far. A run of an older version has no visits.
func ReadVisits(dir string) ([]Visit, error) {
	visits, err := disk.ReadRecords(filepath.Join(dir, visitsFile), func(line []byte) (v Visit, err error) {
		err = json.Unmarshal(line, &v)
		return v, err
	})
	if err != nil {
		return nil, fmt.Errorf("read visits: %w", err)
	}
	return visits, nil
}
