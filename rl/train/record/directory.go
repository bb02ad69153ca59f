package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/rl/train/config"
)

// settings is what the manifest of a training run contains.
type settings struct {
	Name string `json:"name"`
	// Config is the resolved configuration with which the run began, in YAML.
	Config string `json:"config"`
}

// Create creates a run's directory.
func Create(c config.Config, path, program string, created time.Time) (*run.Dir, error) {
	text, err := c.YAML()
	if err != nil {
		return nil, err
	}
	own, err := disk.MarshalJSON(settings{Name: c.Name, Config: string(text)})
	if err != nil {
		return nil, err
	}
	d, err := run.Create(path, run.Manifest{Kind: run.Train, Created: created, Program: program, Settings: own})
	if errors.Is(err, run.ErrExists) {
		return nil, fmt.Errorf("%w; to fix: continue it with --resume, or choose another directory with --out", err)
	}
	if err != nil {
		return nil, err
	}
	return configured(d, text)
}

// Resume opens the directory of a run that is resumed with a configuration.
func Resume(c config.Config, path string) (*run.Dir, error) {
	text, err := c.YAML()
	if err != nil {
		return nil, err
	}
	d, err := run.Open(path, run.Train)
	if err != nil {
		return nil, err
	}
	if err := resumable(d.Manifest, c); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return configured(d, text)
}

// configured writes the configuration into a run's directory.
func configured(d *run.Dir, text []byte) (*run.Dir, error) {
	if err := disk.WriteFile(d.Path(ConfigFile), text); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// free lists the keys that may differ when a run is resumed, because they do not change what is learned.
func free() []string {
	return []string{
		"steps", "name", "evaluate", "checkpoint", "guards",
		"rollouts.workers", "rollouts.models", "rollouts.sandboxes", "rollouts.gradings", "rollouts.deadline",
		"rollouts.drain", "rollouts.retries", "rollouts.max_failures", "rollouts.keep_logs",
		"trainer.base_url", "trainer.samplers", "trainer.adapters", "environment.sandbox.hosts",
		"trainer.patience", "trainer.check_tokens", "trainer.check_tolerance",
	}
}

// ErrOtherConfig reports that a run cannot be resumed with this configuration.
var ErrOtherConfig = errors.New("the run began with another configuration")

// resumable refuses a configuration that would change what the run learns.
func resumable(m run.Manifest, c config.Config) error {
	var own settings
	if err := json.Unmarshal(m.Settings, &own); err != nil {
		return fmt.Errorf("the settings in the run's manifest: %w", err)
	}
	keys, err := c.Changed([]byte(own.Config))
	if err != nil {
		return fmt.Errorf("the run's own %w", err)
	}
	keys = slices.DeleteFunc(keys, func(key string) bool {
		return slices.ContainsFunc(free(), func(f string) bool {
			rest, ok := strings.CutPrefix(key, f)
			return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
		})
	})
	if len(keys) > 0 {
		return fmt.Errorf("%w: %s cannot change; to fix: leave out --config to resume with its own, "+
			"or start a new run with --out",
			ErrOtherConfig, strings.Join(keys, ", "))
	}
	return nil
}
