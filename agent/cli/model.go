package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/llm"
	"deepswe/agent/prompt"
	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// ReplayPrefix marks a --model that is a recorded trajectory.
const ReplayPrefix = "replay:"

// DefaultBaseURL is the default address of vLLM.
const DefaultBaseURL = "http://localhost:8000/v1"

// The values of --format and --context that hold where none is given.
const (
	autoFormat     = "auto"
	defaultContext = 65536
)

// ModelChoice selects an endpoint and a model. An empty field leaves the choice to the endpoint.
type ModelChoice struct {
	BaseURL, Model, APIKey string
	// Hints rewrites the endpoint's hints to name the flags that chose it; see [llm.Options].
	Hints *strings.Replacer
	// Continue says how the prompts of requests for tokens are built.
	Continue llm.Continuation
	// Patience is how long requests wait for a server that is gone.
	Patience time.Duration
}

// Patience is how long an evaluation or a training run waits for a server that is gone: loading a large model takes
// less.
const Patience = 30 * time.Minute

// LiveModel is an endpoint's model, and what the endpoint reports about it.
type LiveModel struct {
	agent.Model
	// Name is the model's name in requests.
	Name string
	// Context is its context length in tokens; 0 if the endpoint does not report it.
	Context int
	// Served is what the endpoint says about the model.
	Served llm.ServedModel
	// Endpoint answers questions beyond the model's; nil for a recorded model.
	Endpoint *llm.Client
}

// openEndpoint opens a live endpoint and asks which model it serves, so that a wrong address is noticed at once.
func (w World) openEndpoint(ctx context.Context, c ModelChoice) (LiveModel, error) {
	if w.OpenModel != nil {
		return w.OpenModel(ctx, c)
	}
	client, err := llm.New(llm.Options{
		BaseURL: c.BaseURL, APIKey: c.APIKey, Model: c.Model, Hints: c.Hints, Continue: c.Continue,
		Patience: c.Patience, Log: w.Logger(),
	})
	if err != nil {
		return LiveModel{}, Usage(err)
	}
	served, err := client.Discover(ctx)
	if err == nil && served.Unlisted {
		err = client.Probe(ctx)
	}
	if errors.Is(err, llm.ErrNoModelChosen) || errors.Is(err, llm.ErrNotServed) {
		return LiveModel{}, Usage(err)
	}
	if err != nil {
		return LiveModel{}, explained(ctx, err)
	}
	if served.Server() == llm.Ollama && served.Context == 0 {
		fmt.Fprintf(w.Err, "Ollama loads %s\n", Plain(served.ID))
		client.Load(ctx, &served)
	}
	return LiveModel{Model: client, Name: served.ID, Context: served.Context, Served: served, Endpoint: client}, nil
}

// ResolveModel completes the flags from the environment and the user's configuration.
func (w World) ResolveModel(c Config, baseURL, model string) ModelChoice {
	return ModelChoice{
		BaseURL: cmp.Or(baseURL, w.Getenv("DEEPSWE_BASE_URL"), w.Getenv("OPENAI_BASE_URL"), c.BaseURL, DefaultBaseURL),
		Model:   cmp.Or(model, w.Getenv("DEEPSWE_MODEL"), c.Model),
		APIKey:  cmp.Or(w.Getenv("OPENAI_API_KEY"), c.APIKey),
	}
}

// EndpointFlags are the flags that select an endpoint's model. In the configuration of a training run they are keys.
type EndpointFlags struct {
	BaseURL string `yaml:"base_url"`
	Name    string `yaml:"model"`
	// Tokens asks for token ids and logprobs, and says what prompts are made of; empty asks for none.
	Tokens string `yaml:"tokens"`
}

// ModelFlags are the flags that select the model and how it is used.
type ModelFlags struct {
	EndpointFlags
	Format, Pack string
	Compact      string
	// Patience is how long requests wait for a server that is gone.
	Patience time.Duration

	MaxSteps int
	Context  int
	// Contexts are all lengths that --context names, in ascending order; Context is the last of them. There is more than
	// one only where SeveralContexts was set before [ModelFlags.Add].
	Contexts        []int
	SeveralContexts bool
	Timeout         time.Duration
	Command         time.Duration
	Temperature     float64

	// Given reports whether a flag was given. [ModelFlags.Add] sets it.
	Given func(flag string) bool

	pack    *prompt.Pack // the user's own pack; set by Check
	profile Profile      // of the model; set by Open
}

