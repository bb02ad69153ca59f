package part

import (
	"context"

	"deepswe/agent/cli"
	"deepswe/rl"
)

// Trainer is a trainer with its optional abilities: each field but Trainer may be its zero value.
type Trainer struct {
	rl.Trainer
	// Pretrained is set for a policy that begins as a language model, not with random weights.
	Pretrained bool
	// Experts is how many experts the layers of a mixture choose from; 0 for other models, and where it is not known.
	Experts int
	// MaxContext is the maximum context of the sampler, in tokens of prompt and reply together.
	MaxContext int
	// Samplers returns how many servers sample now; nil means one.
	Samplers func() int
	// Gauges returns metrics of the trainer's servers.
	Gauges func() map[string]float64
	// Accepts checks a row before the first update. The error wraps rl.ErrTooLong if the row is only too long.
	Accepts func(r *rl.Row) error
	// Imitate makes an update of cross-entropy in a cheaper way than ForwardBackward and Step.
	Imitate func(ctx context.Context, rows []rl.Row, o rl.Optimizer) (rl.Stats, rl.StepStats, error)
	// WarmStart learns from demonstrations before the first step. It returns the mean loss of each pass over them, in
	// nats per token. Called again in the same run, it returns the same losses without learning again.
	WarmStart func(ctx context.Context) ([]float64, error)
}

// TrainerOptions is what a trainer needs besides its own section.
type TrainerOptions struct {
	Seed uint64
	// Dir is the directory for checkpoints; it need not exist.
	Dir string
	// Workers is the maximum number of processors to use, 0 for all.
	Workers int
	// Language is the environment's.
	Language Language
	// Calls is how many calls a server that samples has room for; 0 means no limit.
	Calls int
	// Imitates is set if nothing will be sampled, so no vocabulary is needed.
	Imitates bool
	World    cli.World
}
