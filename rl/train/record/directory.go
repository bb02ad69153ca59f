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

// Create creates a run's directory with a configuration, which it returns in YAML as well.
func Create(c config.Config, path, program string, created time.Time) (*run.Dir, string, error) {
	text, err := c.YAML()
	if err != nil {
		return nil, "", err
	}
	own, err := disk.MarshalJSON(settings{Name: c.Name, Config: string(text)})
	if err != nil {
		return nil, "", err
	}
	d, err := run.Create(path, run.Manifest{Kind: run.Train, Created: created, Program: program, Settings: own})
	if errors.Is(err, run.ErrExists) {
		err = fmt.Errorf("%w; to fix: continue it with --resume, or choose another directory with --out", err)
	}
	return configured(d, text, err)
}

// Resume is Create for a run that exists, and that the configuration continues.
func Resume(c config.Config, path string) (*run.Dir, string, error) {
	text, err := c.YAML()
	if err != nil {
		return nil, "", err
	}
	d, err := run.Open(path, run.Train)
	if err == nil {
		err = resumable(d.Manifest, c)
	}
	return configured(d, text, err)
}

// configured writes the configuration into a run's directory, unless there is an error already.
func configured(d *run.Dir, text []byte, err error) (*run.Dir, string, error) {
	if err == nil {
		err = disk.WriteFile(d.Path(ConfigFile), text)
	}
	if err != nil && d != nil {
		err = errors.Join(err, d.Close())
	}
	if err != nil {
		return nil, "", err
	}
	return d, string(text), nil
}

// free lists the keys that may differ when a run is resumed, because they do not change what is learned.
func free() []string {
	return []string{
		"steps", "name", "evaluate", "checkpoint", "guards",
		"rollouts.workers", "rollouts.models", "rollouts.sandboxes", "rollouts.gradings", "rollouts.deadline",
		"rollouts.drain", "rollouts.retries", "rollouts.max_failures", "rollouts.keep_logs",
		"trainer.base_url", "trainer.samplers", "trainer.samplers_file", "trainer.adapters", "trainer.lora_sync_path",
		"environment.sandbox.env", "environment.sandbox.hosts", "environment.sandbox.kube_contexts",
		"environment.sandbox.kube_namespaces", "environment.sandbox.places_file", "environment.sandbox.registry_mirror",
		"environment.sandbox.image_budget", "environment.sandbox.warm",
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
		return fmt.Errorf("%w: %s cannot change; to fix: leave out the --set that changes it, or --config, to resume "+
			"with its own configuration; or start a new run with another --out", ErrOtherConfig, strings.Join(keys, ", "))
	}
	return nil
}
