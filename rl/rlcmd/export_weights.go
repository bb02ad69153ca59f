package rlcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"deepswe/agent/cli"
	"deepswe/env/disk"
	"deepswe/rl/train/record"
	"deepswe/rl/trainer/tinker"
	"deepswe/rl/weights"
)

// weightsOptions are the flags of --format adapter and model.
type weightsOptions struct {
	base       string
	baseName   string
	trainerURL string
	push       pushOptions
}

func (o *weightsOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.base, "base", "", "model: `DIR` of the base model, for a trainer that gives an adapter")
	f.StringVar(&o.baseName, "base-name", "", "adapter, model: `NAME` of the base on a hub (default: the trainer's)")
	f.StringVar(&o.trainerURL, "trainer-url", "", "adapter, model: `URL` of the trainer (default: the run's)")
	o.push.add(f)
}

// writeWeights writes the weights of a run's last checkpoint, and pushes them where that is asked for.
func (x *export) writeWeights(ctx context.Context, changed func(string) bool) error {
	if err := cmp.Or(x.applies(changed), x.weights.push.check(x.deps)); err != nil {
		return cli.Usage(err)
	}
	if x.run == "" || x.out == "-" {
		return cli.Usagef("--format %s takes the weights of a run: give --run DIR, and --out DIR for what is made", x.format)
	}
	if _, err := os.Lstat(x.out); err == nil {
		return cli.Usagef("--out %s: %w", x.out, fs.ErrExist)
	}
	trained, err := record.ReadTrained(x.run)
	if err != nil {
		return cli.Usage(err)
	}
	whole := trained.Keys["trainer.rank"] == "0"
	switch name := trained.Keys["trainer.name"]; {
	case name != "tinker":
		return cli.Usagef("the run's trainer is %s, and only the server of the trainer tinker hands out weights", name)
	case x.format == "adapter" && x.weights.base != "":
		return cli.Usagef("--base DIR goes with --format model, whose weights are those of the base and the adapter")
	case x.format == "adapter" && whole:
		return cli.Usagef("the run trains all weights (trainer.rank 0), and has no adapter: give --format model")
	case x.weights.base != "" && whole:
		return cli.Usagef("the run trains all weights (trainer.rank 0), and needs no base: leave out --base")
	}
	card := weights.Card{Base: cmp.Or(x.weights.baseName, trained.Keys["trainer.model"])}
	if card.Training, err = trained.Facts(); err != nil {
		return err
	}
	switch {
	case x.format == "adapter":
		err = x.writeAdapter(ctx, trained, card)
	case x.weights.base != "":
		err = x.writeMerged(ctx, trained, card)
	default:
		err = x.writeWhole(ctx, trained, card)
	}
	if err != nil {
		return err
	}
	return x.weights.push.send(ctx, x.deps, x.out)
}

func (x *export) writeAdapter(ctx context.Context, t record.Trained, card weights.Card) error {
	if err := x.downloadAdapter(ctx, t, x.out); err != nil {
		return err
	}
	x.say("%s: the adapter of step %d", x.out, t.Step)
	return weights.WriteAdapterCard(x.out, card)
}

// writeMerged merges the adapter into its base.
func (x *export) writeMerged(ctx context.Context, t record.Trained, card weights.Card) (err error) {
	scratch, err := disk.MakeScratch("", "adapter")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disk.RemoveScratch(scratch)) }()
	adapter := filepath.Join(scratch, "adapter")
	if err := x.downloadAdapter(ctx, t, adapter); err != nil {
		return err
	}
	return merge(ctx, x.deps, weights.Options{Base: x.weights.base, Adapter: adapter, Out: x.out, Card: card}, false)
}

// modelPatience is how long a server may be silent before it hands out all weights, which some read into memory first.
const modelPatience = 15 * time.Minute

// writeWhole downloads all weights, which servers on GPUs hand out.
func (x *export) writeWhole(ctx context.Context, t record.Trained, card weights.Card) error {
	client, err := x.connect(t, modelPatience)
	if err != nil {
		return err
	}
	defer client.Close()
	err = tinker.DownloadModel(ctx, client, t.Checkpoints(), t.Checkpoint, x.out, card)
	if errors.Is(err, weights.ErrAdapter) {
		return cli.Usagef("download the model: %w; to fix: give --base DIR, the model that the adapter was trained on", err)
	}
	if err != nil {
		return fmt.Errorf("download the model: %w", err)
	}
	x.say("%s: all weights of step %d", x.out, t.Step)
	return nil
}

// downloadAdapter downloads the adapter of the last checkpoint into a new directory.
func (x *export) downloadAdapter(ctx context.Context, t record.Trained, dir string) error {
	client, err := x.connect(t, time.Minute)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := tinker.DownloadAdapter(ctx, client, t.Checkpoints(), t.Checkpoint, dir); err != nil {
		return fmt.Errorf("download the adapter: %w", err)
	}
	return nil
}

// connect returns a client of the run's trainer.
func (x *export) connect(t record.Trained, patience time.Duration) (*tinker.Client, error) {
	client, err := tinker.NewClient(tinker.ClientOptions{
		URL: cmp.Or(x.weights.trainerURL, t.Keys["trainer.base_url"]), Key: x.deps.Getenv(tinker.KeyVariable),
		Patience: patience, Log: x.deps.Log, LoRASync: t.Keys["trainer.lora_sync_path"],
	})
	return client, cli.Usage(err)
}
