// Package builtin is the table of the environments and trainers that this program brings.
package builtin

import (
	"deepswe/rl/train/backend"
	"deepswe/rl/train/coding"
	"deepswe/rl/train/config"
	"deepswe/rl/train/games"
)

// Parts returns the table. Each environment and each trainer is one line of it.
func Parts() config.Parts {
	return config.Parts{
		Environments: map[string]func() config.EnvironmentSettings{
			"frozenlake": func() config.EnvironmentSettings { return games.NewFrozenLake() },
			"residue":    func() config.EnvironmentSettings { return games.NewResidue() },
			"swe":        func() config.EnvironmentSettings { return coding.NewSettings() },
		},
		Trainers: map[string]func() config.TrainerSettings{
			"embedded": func() config.TrainerSettings { return backend.NewEmbedded() },
			"rows":     func() config.TrainerSettings { return &backend.RowsOnly{} },
			"tinker":   func() config.TrainerSettings { return backend.NewTinker() },
		},
	}
}
