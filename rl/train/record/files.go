package record

import (
	"fmt"
	"strconv"
	"strings"

	"deepswe/agent/run"
	"deepswe/rl/train/part"
)

// The files of a training run, in addition to those of run.Dir.
const (
	ConfigFile     = "config.yaml"
	MetricsFile    = "metrics.jsonl"
	ReportFile     = "report.html"
	TensorBoardDir = "tensorboard"
	StateFile      = "state.json"
	CheckpointsDir = "checkpoints"
	StepsDir       = "steps"
)

// StageMetric is the metric of how many stages had begun when a step's update was made.
const StageMetric = "stage"

// StepName is the name of a step's directory in [StepsDir].
func StepName(step int) string { return fmt.Sprintf("%06d", step) }

// JournalPath returns the file of a step's rollouts: rollouts.jsonl for training, validation.jsonl, and
// validation-NAME.jsonl for any other split.
func JournalPath(dir *run.Dir, step int, s part.Split) string {
	name := rolloutsFile
	switch s {
	case part.Train:
	case part.Validation:
		name = "validation.jsonl"
	default:
		name = "validation-" + string(s) + ".jsonl"
	}
	return dir.Path(StepsDir, StepName(step), name)
}

// GroupName names a group by the step that it was admitted for and its slot there.
func GroupName(step, slot int) string { return fmt.Sprintf("%s.%d", StepName(step), slot) }

// StepOf returns the step that a group was admitted for; 0 if [GroupName] makes no such name.
func StepOf(group string) int {
	step, _, _ := strings.Cut(group, ".")
	n, _ := strconv.Atoi(step)
	return n
}
