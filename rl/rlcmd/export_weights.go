package rlcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"deepswe/agent/cli"
	"deepswe/env/disk"
	"deepswe/rl/train/record"
	"deepswe/rl/trainer/tinker"
	"deepswe/rl/weights"
)

// weightsOptions are for what --format adapter and model write.
type weightsOptions struct {
	base       string
	baseName   string
	trainerURL string
	push       pushOptions
}

func (o *weightsOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.base, "base", "", "model: `DIR` of the base model")
	f.StringVar(&o.baseName, "base-name", "", "adapter, model: `NAME` of the base on a hub (default: the trainer's)")
	f.StringVar(&o.trainerURL, "trainer-url", "", "adapter, model: `URL` of the trainer (default: the run's)")
	o.push.add(f)
}

// writeWeights downloads the adapter of a run's last checkpoint and, for a model, merges it into its base.
func (x *export) writeWeights(ctx context.Context, changed func(string) bool) (err error) {
	if err := cmp.Or(x.applies(changed), x.weights.push.check(x.deps)); err != nil {
		return cli.Usage(err)
	}
	switch {
	case x.run == "" || x.out == "-":
		return cli.Usagef("--format %s takes the weights of a run: give --run DIR, and --out DIR for what is made", x.format)
	case (x.format == "model") != (x.weights.base != ""):
		return cli.Usagef("--base DIR goes with --format model, whose weights are those of the base and the adapter")
	}
	trained, err := record.ReadTrained(x.run)
	if err != nil {
		return cli.Usage(err)
	}
	if name := trained.Keys["trainer.name"]; name != "tinker" {
		return cli.Usagef("the run's trainer is %s, and only those of the trainer tinker have an adapter", name)
	}
	if trained.Keys["trainer.rank"] == "0" {
		return cli.Usagef("the run trains all weights (trainer.rank 0), and has no adapter; its checkpoints are the server's")
	}
	card := weights.Card{Base: cmp.Or(x.weights.baseName, trained.Keys["trainer.model"])}
	if card.Training, err = trained.Facts(); err != nil {
		return err
	}
	if x.format == "adapter" {
		if err := x.download(ctx, trained, x.out); err != nil {
			return err
		}
		x.say("%s: the adapter of step %d", x.out, trained.Step)
		if err := weights.WriteAdapterCard(x.out, card); err != nil {
			return err
		}
		return x.weights.push.send(ctx, x.deps, x.out)
	}
	scratch, err := disk.MakeScratch("", "adapter")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disk.RemoveScratch(scratch)) }()
	adapter := filepath.Join(scratch, "adapter")
	if err := x.download(ctx, trained, adapter); err != nil {
		return err
	}
	o := weights.Options{Base: x.weights.base, Adapter: adapter, Out: x.out, Card: card}
	if err := merge(ctx, x.deps, o, false); err != nil {
		return err
	}
	return x.weights.push.send(ctx, x.deps, x.out)
}

// download downloads the adapter of the last checkpoint into a new directory.
func (x *export) download(ctx context.Context, t record.Trained, dir string) error {
	url := cmp.Or(x.weights.trainerURL, t.Keys["trainer.base_url"])
	client, err := tinker.NewClient(tinker.ClientOptions{
		URL: url, Key: x.deps.Getenv(tinker.KeyVariable), Patience: time.Minute, Log: x.deps.Log,
		LoRASync: t.Keys["trainer.lora_sync_path"],
	})
	if err != nil {
		return cli.Usage(err)
	}
	defer client.Close()
	if err := tinker.DownloadAdapter(ctx, client, t.Checkpoints(), t.Checkpoint, dir); err != nil {
		return fmt.Errorf("download the adapter: %w", err)
	}
	return nil
}
