package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/agent/llm"
	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// CanBegin reports whether there is somebody to talk to: [Begin] needs a terminal for input and output.
func CanBegin(d Deps) bool { return interactive(d.World) && cli.IsTerminal(d.Out) }

// Begin is deepswe without a command: it says what is here, asks for what it needs and cannot find, one question at a
// time, writes the configuration after it has shown it, and ends with the command to try.
func Begin(ctx context.Context, d Deps) error {
	c, err := d.LoadConfig()
	if err != nil {
		return err
	}
	b := beginning{d: d, config: c, questions: questions{in: d.In}}
	b.found = lookAround(ctx, d, c)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, row := range b.found.lines() {
		name := row[0]
		for l := range strings.SplitSeq(row[1], "\n") {
			indent := strings.Repeat(" ", len(l)-len(strings.TrimLeft(l, " ")))
			for _, part := range cli.Wrap(cli.Plain(l), cli.ScreenOf(d.Err).Width()-13-len(indent)) {
				b.say("%-12s%s%s", name, indent, part)
				name = ""
			}
		}
	}
	b.say("")
	switch err := b.chooseModel(ctx); {
	case errors.Is(err, errNoAnswer), ctx.Err() != nil:
		return cli.Exit(cli.ExitInterrupted)
	case err != nil:
		return err
	}
	if b.server.BaseURL != "" {
		b.tryModel(ctx)
		if err := b.writeConfig(ctx); err != nil {
			return err
		}
	}
	b.adviseCommand()
	return nil
}

type beginning struct {
	d         Deps
	config    cli.Config
	found     surroundings
	questions questions

	option        // the chosen one, without an address if there is none
	key    string // a new one
	format string // xml if no tool call came back from the trial; empty for the model's own
}

func (b *beginning) say(format string, args ...any) {
	fmt.Fprintln(b.d.Err, cli.Fit(b.d.Err, fmt.Sprintf(format, args...)))
}

// askLine asks a question and returns the answer.
func (b *beginning) askLine(ctx context.Context, question string) (string, error) {
	b.say("%s", question)
	return b.questions.readLine(ctx)
}

// option is a model that could be chosen.
type option struct {
	server cli.ModelServer
	model  llm.ServedModel
}

// chooseModel finds the endpoint and the model: those that are configured, the only ones that were found, or the user's
// choice.
func (b *beginning) chooseModel(ctx context.Context) error {
	wanted := b.d.ResolveModel(b.config, "", "")
	var options []option
	for _, s := range b.found.servers {
		switch {
		case answeredWith(s.Problem, http.StatusUnauthorized) && s.Name == "":
			return b.askKey(ctx, s)
		case answeredWith(s.Problem, http.StatusNotFound) && s.BaseURL == wanted.BaseURL && wanted.Model != "":
			b.option = option{s, llm.ServedModel{ID: wanted.Model}}
			return nil
		}
		for _, m := range s.Models {
			options = append(options, option{s, m})
		}
	}
	for _, o := range options {
		named := o.model.ID == wanted.Model || o.model.ID == wanted.Model+":latest"
		if o.server.BaseURL == wanted.BaseURL && (named || wanted.Model == "" && len(o.server.Models) == 1) {
			b.option = o
			return nil
		}
	}
	if len(options) == 0 {
		return b.askAddress(ctx)
	}
	return b.pickModel(ctx, options)
}

// pickModel takes the only model, or asks which of several to take. One that is loaded with a large enough context
// comes first, because loading another may unload it.
func (b *beginning) pickModel(ctx context.Context, options []option) error {
	if len(options) == 1 {
		b.option = options[0]
		return nil
	}
	slices.SortStableFunc(options, func(x, y option) int { return cmp.Compare(rank(y.model), rank(x.model)) })
	const most = 9
	for i, o := range options[:min(len(options), most)] {
		b.say("  %d  %s (%s)", i+1, cli.Plain(describeModel(o.model)), cli.Plain(o.server.Name))
	}
	for {
		answer, err := b.askLine(ctx, "Which model shall work? A number, or the name of another [1]")
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(cmp.Or(answer, "1"))
		at := n - 1
		if err != nil {
			at = slices.IndexFunc(options, func(o option) bool { return o.model.ID == answer })
		}
		if at >= 0 && at < len(options) {
			b.option = options[at]
			return nil
		}
		b.say("There is no model %s.", cli.Plain(answer))
	}
}

// rank returns how suitable a model is as the proposal; more is better.
func rank(m llm.ServedModel) int {
	n := 0
	if m.Loaded {
		n++
	}
	if m.Context >= llm.LeastContext {
		n += 2
	}
	if m.Tools == nil || *m.Tools {
		n += 4
	}
	return n
}

// askAddress asks for an endpoint elsewhere. An empty answer leaves it open.
func (b *beginning) askAddress(ctx context.Context) error {
	for {
		address, err := b.askLine(ctx, "Address of an OpenAI-compatible endpoint, https://HOST/v1 (nothing: later):")
		if err != nil || address == "" {
			return err
		}
		s := cli.ModelServer{BaseURL: address}
		s.List(ctx, "")
		if answeredWith(s.Problem, http.StatusUnauthorized) {
			return b.askKey(ctx, s)
		}
		if s.Problem != nil && !answeredWith(s.Problem, http.StatusNotFound) {
			b.say("%s", cli.Plain(brief(s.Problem)))
			continue
		}
		return b.chooseAt(ctx, s)
	}
}

