package part

import (
	"context"
	"errors"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/rl/trainer/embedded"
)

// Split names a set of tasks.
type Split string

// Tasks of Train are learned from, those of Validation only measured.
const (
	Train      Split = "train"
	Validation Split = "validation"
)

// Environment provides tasks, and a way to play them. Each field but Player may be its zero value.
type Environment struct {
	Player
	// Random plays random moves, as a baseline for charts.
	Random run.Runner
	// Suites are further sets of validation tasks, each measured like Validation.
	Suites []Split
	// Source returns the source of a task, such as its repository.
	Source func(task string) string
	// Prepare checks the tasks before training, in the run's directory. It is called before the first call of Tasks, also
	// when a run is resumed.
	Prepare func(ctx context.Context, dir *run.Dir) error
	// Beginning writes what a training rollout began with to a file, for [EnvironmentOptions.Prefix], and returns the
	// number of its replies. It is called only if the settings say that rollouts can go on from others.
	Beginning func(j run.Job, path string) (replies int, err error)
	Language  Language
	// Gauges returns metrics of the sandboxes since its last call.
	Gauges func() map[string]float64
	// Close releases what the environment has opened. No other call follows it.
	Close func() error
}

// Player plays the tasks of an environment.
type Player interface {
	// Tasks returns the names of a split's tasks. They never change.
	Tasks(s Split) []string
	// Runner returns a runner that plays the tasks with a model. Rollouts of Validation are sampled as configured,
	// those of Train at temperature 1.
	Runner(s Split, m agent.Model) run.Runner
}

// Language returns the vocabulary to read and write, for a policy without any language, or an error if the settings
// need more than such a policy can read. It is nil for an environment that needs a language model.
type Language func() (embedded.Language, error)

// ErrTasks reports that the tasks of an environment cannot be used as the configuration says.
var ErrTasks = errors.New("tasks")

// EnvironmentOptions is what an environment needs from the rest of the configuration.
type EnvironmentOptions struct {
	// Seed of everything random in it.
	Seed uint64
	// Temperature of validation.
	Temperature float64
	// Gates bound sandboxes and gradings; calls of the model are bounded already. Workers is how many rollouts are played
	// at once.
	Gates   run.Gates
	Workers int
	// Grades reports whether training rollouts that end for the reason need a reward.
	Grades func(agent.StopReason) bool
	// Limits returns the limits of a training rollout where a stage of the run overrides the environment's settings.
	Limits func(run.Job) Limits
	// Prefix returns what a training rollout begins with. It is nil where each begins with its task.
	Prefix func(run.Job) Prefix
	World  cli.World
}

// Prefix is the beginning of an earlier rollout at the same task: its first replies, with what came of them. The file
// is one that [Environment.Beginning] has written. The zero value is the beginning of the task.
type Prefix struct {
	File    string
	Replies int
}

// PrefixDiffers is the metric of a rollout that was given up, and has no reward, because its beginning could not be
// played again as it was.
const PrefixDiffers = "prefix/differs"

// Limits of a rollout. A zero field leaves the environment's.
type Limits struct {
	Steps, Context int
}

// Two metrics of a rollout with these suffixes make one ratio: think/view is the sum of think/view:sum over all
// rollouts, divided by that of think/view:of.
const (
	SumEnd = ":sum"
	OfEnd  = ":of"
)

// TrainedShare is the metric of the share of the sampled tokens that are learned from, as far as the environment
// decides it. It does not depend on what algorithm and filters leave out.
const TrainedShare = "tokens/trained_share"

// Ratio adds a ratio to the metrics of a rollout.
func Ratio(m map[string]float64, name string, sum, of float64) {
	if of > 0 {
		m[name+SumEnd], m[name+OfEnd] = sum, of
	}
}
