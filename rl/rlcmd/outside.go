package rlcmd

import (
	"context"
	"fmt"

	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/rl/train/part"
)

// outside is a train.Outside: it opens what a configuration names, in the way of the other commands.
type outside struct{ world cli.World }

// Sandbox opens the provider for a value of --env.
func (o outside) Sandbox(ctx context.Context, s part.Sandbox, image string) (env.Provider, error) {
	config, err := o.world.LoadConfig()
	if err != nil {
		return nil, err
	}
	flags := cli.SandboxFlags{
		Places: cli.Places{Hosts: s.Hosts, Contexts: s.KubeContexts, Namespaces: s.KubeNamespaces},
		Env:    s.Env, Image: image, Mirror: s.RegistryMirror, Budget: s.ImageBudget,
	}
	choice, err := flags.Choice(config)
	if err != nil {
		return nil, err
	}
	if err := choice.Check(); err != nil {
		return nil, fmt.Errorf("sandbox: %w (the image is that of the task, or environment.sandbox.image "+
			"if the task does not name one)", err)
	}
	choice.Warm = s.Warm
	return o.world.Sandbox(ctx, choice)
}

// Agent opens what --agent of the other commands would.
func (o outside) Agent(ctx context.Context, name, setUp string) (attempt.Player, error) {
	flags := cli.AgentFlags{Name: name, SetUp: setUp}
	return flags.Player(ctx, o.world, nil)
}

// Model opens what --base-url, --model and --tokens of the other commands would, and makes sure that it can be learned
// from what it samples at temperature 1, as training does.
func (o outside) Model(ctx context.Context, c part.Endpoint) (part.Served, error) {
	flags := cli.ModelFlags{
		BaseURL: c.BaseURL, Name: c.Model, Tokens: c.Tokens, Patience: cli.Patience,
		Given: func(string) bool { return false },
	}
	m, err := flags.Open(ctx, o.world)
	if err != nil {
		return part.Served{}, err
	}
	served := part.Served{Model: m.Model, Name: m.Name, Context: m.Context}
	if m.Endpoint != nil {
		served.Identity, err = m.Endpoint.Identify(ctx)
	}
	return served, err
}

// Getenv reads the environment.
func (o outside) Getenv(name string) string { return o.world.Getenv(name) }
