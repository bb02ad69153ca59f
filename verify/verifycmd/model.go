package verifycmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"deepswe/agent"
	"deepswe/agent/agentcmd"
	"deepswe/agent/attempt"
	"deepswe/agent/prompt"
	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// modelOptions are the flags about the model and how it works; they are those of solve.
type modelOptions struct {
	name    string
	baseURL string
	format  string
	pack    string

	maxSteps  int
	context   int
	timeout   time.Duration
	command   time.Duration
	temp      float64
	tempGiven bool
	tokens    bool
}

func (o *modelOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.name, "model", "", "model `NAME` as the endpoint serves it, or replay:FILE")
	f.StringVar(&o.baseURL, "base-url", "", "`URL` of the OpenAI-compatible endpoint")
	f.StringVar(&o.format, "format", "auto", "how the model calls tools: auto, xml or tools")
	f.StringVar(&o.pack, "prompt-pack", "", "prompts from the YAML `FILE`")
	f.IntVar(&o.maxSteps, "max-steps", 100, "most replies of the model")
	f.IntVar(&o.context, "context", 65536, "most tokens of a conversation; less where the endpoint has less")
	f.DurationVar(&o.timeout, "timeout", 2*time.Hour, "longest `TIME` for a rollout")
	f.DurationVar(&o.command, "command-timeout", 90*time.Second, "longest `TIME` for one command")
	f.Float64Var(&o.temp, "temperature", 0, "sampling temperature; the endpoint's own when not given")
	f.BoolVar(&o.tokens, "tokens", false, "ask for token ids and logprobs, and write rollouts.jsonl with them")
}

func (o *modelOptions) check() error {
	switch {
	case o.maxSteps < 1:
		return errors.New("--max-steps must be at least 1")
	case o.context < 0:
		return errors.New("--context must not be negative")
	case o.timeout <= 0 || o.command <= 0:
		return errors.New("--timeout and --command-timeout must be positive")
	case o.temp < 0 || o.temp > 2:
		return errors.New("--temperature must lie between 0 and 2")
	}
	_, err := o.actionFormat()
	return err
}

// actionFormat is the format that the flags ask for; nil where the model's name decides.
func (o *modelOptions) actionFormat() (agent.Format, error) {
	if o.format == "auto" {
		return nil, nil
	}
	f, ok := agent.FormatNamed(o.format)
	if !ok {
		return nil, fmt.Errorf("--format %q: choose auto, xml or tools", o.format)
	}
	return f, nil
}

// replayPrefix marks a --model that is a recorded trajectory.
const replayPrefix = "replay:"

// open opens the model.
func (o *modelOptions) open(ctx context.Context, d Deps) (agentcmd.LiveModel, error) {
	if path, ok := strings.CutPrefix(o.name, replayPrefix); ok {
		rec, err := trajectory.Open(path)
		if err != nil {
			return agentcmd.LiveModel{}, agentcmd.Usage(err)
		}
		if o.format == "auto" && rec.Header.Format != "" {
			o.format = rec.Header.Format
		}
		name := rec.Header.Model
		if name == "" {
			name = "recorded"
		}
		return agentcmd.LiveModel{Model: agent.NewReplayModel(rec), Name: name}, nil
	}
	c, err := agentcmd.LoadConfig(d.Getenv)
	if err != nil {
		return agentcmd.LiveModel{}, err
	}
	return d.Model(ctx, agentcmd.ResolveModel(d.Getenv, c, o.baseURL, o.name))
}

// attempt says how tasks are attempted with the model.
func (o *modelOptions) attempt(m agentcmd.LiveModel, network bool) (attempt.Attempt, error) {
	format, err := o.actionFormat()
	if err != nil {
		return attempt.Attempt{}, agentcmd.Usage(err)
	}
	prompts, err := o.prompts(network)
	if err != nil {
		return attempt.Attempt{}, agentcmd.Usage(err)
	}
	a := attempt.Attempt{
		Settings: agent.Settings{
			Model: m.Model, ModelName: m.Name, Prompt: prompts, Format: format, Tokens: o.tokens,
			Limits: agent.Limits{Steps: o.maxSteps, Wall: o.timeout, Context: o.context},
		},
		Network: network, Tools: tools.Options{CommandTimeout: o.command},
	}
	if m.Context > 0 && (o.context == 0 || m.Context < o.context) {
		a.Limits.Context = m.Context
	}
	if o.tempGiven {
		a.Sampling.Temperature = &o.temp
	}
	return a, nil
}

// prompts returns what opens a conversation: the user's own pack, else the one that was made for the format.
func (o *modelOptions) prompts(network bool) (func(agent.Format, agent.Issue, string) ([]agent.Message, error), error) {
	var own *prompt.Pack
	if o.pack != "" {
		pack, err := prompt.Load(o.pack)
		if err != nil {
			return nil, err
		}
		own = &pack
	}
	specs := tools.New(tools.Options{}).Specs()
	return func(f agent.Format, issue agent.Issue, dir string) ([]agent.Message, error) {
		pack := own
		if pack == nil {
			built, err := prompt.Builtin(f.Name())
			if err != nil {
				return nil, fmt.Errorf("open the conversation: %w", err)
			}
			pack = &built
		}
		return pack.Messages(prompt.Values{Statement: issue.Statement, Dir: dir, Network: network, Tools: specs})
	}, nil
}