// askKey asks for the key of an endpoint that wants one.
func (b *beginning) askKey(ctx context.Context, s cli.ModelServer) error {
	for {
		key, err := b.questions.readSecret(ctx, func() {
			b.say("%s wants a key (not shown; nothing: later):\r", cli.Plain(cli.WithoutPassword(s.BaseURL)))
		})
		if err != nil || key == "" {
			return err
		}
		s.List(ctx, key)
		if s.Problem == nil || answeredWith(s.Problem, http.StatusNotFound) {
			b.key = key
			return b.chooseAt(ctx, s)
		}
		b.say("%s", cli.Plain(brief(s.Problem)))
	}
}

// chooseAt chooses a model of the server; one that lists none is asked for by name.
func (b *beginning) chooseAt(ctx context.Context, s cli.ModelServer) error {
	var options []option
	for _, m := range s.Models {
		options = append(options, option{s, m})
	}
	if len(options) == 0 {
		name, err := b.askLine(ctx, "Name of the model:")
		b.option = option{s, llm.ServedModel{ID: name}}
		return err
	}
	return b.pickModel(ctx, options)
}

func answeredWith(err error, status int) bool {
	own, ok := errors.AsType[*llm.Error](err)
	return ok && own.Status == status
}

// longestTrial bounds the trial of a tool call.
const longestTrial = 30 * time.Second

// tryModel reports a context that is too short. It tries a tool call unless the format is decided, the server says
// that the model can make calls, or the trial would have to load the model.
func (b *beginning) tryModel(ctx context.Context) {
	b.say("%s at %s", cli.Plain(describeModel(b.model)), cli.Plain(cli.WithoutPassword(b.server.BaseURL)))
	if scarce := b.model.Scarce(); scarce != "" {
		b.say("%s", strings.ReplaceAll(scarce, "\n", "\n  "))
	}
	p := b.d.ProfileOf(b.config, b.model.ID)
	decided := b.config.Format != "" || p.Format != "" ||
		agent.FormatFor(b.model.ID).Name() == trajectory.FormatXML
	if decided || b.model.Tools != nil && *b.model.Tools || b.model.Server() == llm.Ollama && !b.model.Loaded {
		return
	}
	b.say("trying a tool call …")
	ctx, cancel := context.WithTimeout(ctx, longestTrial)
	defer cancel()
	switch calls, err := b.callsTools(ctx); {
	case err != nil && !errors.Is(err, agent.ErrToolsUnsupported):
		b.say("the trial failed: %s", cli.Plain(err.Error()))
	case calls:
		b.say("the model calls tools")
	default:
		b.format = trajectory.FormatXML
		b.say("no tool call came back: the XML format is used, which needs no support of the server")
		if p.Parser != "" && b.model.Server() == llm.VLLM {
			b.say("(vLLM makes them with --enable-auto-tool-choice --tool-call-parser %s)", p.Parser)
		}
	}
}

// callsTools reports whether the endpoint answers with a tool call where one is asked for.
func (b *beginning) callsTools(ctx context.Context) (bool, error) {
	client, err := llm.New(llm.Options{
		BaseURL: b.server.BaseURL, Model: b.model.ID, MaxRetries: -1,
		APIKey: cmp.Or(b.key, b.d.ResolveModel(b.config, "", "").APIKey),
	})
	if err != nil {
		return false, err
	}
	reply, err := client.Complete(ctx, agent.Request{
		Messages: []agent.Message{{Role: agent.RoleUser, Content: "Call the tool ready, and say nothing else."}},
		Tools: []tools.Spec{{
			Name: "ready", Description: "Says that you are ready.", Parameters: []byte(`{"type":"object","properties":{}}`),
		}},
		MaxTokens: 2048,
	})
	return len(reply.Message.ToolCalls) > 0, err
}

// writeConfig shows what is to be written to the configuration, asks, and writes it. Settings that are in force
// already are left out.
func (b *beginning) writeConfig(ctx context.Context) error {
	in := b.d.ResolveModel(b.config, "", "")
	var lines []cli.Setting
	add := func(key, value string, missing bool) {
		if missing {
			lines = append(lines, cli.Setting{Key: key, Value: value})
		}
	}
	add("base_url", b.server.BaseURL, b.server.BaseURL != in.BaseURL)
	add("model", b.model.ID, b.model.ID != in.Model && (len(b.server.Models) != 1 || in.Model != ""))
	add("api_key", b.key, b.key != "")
	add("format", b.format, b.format != "")
	if len(lines) == 0 {
		return nil
	}
	b.say("\nFor %s:", b.d.ShortPath(b.d.ConfigPath()))
	for _, l := range lines {
		b.say("  %s: %s", l.Key, shownValue(l))
	}
	answer, err := b.askLine(ctx, "Write this? [Y/n]")
	if err != nil {
		return cli.Exit(cli.ExitInterrupted)
	}
	if answer = strings.ToLower(answer); answer != "" && answer != "y" && answer != "yes" {
		b.say("Nothing was written.")
		return nil
	}
	for _, l := range lines {
		if err := setConfig(b.d, l.Key, l.Value); err != nil {
			return err
		}
	}
	return nil
}

// adviseCommand ends with the command to try.
func (b *beginning) adviseCommand() {
	command := `deepswe solve "what is wrong, in a sentence or two"`
	switch {
	case b.server.BaseURL == "" || len(b.found.works) == 0:
		command = "deepswe solve --demo"
	case b.found.root == "":
		command = "cd REPOSITORY && " + command
	}
	when := "Try it:"
	if c := b.model.Context; c > 0 && c < llm.LeastContext {
		when = "With a longer context, try it:"
	}
	b.say("\n%s\n  %s", when, command)
	if b.server.BaseURL == "" {
		b.say("It needs no model. Later: deepswe, or deepswe config set base_url URL")
	}
}
