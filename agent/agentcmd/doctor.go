package agentcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/spf13/cobra"

	"deepswe/agent/cli"
	"deepswe/env"
)

const doctorHelp = `Check what works here: the Docker daemon, the guest in a container, isolation
and limits (each is tried, not only looked up), bubblewrap and namespaces, the
model endpoint with its context length, disk and git. Whatever fails comes with
the one command that fixes it.

EXIT STATUS
  0 nothing failed · 3 something failed`

type doctorOptions struct {
	json    bool
	hosts   []string
	image   string
	baseURL string
	model   string
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
	cli.AddHosts(cmd, &o.hosts)
	f.StringVar(&o.image, "image", "", "try sandboxes with the image `REF` (default: a small one that is there)")
	f.StringVar(&o.baseURL, "base-url", "", "`URL` of the model endpoint")
	f.StringVar(&o.model, "model", "", "`NAME` of the model")
	return cmd
}

func runDoctor(ctx context.Context, d Deps, o doctorOptions) error {
	r := newReport(d.Out, o.json)
	var checks []func() []env.Finding
	for _, k := range d.SandboxKinds() {
		checks = append(checks, func() []env.Finding { return checkSandbox(ctx, d, o, k) })
	}
	checks = append(checks,
		func() []env.Finding { return checkEndpoint(ctx, d.World, o.baseURL, o.model) }, checkDisk,
		func() []env.Finding { return checkGit(ctx) })
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

// checkSandbox asks a provider about itself, and tries a sandbox of it.
func checkSandbox(ctx context.Context, d Deps, o doctorOptions, k cli.SandboxKind) []env.Finding {
	p, err := k.Open(ctx, d.Logger(), cli.SandboxChoice{Hosts: o.hosts})
	if err != nil {
		f := env.FindingOf(k.Name, err)
		f.Fix = cmp.Or(f.Fix, k.Fix)
		return []env.Finding{f}
	}
	var findings []env.Finding
	s, lacking := env.Spec{}, ""
	if k.Images {
		s.Image = o.image
	}
	if known, ok := p.(env.Diagnoser); ok {
		findings = known.Diagnose(ctx)
		if s.Image == "" {
			s, lacking, err = known.Sample(ctx)
		}
	}
	switch {
	case err != nil:
		findings = append(findings, env.Finding{
			Check: p.Name() + " sandbox", Status: env.Failed, Detail: err.Error(), Fix: fixStart(err),
		})
	case lacking != "":
		findings = append(findings, tryEmpty(ctx, p, s, lacking)...)
	default:
		findings = append(findings, try(ctx, p, s)...)
	}
	if err := p.Close(); err != nil {
		findings = append(findings, env.Finding{Check: p.Name(), Status: env.Warning, Detail: err.Error()})
	}
	return findings
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

// The columns of the table: the check, its status, and the rest, which is wrapped to what is left of 80.
const (
	checkWidth  = 22
	statusWidth = 9
	detailWidth = 80 - checkWidth - statusWidth
)

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

func (r *report) text(f env.Finding) string {
	var b strings.Builder
	indent := strings.Repeat(" ", checkWidth+statusWidth)
	status := r.styles[f.Status].Render(string(f.Status)) + strings.Repeat(" ", statusWidth-len(f.Status))
	fmt.Fprintf(&b, "%-*s%s", checkWidth, f.Check, status)
	lines := wrap(f.Detail, detailWidth)
	if f.Fix != "" {
		lines = append(lines, wrap("to fix: "+f.Fix, detailWidth)...)
	}
	b.WriteString(strings.Join(lines, "\n"+indent) + "\n")
	return b.String()
}

// wrap breaks a text into lines of at most width characters where it has spaces. A longer word stays whole: it may be a
// command that somebody wants to copy.
func wrap(text string, width int) []string {
	var lines []string
	current := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case current == "":
			current = word
		case len(current)+1+len(word) <= width:
			current += " " + word
		default:
			lines = append(lines, current)
			current = word
		}
	}
	return append(lines, current)
}

// finish closes the report. Its error has the exit code for failed checks.
func (r *report) finish() error {
	failed, warnings, total := r.count[env.Failed], r.count[env.Warning], 0
	for _, n := range r.count {
		total += n
	}
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
