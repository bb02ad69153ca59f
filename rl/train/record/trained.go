package record

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/rl/metrics"
	"deepswe/rl/report"
	"deepswe/rl/train/config"
)

// Last is the last checkpoint of a run: its step, and the trainer's name for it.
type Last struct {
	Step       int    `json:"step"`
	Checkpoint string `json:"checkpoint"`
}

// Trained is what a run has trained until its last checkpoint.
type Trained struct {
	Last
	// Keys are the run's configuration, by path, as in "trainer.model".
	Keys map[string]string
	dir  string
	made run.Manifest
}

// ReadTrained reads what a run in dir has trained.
func ReadTrained(dir string) (t Trained, err error) {
	t.dir = dir
	if t.made, err = run.ReadManifest(dir); err != nil {
		return t, err
	}
	if t.made.Kind != run.Train {
		return t, fmt.Errorf("%s is a run of %s, which trains nothing", dir, t.made.Kind)
	}
	text, err := os.ReadFile(filepath.Join(dir, ConfigFile))
	if err != nil {
		return t, err
	}
	if t.Keys, err = config.Flatten(text); err != nil {
		return t, fmt.Errorf("%s: %w", ConfigFile, err)
	}
	t.Last, err = ReadLast(dir)
	return t, err
}

// ReadLast reads which checkpoint of a run in dir is the last.
func ReadLast(dir string) (l Last, err error) {
	err = disk.ReadJSON(filepath.Join(dir, StateFile), &l)
	if errors.Is(err, fs.ErrNotExist) {
		return l, fmt.Errorf("the run has no checkpoint yet: %w", err)
	}
	return l, err
}

// Checkpoints is the directory of the run's checkpoints.
func (t Trained) Checkpoints() string { return filepath.Join(t.dir, CheckpointsDir) }

// latest is the number of steps whose rewards are averaged.
const latest = 10

// Facts says how the weights were trained, a sentence or a figure each, without paths or names of hosts.
func (t Trained) Facts() ([]string, error) {
	k := t.Keys
	what := "LoRA of rank " + k["trainer.rank"]
	if k["trainer.rank"] == "0" {
		what = "all weights"
	}
	facts := []string{
		fmt.Sprintf("Run %q of %s with %s, step %d.", k["name"], t.made.Created.UTC().Format(time.DateOnly), t.made.Program,
			t.Step),
		fmt.Sprintf("Environment %s; %s groups of %s rollouts an update.", k["environment.name"], k["rollouts.tasks"],
			k["rollouts.group"]),
		fmt.Sprintf("Algorithm %s, learning rate %s, %s.", k["algorithm.preset"], k["optimizer.learning_rate"], what),
	}
	facts = append(facts, t.choices()...)
	points, err := metrics.ReadJSONL(filepath.Join(t.dir, MetricsFile))
	if err != nil {
		return nil, err
	}
	last, rewards := map[string]float64{}, []float64{}
	for _, p := range points {
		if p.Step > t.Step {
			continue
		}
		maps.Copy(last, p.Values)
		if v, ok := p.Values["reward/mean"]; ok {
			rewards = append(rewards, v)
		}
	}
	rewards = rewards[max(0, len(rewards)-latest):]
	switch mean, half := report.MeanInterval(rewards); {
	case len(rewards) > 1:
		facts = append(facts, fmt.Sprintf("Mean reward of the last %d steps: %.3f ± %.3f (95%% interval by Student's t over "+
			"the steps).", len(rewards), mean, half))
	case len(rewards) == 1:
		facts = append(facts, fmt.Sprintf("Mean reward of the only step: %.3f.", mean))
	}
	if v, ok := last["val/pass@1"]; ok {
		facts = append(facts, fmt.Sprintf("Last validation: pass@1 %.3f (95%% interval %.3f to %.3f).", v,
			last["val/pass@1_low"], last["val/pass@1_high"]))
	}
	return facts, nil
}

// choices are the tasks of a run and the switches of its algorithm that its configuration sets.
func (t Trained) choices() (facts []string) {
	for _, set := range []struct{ key, name string }{{"train", "Tasks"}, {"validation", "Tasks of the validation"}} {
		if path := t.Keys["environment."+set.key+".path"]; path != "" {
			facts = append(facts, set.name+": "+filepath.Base(path)+".")
		}
	}
	var switches []string
	for _, key := range slices.Sorted(maps.Keys(t.Keys)) {
		if name, ok := strings.CutPrefix(key, "algorithm.set."); ok {
			switches = append(switches, name+"="+t.Keys[key])
		}
	}
	if len(switches) > 0 {
		facts = append(facts, "Switches of the algorithm: "+strings.Join(switches, ", ")+".")
	}
	return facts
}
