package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/agent/llm"
	"deepswe/env/disk"
	"deepswe/rl"
	"deepswe/rl/rowfile"
	"deepswe/rl/train/config"
	"deepswe/rl/train/part"
	"deepswe/rl/train/record"
)

// RowsOnly is the configuration of the trainer "rows", which samples from an endpoint, changes no weights, and writes
// the rows of every update for another trainer.
type RowsOnly struct {
	cli.EndpointFlags `yaml:",inline"`
}

// Complete sets a learning rate, which nothing uses, and the way prompts are made.
func (r *RowsOnly) Complete(c *config.Config) error {
	if c.Objective == config.Imitation {
		return fmt.Errorf("it changes no weight: want one that objective %s can train", config.Imitation)
	}
	c.Optimizer.LearningRate = cmp.Or(c.Optimizer.LearningRate, 1e-6)
	r.Tokens = cmp.Or(r.Tokens, string(llm.Auto))
	if !slices.Contains(llm.Continuations(), llm.Continuation(r.Tokens)) {
		return fmt.Errorf("tokens is %q: want auto, extend or template", r.Tokens)
	}
	return nil
}

// Open opens the endpoint, which must be the one that the run began with.
func (r *RowsOnly) Open(ctx context.Context, o part.TrainerOptions) (part.Trainer, error) {
	served, err := r.EndpointFlags.Open(ctx, o.World)
	var identity llm.Identity // none for a recorded model
	if err == nil && served.Endpoint != nil {
		identity, err = served.Endpoint.Identify(ctx)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Join(o.Dir, rowsDir), 0o755)
	}
	if err == nil {
		err = sameEndpoint(filepath.Join(o.Dir, endpointFile), identity)
	}
	if err != nil {
		return part.Trainer{}, err
	}
	t := &rowsTrainer{policy: rl.Policy{Model: served.Model}, dir: o.Dir}
	return part.Trainer{Trainer: t, Pretrained: true, MaxContext: served.Context}, nil
}

// endpointFile records the identity of the endpoint with which the run began.
const endpointFile = "endpoint.json"

// sameEndpoint compares an endpoint with the recorded one, or records it if the run begins.
func sameEndpoint(path string, now llm.Identity) error {
	var began llm.Identity
	err := disk.ReadJSON(path, &began)
	if errors.Is(err, fs.ErrNotExist) {
		return disk.WriteJSON(path, now)
	}
	if err != nil {
		return err
	}
	if change := began.Change(now); change != "" {
		return fmt.Errorf("%w: %s; to fix: serve what the run began with, or begin a new one", agent.ErrModelChanged, change)
	}
	return nil
}

// rowsDir is the directory of the rows, next to the checkpoints.
const rowsDir = "rows"

// rowsTrainer writes the rows of its updates, one file per update. Its policy always has version 0.
type rowsTrainer struct {
	policy rl.Policy
	dir    string

	pending []rl.Row
	// written is the number of updates so far.
	written int
}

// Forward returns no log-probabilities, because there are no weights.
func (t *rowsTrainer) Forward(context.Context, []rl.Row) ([][]float64, error) { return nil, nil }

// ForwardBackward keeps the rows for Step. There is no loss.
func (t *rowsTrainer) ForwardBackward(_ context.Context, rows []rl.Row, _ rl.Objective) (rl.Pass, error) {
	t.pending = append(t.pending, rows...)
	s := rl.Stats{Rows: len(rows)}
	for i := range rows {
		s.Tokens += rows[i].TrainedTokens()
	}
	return rl.Pass{Stats: s}, nil
}

// Step writes the rows.
func (t *rowsTrainer) Step(_ context.Context, o rl.Optimizer) (rl.StepStats, error) {
	path := filepath.Join(t.dir, rowsDir, record.StepName(t.written+1)+".jsonl")
	err := rowfile.Create(path, func(w io.Writer) error {
		for i := range t.pending {
			t.pending[i].Scale *= cmp.Or(o.Scale, 1)
			if err := rowfile.WriteRow(w, &t.pending[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return rl.StepStats{}, err
	}
	t.written++
	t.pending = nil
	return rl.StepStats{}, nil
}

// Publish returns the endpoint's model.
func (t *rowsTrainer) Publish(context.Context) (rl.Policy, error) { return t.policy, nil }

// Save records the number of updates.
func (t *rowsTrainer) Save(_ context.Context, name string) error {
	if len(t.pending) > 0 {
		return errors.New("save rows: an update has begun; call Step first")
	}
	return disk.WriteJSON(t.path(name), t.written)
}

// Load restores what Save has recorded.
func (t *rowsTrainer) Load(_ context.Context, name string) error {
	return disk.ReadJSON(t.path(name), &t.written)
}

// Remove removes what Save has recorded. The rows stay.
func (t *rowsTrainer) Remove(_ context.Context, name string) error {
	if err := os.Remove(t.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (t *rowsTrainer) path(name string) string { return filepath.Join(t.dir, name+".json") }

// Close does nothing.
func (t *rowsTrainer) Close() error { return nil }
