package rlcmd

import (
	"context"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"deepswe/agent/cli"
	"deepswe/agent/llm"
	"deepswe/env"
	"deepswe/rl/trainer/tinker"
)

// Deps are the dependencies of the commands.
type Deps struct {
	cli.World
	// Configs holds the bundled configurations: files named NAME.yaml.
	Configs fs.FS
}

// New returns the commands of this package.
func New(d Deps) []*cobra.Command {
	return []*cobra.Command{newTrain(d), newExport(d), newMerge(d)}
}

// InspectTrainer checks a Tinker server, for doctor.
func InspectTrainer(w cli.World) func(ctx context.Context, c cli.TrainerCheck) []env.Finding {
	return func(ctx context.Context, c cli.TrainerCheck) []env.Finding {
		// Because a person waits for the result, the patience with a server that does not answer is short.
		client, err := tinker.NewClient(tinker.ClientOptions{
			URL: c.URL, Key: w.Getenv(tinker.KeyVariable), Patience: 5 * time.Second, OperationTimeout: 30 * time.Minute,
			Log: w.Log,
		})
		if err != nil {
			return []env.Finding{env.FindingOf("trainer", err)}
		}
		defer client.Close()
		i := tinker.Inspection{
			Client: client, Base: c.Model, Rank: c.Rank, Tokenizer: c.Tokenizer, Rows: c.Rows, Length: c.Length,
		}
		sampler, err := samplerOf(ctx, w, c)
		if err == nil && sampler != nil {
			i.Sampler = sampler
		}
		findings := i.Inspect(ctx)
		if err != nil {
			findings = append(findings, env.Finding{Check: "trainer and sampler", Status: env.Skipped,
				Detail: "no sampler to compare with: " + err.Error(), Fix: "name its address with --base-url"})
		}
		return findings
	}
}

// samplerOf opens the endpoint that is to sample.
func samplerOf(ctx context.Context, w cli.World, c cli.TrainerCheck) (*llm.Client, error) {
	config, err := w.LoadConfig()
	if err != nil {
		return nil, err
	}
	choice := w.ResolveModel(config, c.BaseURL, c.Sampler)
	client, err := llm.New(llm.Options{
		BaseURL: choice.BaseURL, APIKey: choice.APIKey, Model: choice.Model, Continue: llm.Template, MaxRetries: -1,
		Log: w.Logger(),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := client.Discover(ctx); err != nil {
		return nil, err
	}
	return client, nil
}