// Add adds the flags to a command.
func (o *ModelFlags) Add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Name, "model", "", "model `NAME` as the endpoint serves it, or replay:FILE")
	f.StringVar(&o.BaseURL, "base-url", "", "`URL` of the OpenAI-compatible endpoint")
	f.StringVar(&o.Format, "format", autoFormat, "`FORMAT` of tool calls: auto, xml or tools")
	f.StringVar(&o.Pack, "prompt-pack", "", "prompts from the YAML `FILE`")
	f.StringVar(&o.Compact, "compact", autoCompact,
		"make room in a full context with the `STRATEGY`: none, elide, summary, or auto (none for xml)")
	f.IntVar(&o.MaxSteps, "max-steps", 100, "stop after `N` replies of the model")
	o.Context = defaultContext
	help := "stop at `N` tokens of conversation (as 65536 or 64k), or what the endpoint has if less"
	if o.SeveralContexts {
		help += "; 16k,32k,64k measures each"
	}
	f.Var(contextValue{o}, "context", help)
	f.DurationVar(&o.Timeout, "timeout", 2*time.Hour, "longest `TIME` for a rollout")
	AddCommandTimeout(cmd, &o.Command)
	f.Float64Var(&o.Temperature, "temperature", 0, "sampling temperature `T` (default: the endpoint's own)")
	Choices(cmd, "format", autoFormat, trajectory.FormatXML, trajectory.FormatTools)
	Choices(cmd, "compact", autoCompact, string(agent.NoCompaction), string(agent.Elide), string(agent.Summarize))
	o.Given = f.Changed
}

// AddTokens adds --tokens with the command's own help text.
func (o *ModelFlags) AddTokens(cmd *cobra.Command, use string) {
	f := cmd.Flags()
	f.StringVar(&o.Tokens, "tokens", "", use)
	f.Lookup("tokens").NoOptDefVal = string(llm.Auto)
	Choices(cmd, "tokens", string(llm.Auto), string(llm.Extend), string(llm.Template))
}

// AddCommandTimeout adds --command-timeout to a command.
func AddCommandTimeout(cmd *cobra.Command, d *time.Duration) {
	cmd.Flags().DurationVar(d, "command-timeout", 90*time.Second, "longest `TIME` for one command")
}

// Check validates the flags, and reads the prompt pack that they name.
func (o *ModelFlags) Check() error {
	switch {
	case o.MaxSteps < 1:
		return Usagef("--max-steps must be at least 1")
	case o.Timeout <= 0 || o.Command <= 0:
		return Usagef("--timeout and --command-timeout must be positive")
	case o.Temperature < 0 || o.Temperature > 2:
		return Usagef("--temperature must be between 0 and 2")
	case o.tokensWrong():
		return Usagef("invalid --tokens %q: choose auto, extend or template, after an equals sign", o.Tokens)
	case o.Compact != autoCompact && !slices.Contains(agent.Compactions(), agent.Compaction(o.Compact)):
		return Usagef("invalid --compact %q: choose auto, none, elide or summary", o.Compact)
	}
	if o.Pack != "" {
		pack, err := prompt.Load(o.Pack)
		if err != nil {
			return Usage(err)
		}
		o.pack = &pack
	}
	_, err := o.actionFormat()
	return err
}

// The values that --tokens had when it was a switch: a run that is resumed may still have them.
const (
	tokensOn  = "true"
	tokensOff = "false"
)

// WantsTokens reports whether token ids and logprobs are asked for.
func (o *ModelFlags) WantsTokens() bool { return o.Tokens != "" && o.Tokens != tokensOff }

func (o *ModelFlags) tokensWrong() bool {
	return o.WantsTokens() && o.Tokens != tokensOn && !slices.Contains(llm.Continuations(), llm.Continuation(o.Tokens))
}

// continuation parses the flag that says how prompts are built.
func (o *ModelFlags) continuation() llm.Continuation {
	if o.Tokens == tokensOn {
		return llm.Template
	}
	return llm.Continuation(o.Tokens)
}

// autoCompact lets the format determine the strategy.
const autoCompact = "auto"

// compaction returns the strategy for each format. The models behind XML were trained without one, and a recording
// contains its own.
func (o *ModelFlags) compaction(recorded bool) func(agent.Format) agent.Compaction {
	return func(f agent.Format) agent.Compaction {
		switch {
		case recorded:
			return agent.NoCompaction
		case o.Compact != autoCompact:
			return agent.Compaction(o.Compact)
		case f.Name() == trajectory.FormatXML:
			return agent.NoCompaction
		}
		return agent.Summarize
	}
}

// actionFormat returns the format that the flags select, or nil if the model's name determines it.
func (o *ModelFlags) actionFormat() (agent.Format, error) {
	if o.Format == autoFormat {
		return nil, nil
	}
	f, ok := agent.FormatNamed(o.Format)
	if !ok {
		return nil, Usagef("invalid --format %q: choose auto, xml or tools", o.Format)
	}
	return f, nil
}

