package backend

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"deepswe/agent"
	"deepswe/env/disk"
	"deepswe/rl/train/config"
	"deepswe/rl/train/demonstrations"
	"deepswe/rl/train/part"
	"deepswe/rl/trainer/embedded"
)

// Embedded is the configuration of the trainer "embedded".
type Embedded struct {
	Hidden int `yaml:"hidden"`
	// Demonstrations is a file of conversations, as deepswe export --format sft writes them, or the name of bundled
	// ones. With demonstrations, the policy has their words and attends to the whole conversation, and it imitates them
	// before the first step. Without them, it reads and writes the environment's language.
	Demonstrations string `yaml:"demonstrations"`
	// Passes are made over the demonstrations, with an update for every Batch of them and a learning rate that falls
	// from ImitationRate to 0.
	Passes        int     `yaml:"passes" least:"0"`
	Batch         int     `yaml:"batch" least:"1"`
	ImitationRate float64 `yaml:"imitation_rate" most:"1"`
	// Blind hides from the policy what tools have answered, to measure what it can do without.
	Blind bool `yaml:"blind"`
}

// NewEmbedded returns the defaults.
func NewEmbedded() *Embedded {
	return &Embedded{Hidden: 64, Passes: 10, Batch: 1, ImitationRate: 1e-2}
}

// Complete sets a learning rate that suits a small network, or a lower one if it imitates demonstrations, which it
// would unlearn otherwise. It makes the path absolute, because a run may be resumed from another directory.
func (e *Embedded) Complete(c *config.Config) error {
	if c.Optimizer.LearningRate == 0 {
		c.Optimizer.LearningRate = 3e-3
		if e.Demonstrations != "" {
			c.Optimizer.LearningRate = 1e-3
		}
	}
	var errs []error
	if e.Hidden < 1 || e.Hidden > 4096 {
		errs = append(errs, fmt.Errorf("hidden is %d: want 1 to 4096", e.Hidden))
	}
	if !demonstrations.Bundled(e.Demonstrations) {
		errs = append(errs, config.Absolute(&e.Demonstrations))
	}
	if e.Blind && e.Demonstrations == "" {
		errs = append(errs, errors.New("blind requires demonstrations"))
	}
	return errors.Join(errs...)
}

// Open creates a policy with random weights.
func (e *Embedded) Open(ctx context.Context, o part.TrainerOptions) (part.Trainer, error) {
	own := embedded.Options{Hidden: e.Hidden, Blind: e.Blind, Seed: o.Seed, Dir: o.Dir, Workers: o.Workers}
	var all []embedded.Demonstration
	var err error
	switch {
	case e.Demonstrations != "":
		if all, err = readDemonstrations(ctx, e.Demonstrations); err != nil {
			return part.Trainer{}, fmt.Errorf("demonstrations: %w", err)
		}
		own.Lexicon = embedded.LexiconOf(all)
		own.Reply = max(minReply, own.Lexicon.LongestReply(all))
	case o.Language == nil:
		return part.Trainer{}, errors.New("the embedded policy cannot read this environment; " +
			"to fix: set trainer.demonstrations, or use the environment frozenlake, or another trainer")
	default:
		if own.Language, err = o.Language(); err != nil {
			return part.Trainer{}, err
		}
	}
	t, err := embedded.New(own)
	if err != nil {
		return part.Trainer{}, err
	}
	opened := part.Trainer{Trainer: t, Accepts: t.Accepts}
	if all != nil {
		opened.WarmStart = func(ctx context.Context) ([]float64, error) { return e.warmStart(ctx, t, all, o.Dir) }
	}
	return opened, nil
}

// minReply is the smallest limit of a reply, in tokens: a little longer than a call with a line of a program.
const minReply = 64

// The checkpoint of a policy that has imitated, and the file with the losses of its passes.
const (
	warmCheckpoint = "imitated"
	warmLosses     = "imitated.json"
)

// warmStart imitates the demonstrations, or loads the result if the run did so before it was interrupted.
func (e *Embedded) warmStart(
	ctx context.Context, t *embedded.Trainer, all []embedded.Demonstration, dir string,
) (losses []float64, err error) {
	err = disk.ReadJSON(filepath.Join(dir, warmLosses), &losses)
	if err == nil {
		return losses, t.Load(ctx, warmCheckpoint)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	how := embedded.Imitation{Passes: e.Passes, Batch: e.Batch, LearningRate: e.ImitationRate}
	losses, err = t.WarmStart(ctx, all, how)
	if err != nil {
		return nil, err
	}
	if err := t.Save(ctx, warmCheckpoint); err != nil {
		return nil, err
	}
	data, err := disk.MarshalJSON(losses)
	if err != nil {
		return nil, err
	}
	return losses, disk.WriteFile(filepath.Join(dir, warmLosses), data)
}

// readDemonstrations reads the conversations of a file, or bundled ones.
func readDemonstrations(ctx context.Context, name string) ([]embedded.Demonstration, error) {
	source, err := demonstrations.Open(name)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	var all []embedded.Demonstration
	for e, err := range source.Examples(ctx) {
		if err != nil {
			return nil, err
		}
		if len(e.Messages) == 0 {
			return nil, fmt.Errorf("%s has token ids of another policy; to fix: export conversations, with deepswe export "+
				"--format sft --sft-form messages", e.Where())
		}
		d := embedded.Demonstration{Task: e.Row.Task, Messages: e.Messages}
		for i, m := range e.Messages {
			d.Imitated = append(d.Imitated, m.Role == agent.RoleAssistant && e.Weights[i] > 0)
		}
		all = append(all, d)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has none", name)
	}
	return all, nil
}
