package rl

import (
	"context"

	"deepswe/agent"
)

// Trainer holds a policy's weights and changes them. The embedded one is a small network on the CPU; others speak to a
// GPU engine over HTTP. Calls are made one at a time.
type Trainer interface {
	// ForwardBackward adds the gradient of the objective over the rows to what is accumulated, and changes no weight.
	// Losses are sums: every divisor is already in Row.Scale.
	ForwardBackward(ctx context.Context, rows []Row, o Objective) (Stats, error)
	// Step applies the accumulated gradient and clears it.
	Step(ctx context.Context, o Optimizer) (StepStats, error)
	// Publish makes the current weights available for sampling. Where no weight has changed since the last call, the
	// version is the same. Policies that were published before go on answering until nothing in flight needs them.
	Publish(ctx context.Context) (Policy, error)
	// Save writes weights and optimizer state under the name, Load restores them exactly, and Remove deletes them;
	// removing a name that does not exist is not an error.
	Save(ctx context.Context, name string) error
	Load(ctx context.Context, name string) error
	Remove(ctx context.Context, name string) error
	// Close ends what the trainer has started: sessions, connections, goroutines. No other call follows it.
	Close() error
}

// Policy is a published policy: the model that samples from its weights, and their version.
type Policy struct {
	Model   agent.Model
	Version int64
}

// Optimizer is Adam with decoupled weight decay (Loshchilov and Hutter 2019) and a clip on the gradient's global norm.
// A zero Beta1, Beta2 or Epsilon means 0.9, 0.999 and 1e-8; a zero ClipNorm does not clip.
type Optimizer struct {
	LearningRate float64
	Beta1, Beta2 float64
	Epsilon      float64
	WeightDecay  float64
	ClipNorm     float64
}

// StepStats describes an optimizer step. Skipped is set when the gradient was not finite and nothing was changed.
type StepStats struct {
	GradientNorm float64
	Skipped      bool
}
