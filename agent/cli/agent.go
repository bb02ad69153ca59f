package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"deepswe/agent/attempt"
	"deepswe/agent/foreign"
	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/env/local"
	"deepswe/env/setup"
)

const ownAgent = "deepswe"

// AgentFlags select the agent.
type AgentFlags struct {
	// Name is deepswe, the name of a recipe or a command line; SetUp installs what a command line starts.
	Name, SetUp string
}

// Add adds --agent and --agent-setup.
func (o *AgentFlags) Add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Name, "agent", ownAgent, "the `AGENT` that works: "+ownAgent+", "+strings.Join(foreign.Names(), ", ")+
		",\nor a command line with {prompt} or {prompt_file}")
	f.StringVar(&o.SetUp, "agent-setup", "", "install what the command line of --agent starts with the `COMMAND`")
	Choices(cmd, "agent", append([]string{ownAgent}, foreign.Names()...)...)
}

// Own reports whether the agent is deepswe's.
func (o *AgentFlags) Own() bool { return o.Name == ownAgent || o.Name == "" }

// Check validates the flags.
func (o *AgentFlags) Check() error {
	if o.Own() {
		if o.SetUp != "" {
			return Usagef("--agent-setup requires --agent with a command line")
		}
		return nil
	}
	_, err := foreign.Find(o.Name, o.SetUp)
	return Usage(err)
}

// Player installs the agent unless it is installed, and returns what plays its rollouts; nil for deepswe's own agent.
// If recorded is not nil, its answers are used, and the model is not asked.
func (o *AgentFlags) Player(
	ctx context.Context, w World, recorded *trajectory.Recording,
) (attempt.Player, error) {
	if o.Own() {
		return nil, nil
	}
	recipe, err := foreign.Find(o.Name, o.SetUp)
	if err != nil {
		return nil, Usage(err)
	}
	player := &foreign.Player{Recipe: recipe}
	if len(recipe.Install) > 0 { // in a sandbox of bubblewrap
		provider, err := local.NewBwrap(local.Options{Log: w.Log})
		if err != nil {
			return nil, &ExitError{Code: ExitSandbox, Err: fmt.Errorf("install %s: %w", recipe.Name, err)}
		}
		player, err = install(ctx, w, provider, recipe)
		if err = errors.Join(err, provider.Close()); err != nil {
			return nil, err
		}
	}
	player.Recorded = recorded
	return player, nil
}

// install installs an agent, and says what it does.
func install(ctx context.Context, w World, provider env.Provider, recipe foreign.Recipe) (*foreign.Player, error) {
	step := 0
	player, err := foreign.Install(ctx, provider, setup.Store{Dir: w.CacheDir("agents")}, recipe,
		func(p env.SetupProgress) {
			if p.Step == step {
				return
			}
			if step = p.Step; step == 1 {
				fmt.Fprintf(w.Err, "installing %s %s; its licence is between you and its owner (%s)\n", recipe.Name,
					recipe.Version, cmp.Or(recipe.Licence, "see there"))
			}
			fmt.Fprintf(w.Err, "  %s\n", FirstLine(p.Command, 0))
		})
	if err != nil {
		return nil, &ExitError{Code: ExitSandbox, Err: err}
	}
	return player, nil
}

// Try installs the agent and lets it ask a stand-in for a model, in a sandbox without a network.
func (o *AgentFlags) Try(ctx context.Context, w World) (says string, err error) {
	recipe, err := foreign.Find(o.Name, o.SetUp)
	if err != nil {
		return "", err
	}
	provider, err := local.NewBwrap(local.Options{Log: w.Log})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, provider.Close()) }()
	player, err := install(ctx, w, provider, recipe)
	if err != nil {
		return "", err
	}
	sb, err := provider.Start(ctx, env.Spec{Shown: player.Shown()})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, sb.Close(context.WithoutCancel(ctx))) }()
	return player.Try(ctx, sb)
}
