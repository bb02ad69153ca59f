package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"deepswe/agent"
	"deepswe/agent/acp"
	"deepswe/agent/cli"
	"deepswe/agent/llm"
	"deepswe/agent/run"
	"deepswe/env/repo"
)

const acpHelp = `Serve an editor over standard input and output, by the Agent Client Protocol:
Zed, JetBrains, CodeCompanion for Neovim, and others start it themselves.

A session is a run: the first prompt solves an issue in the repository that is
open, as solve does, and further ones go on with it. The editor shows thoughts,
commands and edits as they happen in the sandbox. At the end it shows all
changes at once, and asks; what the user accepts goes through the editor's own
files, where it offers that, or to the disk.

Flags of solve may follow after --. The model, the sandbox, and whether changes
are applied without a question can be chosen in the editor as well.`

func newACP(d Deps) *cobra.Command {
	return &cobra.Command{
		Use:     "acp [-- FLAGS OF SOLVE]",
		Short:   "Serve an editor by the Agent Client Protocol",
		Long:    acpHelp,
		Example: "  deepswe acp\n  deepswe acp -- --model DeepSWE-Preview --env bwrap",
		RunE: func(cmd *cobra.Command, args []string) error {
			h := &acpHost{d: d, flags: args, sessions: map[string]string{}}
			_, solve, err := h.options()
			if err != nil {
				return cli.Usage(err)
			}
			for _, name := range []string{"repo", "issue-file", "demo", "resume", "continue", "out", "json", "confirm"} {
				if solve.Flags().Changed(name) {
					return cli.Usagef("--%s is not for acp: the editor says what is worked on, and asks", name)
				}
			}
			in, out := d.In, d.Out
			// Whatever else would be printed, by a library too, goes to standard error: the protocol owns this stream.
			os.Stdout = os.Stderr
			h.d.In, h.d.Out = strings.NewReader(""), io.Discard
			return acp.Serve(cmd.Context(), in, out, h, d.Version)
		},
	}
}

// acpHost holds the sessions of an editor, which are runs of solve.
type acpHost struct {
	d     Deps
	flags []string // of solve

	mu       sync.Mutex
	sessions map[string]string // their working directories
}

// options parses the host's flags and further ones as solve does. It also returns the command that parsed them.
func (h *acpHost) options(further ...string) (*solveOptions, *cobra.Command, error) {
	o := new(solveOptions)
	cmd := solveCommand(h.d, o)
	if err := cmd.ParseFlags(slices.Concat(h.flags, further)); err != nil {
		return nil, nil, err
	}
	o.keepParsed(cmd)
	if rest := cmd.Flags().Args(); len(rest) > 0 {
		return nil, nil, fmt.Errorf("%q is not a flag of solve", rest[0])
	}
	return o, cmd, cmd.ValidateFlagGroups()
}

// Open implements [acp.Host]. Nothing slow begins before the first prompt.
func (h *acpHost) Open(ctx context.Context, cwd string) (string, []acp.ConfigOption, error) {
	root, err := repo.Root(ctx, cwd)
	if err == nil {
		_, err = os.Stat(filepath.Join(root, ".git"))
	}
	if home := h.d.Getenv("HOME"); err != nil || root == home {
		return "", nil, acp.BadParams(fmt.Errorf("%s is not in a git repository of a project: open one", cwd))
	}
	id := h.d.RunID()
	h.remember(id, cwd)
	return id, h.choices(ctx, nil), nil
}

func (h *acpHost) remember(id, cwd string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sessions[id] = cwd
}

// What the user may choose in the editor: two flags of solve, and whether to be asked.
const (
	chooseModel   = "model"
	chooseSandbox = "env"
	chooseApply   = "apply"
)

// longestChoice bounds how long the endpoint may take to say which models it has: the editor waits.
const longestChoice = 2 * time.Second

