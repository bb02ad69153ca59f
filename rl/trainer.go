package rl

import "context"

// Trainer holds a policy's weights and changes them. The embedded one is a small network on the CPU; others speak to a
// GPU engine over HTTP. Calls are made one at a time.
type Trainer interface {
	// ForwardBackward adds the gradient of the objective over the rows to what is accumulated, and changes no weight.
	// Losses are sums: every divisor is already in Row.Scale.
	ForwardBackward(ctx context.Context, rows []Row, o Objective) (Stats, error)
	// Step applies the accumulated gradient and clears it.
	Step(ctx context.Context, o Optimizer) (StepStats, error)
	// Publish makes the sampler answer with the current weights from now on and returns their version: the same as before
	// where no weight has changed.
	Publish(ctx context.Context) (version int64, err error)
	// Save writes weights and optimizer state under the name; Load restores them exactly.
	Save(ctx context.Context, name string) error
	Load(ctx context.Context, name string) error
}

// Optimizer is Adam with decoupled weight decay (Loshchilov and Hutter 2019) and a clip on the gradient's global norm.
// A zero Beta1, Beta2 or Epsilon stands for 0.9, 0.999 and 1e-8; a zero ClipNorm does not clip.
type Optimizer struct {
	LearningRate float64
	Beta1, Beta2 float64
	Epsilon      float64
	WeightDecay  float64
	ClipNorm     float64
}

// StepStats tells what a step did. Skipped is set when the gradient was not finite and nothing was changed.
type StepStats struct {
	GradientNorm float64
	Skipped      bool
}
