package config

import (
	"context"

	"deepswe/rl/train/part"
)

// EnvironmentSettings is the section "environment" of a configuration: a pointer to a struct with yaml tags that holds
// the defaults.
type EnvironmentSettings interface {
	// Complete fills in zero values, here and in c, for which the environment knows a good value. Then it validates the
	// section.
	Complete(c *Config) error
	// Open reads the files that the settings name. It is called before a run's directory is created. Its error wraps
	// [part.ErrTasks] if nothing can be learned from them.
	Open(ctx context.Context, o part.EnvironmentOptions) (part.Environment, error)
}

// TrainerSettings is the section "trainer", like EnvironmentSettings. The environment's section is completed first.
type TrainerSettings interface {
	Complete(c *Config) error
	Open(ctx context.Context, o part.TrainerOptions) (part.Trainer, error)
}

// Parts holds the environments and trainers that a configuration can name. Each function returns new settings with the
// defaults.
type Parts struct {
	Environments map[string]func() EnvironmentSettings
	Trainers     map[string]func() TrainerSettings
}