// Open opens the model that is selected by the flags, the environment or the user's configuration, in that order.
func (o *ModelFlags) Open(ctx context.Context, w World) (LiveModel, error) {
	if path, ok := strings.CutPrefix(o.Name, ReplayPrefix); ok {
		rec, err := trajectory.Open(path)
		if err != nil {
			return LiveModel{}, Usage(err)
		}
		return o.Recorded(rec)
	}
	c, err := w.LoadConfig()
	if err != nil {
		return LiveModel{}, err
	}
	choice := w.ResolveModel(c, o.BaseURL, o.Name)
	choice.Continue, choice.Patience = o.continuation(), o.Patience
	m, err := w.openEndpoint(ctx, choice)
	if err != nil {
		return m, err
	}
	o.profile = w.ProfileOf(c, m.Name)
	if !o.Given("format") && c.Format == "" && o.profile.Format != "" {
		o.Format = o.profile.Format
	}
	if m.Endpoint == nil {
		return m, nil
	}
	if o.profile.Thoughts == droppedThoughts {
		m.Endpoint.DropThoughts()
	}
	if !o.WantsTokens() {
		return m, nil
	}
	return m, m.Vet(ctx, o.onPolicy())
}

// Open opens the endpoint's model with the defaults of all other flags.
func (e EndpointFlags) Open(ctx context.Context, w World) (LiveModel, error) {
	o := ModelFlags{EndpointFlags: e, Patience: Patience, Given: func(string) bool { return false }}
	return o.Open(ctx, w)
}

// OpenForWork opens the model for work on an issue, and refuses a context that is too short for that.
func (o *ModelFlags) OpenForWork(ctx context.Context, w World) (LiveModel, error) {
	m, err := o.Open(ctx, w)
	if err == nil && !m.IsRecorded() {
		err = o.roomEnough(w, m)
	}
	return m, err
}

// Vet checks that the endpoint's samples can be learned from, and records its identity, so that a replacement is
// noticed.
func (m LiveModel) Vet(ctx context.Context, temperature float64) error {
	err := m.Endpoint.Vet(ctx, temperature)
	if errors.Is(err, llm.ErrUntrainable) || errors.Is(err, llm.ErrNoExtension) {
		return Usage(err)
	}
	if err != nil {
		return err
	}
	is, err := m.Endpoint.Identify(ctx)
	if err == nil {
		m.Endpoint.Pin(is)
	}
	return err
}

// onPolicy is the temperature at which tokens are sampled.
func (o *ModelFlags) onPolicy() float64 {
	if o.Given("temperature") {
		return o.Temperature
	}
	return 1
}

// Recorded returns a model that answers with a recording's replies, in the recording's format unless a flag selects
// another.
func (o *ModelFlags) Recorded(rec *trajectory.Recording) (LiveModel, error) {
	if len(rec.Turns) == 0 {
		return LiveModel{}, Usagef("the recorded trajectory contains no reply of a model")
	}
	if !o.Given("format") && rec.Header.Format != "" {
		o.Format = rec.Header.Format
	}
	return LiveModel{Model: agent.NewReplayModel(rec), Name: cmp.Or(rec.Header.Model, "recorded")}, nil
}

// IsRecorded reports whether the replies come from a recording.
func (m LiveModel) IsRecorded() bool {
	_, ok := m.Model.(*agent.ReplayModel)
	return ok
}

// Attempt returns the part of an attempt that the flags determine. Call Check first.
func (o *ModelFlags) Attempt(w World, m LiveModel, network bool) (attempt.Attempt, error) {
	format, err := o.actionFormat()
	if err != nil {
		return attempt.Attempt{}, err
	}
	if o.pack != nil {
		for _, note := range o.pack.Notes {
			w.Logger().Warn(note)
		}
	}
	a := attempt.Attempt{
		Settings: agent.Settings{
			Model: m.Model, ModelName: m.Name, Prompt: prompt.Opening(o.pack, network), Format: format, Log: w.Logger(),
			Limits: agent.Limits{Steps: o.MaxSteps, Wall: o.Timeout, Context: o.Context},
		},
		Network: network, Tools: tools.Options{CommandTimeout: o.Command}, Version: w.Version, Abandon: w.Abandon,
	}
	if o.pack != nil {
		a.Wrap = o.pack.Observations
	}
	if m.Context > 0 && (o.Context == 0 || m.Context < o.Context) {
		a.Limits.Context = m.Context
	}
	a.Compact = o.compaction(m.IsRecorded())
	a.Sampling = o.profile.sampling()
	if o.Given("temperature") {
		a.Sampling.Temperature = &o.Temperature
	}
	if a.Tokens = o.WantsTokens(); a.Tokens { // for training: a server's own defaults would change what was sampled
		a.Sampling = agent.OnPolicy(new(o.onPolicy()))
	}
	return a, nil
}
