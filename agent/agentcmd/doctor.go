package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/spf13/cobra"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/agent/llm"
	"deepswe/agent/trajectory"
	"deepswe/env"
)

const doctorHelp = `Check what works here: the Docker daemon, the guest in a container, isolation
and limits (each is tried, not only looked up), bubblewrap and namespaces, the
model endpoint with its context length, disk and git. Each failure comes with
the command that fixes it. A cluster is checked when it is named with
--kube-context or --kube-namespace, and the server of a trainer when it is named
with --trainer: models, ranks, losses, how it treats gradients and repeated
requests, and whether its model and tokenizer are those of the endpoint, which
samples. It is tried with a small model that is unloaded again; --trainer-rows
measures the seconds that a step takes there. With --agent, an agent that is not
ours is installed and asks a stand-in for a model.

EXIT STATUS
  0 nothing failed · 3 something failed`

type doctorOptions struct {
	cli.Places
	json    bool
	image   string
	baseURL string
	model   string
	agent   cli.AgentFlags
	trainer cli.TrainerCheck
}

func newDoctor(d Deps) *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what works here, and how to fix what does not",
		Long:  doctorHelp,
		Args:  cli.NoArgs(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd.Context(), d, o) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "print JSON lines")
	o.Add(cmd)
	f.StringVar(&o.image, "image", "", "try sandboxes with the image `REF` (default: a small one that is there)")
	f.StringVar(&o.baseURL, "base-url", "", "`URL` of the model endpoint")
	f.StringVar(&o.model, "model", "", "`NAME` of the model")
	o.agent.Add(cmd)
	f.StringVar(&o.trainer.URL, "trainer", "", "`URL` of a Tinker server, to try it too (its key: TINKER_API_KEY)")
	f.StringVar(&o.trainer.Model, "trainer-model", "", "try it with the base model `NAME` (default: its first)")
	f.IntVar(&o.trainer.Rank, "trainer-rank", 32, "try it with an adapter of rank `N`")
	f.StringVar(&o.trainer.Tokenizer, "trainer-tokenizer", "", "`DIR` of that model's tokenizer.json and config.json")
	f.IntVar(&o.trainer.Rows, "trainer-rows", 0, "measure how long it takes for a step of `N` rows (rollouts)")
	f.IntVar(&o.trainer.Length, "trainer-length", 32768, "with --trainer-rows: rows of `N` tokens")
	return cmd
}

func runDoctor(ctx context.Context, d Deps, o doctorOptions) error {
	c, err := d.LoadConfig()
	if err != nil {
		return err
	}
	if err := o.agent.Check(); err != nil {
		return err
	}
	if o.trainer.Rows < 0 || o.trainer.Length < 3 {
		return cli.Usagef("--trainer-rows must not be negative, and --trainer-length must be at least 3")
	}
	o.Pods = c.Kubernetes
	r := newReport(d.Out, o.json)
	var checks []func() []env.Finding
	for _, k := range d.SandboxKinds() {
		checks = append(checks, func() []env.Finding { return checkSandbox(ctx, d, o, k) })
	}
	checks = append(checks,
		func() []env.Finding { return checkEndpoint(ctx, d.World, o.baseURL, o.model) }, checkDisk,
		func() []env.Finding { return checkRuns(d.RunsDir()) },
		func() []env.Finding { return checkGit(ctx) })
	if !o.agent.Own() {
		checks = append(checks, func() []env.Finding { return checkAgent(ctx, d.World, o.agent) })
	}
	if o.trainer.URL != "" {
		o.trainer.BaseURL, o.trainer.Sampler = o.baseURL, o.model
		checks = append(checks, func() []env.Finding { return d.InspectTrainer(ctx, o.trainer) })
	}
	for _, check := range checks {
		if err := r.add(check()...); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("doctor: %w", ctx.Err())
		}
	}
	return r.finish()
}

// checkAgent runs a foreign agent against a stand-in for a model.
func checkAgent(ctx context.Context, w cli.World, agent cli.AgentFlags) []env.Finding {
	says, err := agent.Try(ctx, w)
	if err != nil {
		return []env.Finding{failure("agent", err, "try its command line by hand, with the settings of its recipe")}
	}
	return []env.Finding{{Check: "agent", Status: env.OK, Detail: agent.Name + ": " + says}}
}

// failure is the finding of a failed check. The error's own advice, if it has any, goes before fix.
func failure(check string, err error, fix string) env.Finding {
	f := env.FindingOf(check, err)
	if detail, advice, ok := strings.Cut(f.Detail, "to fix: "); ok && f.Fix == "" {
		f.Detail, f.Fix = strings.TrimRight(detail, ";: "), advice
	}
	f.Fix = cmp.Or(f.Fix, fix)
	return f
}