// choices returns what the user may choose in a session. The flags, the run that it continues and the configuration
// set the current values.
func (h *acpHost) choices(ctx context.Context, past *solveRun) []acp.ConfigOption {
	o, cmd, err := h.options()
	c, cerr := h.d.LoadConfig()
	if err != nil || cerr != nil {
		return nil // the first prompt says why
	}
	asks := acp.Select(chooseApply, "Changes", "mode", applyAsk, applyAsk, applyAll)
	asks.Options[0].Name, asks.Options[1].Name = "Ask before they are applied", "Apply without a question"
	if o.apply == applyAll || o.apply == "true" {
		asks.Current = applyAll
	}
	if past != nil && restoreFlags(cmd.Flags(), past.settings.Flags) == nil {
		o.Name = cmp.Or(o.Name, past.settings.Model)
	}
	o.fillFrom(c)
	endpoint := h.d.ResolveModel(c, o.BaseURL, o.Name)
	models := []string{endpoint.Model}
	client, err := llm.New(llm.Options{BaseURL: endpoint.BaseURL, APIKey: endpoint.APIKey, MaxRetries: -1})
	if err == nil && !strings.HasPrefix(endpoint.Model, cli.ReplayPrefix) {
		ctx, cancel := context.WithTimeout(ctx, longestChoice)
		defer cancel()
		served, _ := client.Models(ctx) // without an answer, only the current model can be chosen
		for _, m := range served {
			if m.ID != endpoint.Model {
				models = append(models, m.ID)
			}
		}
	}
	if models[0] == "" {
		models = models[1:]
	}
	sandboxes := []string{cli.EnvAuto}
	for _, k := range h.d.SandboxKinds() {
		if k.Elsewhere == nil || !k.Elsewhere(o.Places) {
			sandboxes = append(sandboxes, k.Name)
		}
	}
	var all []acp.ConfigOption
	if len(models) > 0 {
		all = append(all, acp.Select(chooseModel, "Model", "model", models[0], models...))
	}
	return append(all, acp.Select(chooseSandbox, "Sandbox", "", o.Env, sandboxes...), asks)
}

// Prompt implements [acp.Host].
func (h *acpHost) Prompt(ctx context.Context, t *acp.Turn, text string) (acp.StopReason, error) {
	h.mu.Lock()
	cwd := h.sessions[t.Session]
	h.mu.Unlock()
	further := []string{"--repo", cwd, "--apply=false"} // the patch is offered, or applied, below
	for _, flag := range []string{chooseModel, chooseSandbox} {
		if value := t.Chosen(flag); value != "" {
			further = append(further, "--"+flag, value)
		}
	}
	continued := run.Exists(h.d.RunDir(t.Session))
	if continued {
		further = append(further, "--continue", t.Session)
	}
	o, _, err := h.options(further...)
	if err != nil {
		return "", err
	}
	if continued {
		o.attempts, o.verifier.Verifier = 1, "" // a continuation is a single attempt
	}
	prompt := h.d.RunID() // makes the IDs of calls unique in the session
	w := &acpWatcher{turn: t, sandbox: "sandbox-" + prompt, open: map[string]bool{}}
	s := &solving{d: h.d, o: o, id: t.Session, watch: w, questions: questions{in: h.d.In}}
	open := &opened{d: h.d}
	defer open.closeAll()
	report, done, err := s.solve(ctx, []string{text}, open)
	w.end()
	if ctx.Err() == nil {
		w.conclude(report)
	}
	submitted := report.Status == string(agent.Submitted) && len(report.diff) > 0
	if err == nil && ctx.Err() == nil && submitted {
		w.plan(3)
		err = done.offerPatch(ctx, t, "apply-"+prompt, report)
	}
	if ctx.Err() == nil {
		w.plan(len(acpPlan))
	}
	return acpStop(report), err
}

// acpStop returns the protocol's reason for the end of a turn.
func acpStop(report outcome) acp.StopReason {
	switch agent.StopReason(report.Status) {
	case agent.MaxSteps, agent.MaxCost:
		return acp.MaxTurnRequests
	case agent.MaxContext:
		return acp.MaxTokens
	case agent.Interrupted:
		return acp.Cancelled
	default:
		return acp.EndTurn
	}
}

// List implements [acp.Host].
func (h *acpHost) List(_ context.Context, cwd string) ([]acp.Session, error) {
	found, err := run.List(h.d.RunsDir())
	if err != nil {
		return nil, err
	}
	var all []acp.Session
	for _, f := range found {
		if f.Manifest.Kind != run.Solve {
			continue
		}
		s, err := readSolve(f.Path)
		if err != nil || s.settings.Repo == "" || cwd != "" && s.settings.Repo != filepath.Clean(cwd) {
			continue
		}
		all = append(all, acp.Session{
			ID: filepath.Base(f.Path), Cwd: s.settings.Repo, Title: cli.FirstLine(s.settings.Statement, 80),
			Updated: cmp.Or(s.Last, f.Manifest.Created).UTC().Format(time.RFC3339),
		})
	}
	return all, nil
}

// Replay implements [acp.Host].
func (h *acpHost) Replay(ctx context.Context, id string, t *acp.Turn) ([]acp.ConfigOption, error) {
	path := h.d.RunDir(id)
	if filepath.Base(id) != id || !run.Exists(path) {
		return nil, acp.ErrNoSession
	}
	s, err := readSolve(path)
	if err != nil {
		return nil, err
	}
	if s.settings.Repo == "" {
		return nil, errors.New("the run worked on a clone that is gone")
	}
	h.remember(id, s.settings.Repo)
	if t != nil {
		err = replayTo(t, s)
	}
	return h.choices(ctx, s), err
}