// report shows findings as they come.
type report struct {
	out    io.Writer
	lines  *cli.JSONLines // nil for people
	count  map[env.Status]int
	styles map[env.Status]lipgloss.Style
}

func newReport(out io.Writer, asJSON bool) *report {
	r := lipgloss.NewRenderer(out)
	report := &report{out: out, count: map[env.Status]int{}, styles: map[env.Status]lipgloss.Style{
		env.OK: r.NewStyle().Foreground(lipgloss.Color("2")), env.Warning: r.NewStyle().Foreground(lipgloss.Color("3")),
		env.Failed: r.NewStyle().Foreground(lipgloss.Color("1")), env.Skipped: r.NewStyle().Faint(true),
	}}
	if asJSON {
		report.lines = cli.NewJSONLines(out)
	}
	return report
}

func (r *report) add(findings ...env.Finding) error {
	for _, f := range findings {
		r.count[f.Status]++
		var err error
		if r.lines != nil {
			err = r.lines.Print(struct {
				Type    string `json:"type"`
				Version int    `json:"version"`
				env.Finding
			}{"finding", 1, f})
		} else {
			_, err = io.WriteString(r.out, r.text(f))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// The widths of the table's columns: the check, its status, and the details, which are wrapped at column 80.
const (
	checkWidth  = 26
	statusWidth = 9
	detailWidth = 80 - checkWidth - statusWidth
)

func (r *report) text(f env.Finding) string {
	status := r.styles[f.Status].Render(string(f.Status)) + strings.Repeat(" ", statusWidth-len(f.Status))
	lines := cli.Wrap(f.Detail, detailWidth)
	if f.Fix != "" {
		lines = append(lines, cli.Wrap("to fix: "+f.Fix, detailWidth)...)
	}
	indent := "\n" + strings.Repeat(" ", checkWidth+statusWidth)
	return fmt.Sprintf("%-*s%s%s\n", checkWidth, f.Check, status, strings.Join(lines, indent))
}

// finish closes the report. Its error has the exit code for failed checks.
func (r *report) finish() error {
	failed, warnings := r.count[env.Failed], r.count[env.Warning]
	total := failed + warnings + r.count[env.OK] + r.count[env.Skipped]
	var err error
	if r.lines != nil {
		err = r.lines.Print(struct {
			Type     string `json:"type"`
			Version  int    `json:"version"`
			OK       bool   `json:"ok"`
			Failed   int    `json:"failed"`
			Warnings int    `json:"warnings"`
			Checks   int    `json:"checks"`
		}{"result", 1, failed == 0, failed, warnings, total})
	} else {
		_, err = fmt.Fprintf(r.out, "\n%d checks, %d failed, %d with a warning\n", total, failed, warnings)
	}
	if err == nil && failed > 0 {
		err = cli.Exit(cli.ExitUnsolved)
	}
	return err
}

// checkEndpoint checks the model endpoint. Because half of the commands need none, it is not a failure if no endpoint
// is configured and none answers at vLLM's default address.
func checkEndpoint(ctx context.Context, w cli.World, baseURL, model string) []env.Finding {
	config, err := w.LoadConfig()
	if err != nil {
		return []env.Finding{failure("configuration", err, "correct "+w.ConfigPath())}
	}
	choice := w.ResolveModel(config, baseURL, model)
	client, err := llm.New(llm.Options{
		BaseURL: choice.BaseURL, APIKey: choice.APIKey, Model: choice.Model, MaxRetries: -1, Log: w.Logger(),
	})
	if err != nil {
		return []env.Finding{failure("endpoint", err, "set DEEPSWE_BASE_URL")}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	h, err := client.Check(ctx)
	if err != nil && len(h.Models) == 0 && choice.BaseURL == cli.DefaultBaseURL {
		what, command := cli.Nearby(ctx)
		return []env.Finding{{
			Check: "endpoint", Status: env.Skipped, Detail: "none is set, and none answers at " + cli.DefaultBaseURL +
				"; " + strings.ReplaceAll(what, "\n", "; "), Fix: command,
		}}
	}
	return healthFindings(h, err)
}

func healthFindings(h llm.Health, err error) []env.Finding {
	if own, ok := errors.AsType[*llm.Error](err); ok {
		err = own // without the context that its callers added
	}
	if len(h.Models) == 0 && err != nil {
		return []env.Finding{failure("endpoint", err, "start the server, or set DEEPSWE_BASE_URL to its address")}
	}
	var findings []env.Finding
	add := func(check string, status env.Status, detail, fix string) {
		findings = append(findings, env.Finding{Check: check, Status: status, Detail: detail, Fix: fix})
	}
	add("endpoint", env.OK, h.Endpoint+" serves "+cli.Plural(len(h.Models), "model"), "")
	if h.Model.ID == "" {
		return append(findings, failure("model", err, "set DEEPSWE_MODEL to one that the endpoint serves"))
	}
	model := h.Model.ID
	if h.Model.Context > 0 {
		model += fmt.Sprintf(", context %d tokens", h.Model.Context)
	}
	add("model", env.OK, model, "")
	if err != nil {
		findings = append(findings, failure("completion", err, "see the server's own log"))
	} else {
		fit := "without token ids: fit for solving, not for training"
		switch {
		case h.TokenIDs && h.Untrainable != nil:
			fit = "with token ids and logprobs"
		case h.TokenIDs:
			fit = "with token ids and logprobs: fit for training"
		}
		add("completion", env.OK, fmt.Sprintf("one token in %d ms, %s", h.Latency.Milliseconds(), fit), "")
	}
	if h.Untrainable != nil {
		add("training", env.Warning, h.Untrainable.Error(), "see docs/tokens.md")
	}
	if h.RawLogprobs {
		add("logprobs", env.Warning, "they are always those of temperature 1: rows sampled at another one would be trained "+
			"on wrong ratios", "sample at temperature 1, or serve vLLM with --logprobs-mode processed_logprobs")
	}
	if h.Separates && agent.FormatFor(h.Model.ID).Name() == trajectory.FormatXML {
		add("thoughts", env.Warning, "the server takes thoughts out of the text, and takes a reply without one for a "+
			"thought: a call in it is not run in the XML format, which "+h.Model.ID+" is asked in",
			"serve vLLM without --reasoning-parser")
	}
	for _, w := range h.Warnings {
		detail, fix, _ := strings.Cut(w, "\nto fix: ")
		add("endpoint settings", env.Warning, detail, fix)
	}
	return findings
}

// checkDisk checks the file systems of the current directory and of temporary files for room: task images take
// gigabytes each.
func checkDisk() []env.Finding {
	const enough, little = 20 << 30, 2 << 30
	places := []string{"."}
	if temp := os.TempDir(); !sameDisk(temp, ".") {
		places = append(places, temp)
	}
	var findings []env.Finding
	for _, path := range places {
		var disk syscall.Statfs_t
		if err := syscall.Statfs(path, &disk); err != nil {
			findings = append(findings, failure("disk", fmt.Errorf("%s: %w", path, err), ""))
			continue
		}
		if path == "." {
			path = "the current directory"
		}
		free := int64(disk.Bavail) * int64(disk.Bsize) //nolint:unconvert // of another size elsewhere
		f := env.Finding{
			Check: "disk", Status: env.OK, Detail: fmt.Sprintf("%.1f GiB free for %s", float64(free)/(1<<30), path),
		}
		if free < enough {
			f.Status, f.Fix = env.Warning, "docker system prune"
			f.Detail += "; images of tasks take gigabytes each"
		}
		if free < little {
			f.Status = env.Failed
		}
		findings = append(findings, f)
	}
	return findings
}

// checkRuns checks whether runs can be stored in a directory, which need not exist yet.
func checkRuns(dir string) []env.Finding {
	there := dir
	for {
		if _, err := os.Stat(there); !errors.Is(err, fs.ErrNotExist) || there == filepath.Dir(there) {
			break
		}
		there = filepath.Dir(there)
	}
	f, err := os.CreateTemp(there, ".try-*")
	if err != nil {
		return []env.Finding{failure("runs", fmt.Errorf("no run can be kept in %s: %w", dir, err),
			"make it a directory that you can write, or export XDG_STATE_HOME=DIR")}
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return []env.Finding{failure("runs", err, "")}
	}
	return nil
}

func sameDisk(a, b string) bool {
	var x, y syscall.Stat_t
	return syscall.Stat(a, &x) == nil && syscall.Stat(b, &y) == nil && x.Dev == y.Dev
}

// checkGit looks for the git command, which snapshots and patches of local repositories need.
func checkGit(ctx context.Context) []env.Finding {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "git", "--version").Output()
	if err != nil {
		return []env.Finding{failure("git", err, "apt-get install git")}
	}
	return []env.Finding{{Check: "git", Status: env.OK, Detail: strings.TrimSpace(string(out))}}
}
