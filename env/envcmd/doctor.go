package envcmd

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"deepswe/env"
)

const doctorHelp = `Look at what works here: the Docker daemon, the guest in a container, isolation
and limits (each is tried, not only asked for), bubblewrap and namespaces, the
model endpoint with its context length, disk and git. Whatever fails comes with
the one command that fixes it.

EXIT STATUS
  0  nothing failed
  3  something failed`

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
		Short: "Look at what works here, and how to fix what does not",
		Long:  doctorHelp,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd.Context(), d, o) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.json, "json", false, "print JSON lines")
	flags.StringArrayVar(&o.hosts, "docker-host", nil, "a Docker daemon: unix, tcp or ssh `URL`, or context:NAME; may be repeated")
	flags.StringVar(&o.image, "image", "", "the image to try sandboxes with, `REF` (default: a small one that is there)")
	flags.StringVar(&o.baseURL, "base-url", "", "the model endpoint's `URL`")
	flags.StringVar(&o.model, "model", "", "the model's `NAME`")
	return cmd
}

func runDoctor(ctx context.Context, d Deps, o doctorOptions) error {
	r := newReport(d.Out, o.json)
	checks := []func() []env.Finding{
		func() []env.Finding { return checkDocker(ctx, d, o) },
		func() []env.Finding { return checkLocal(ctx, d) },
		func() []env.Finding {
			if d.Endpoint == nil {
				return nil
			}
			return d.Endpoint(ctx, o.baseURL, o.model)
		},
		func() []env.Finding { return append(checkDisk(), checkGit(ctx)...) },
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

// checkDocker looks at the daemons, and tries a sandbox on them.
func checkDocker(ctx context.Context, d Deps, o doctorOptions) []env.Finding {
	p, err := d.Docker(ctx, o.hosts)
	if err != nil {
		f := env.FindingOf("docker", err)
		f.Fix = cmp.Or(f.Fix, "docker version says more")
		return []env.Finding{f}
	}
	defer p.Close()
	var findings []env.Finding
	s, lacking := env.Spec{Image: o.image}, ""
	if known, ok := p.(env.Diagnoser); ok {
		findings = known.Diagnose(ctx)
		if s.Image == "" {
			s, lacking, err = known.Sample(ctx)
		}
	}
	switch {
	case err != nil:
		return append(findings, env.Finding{
			Check: p.Name() + " sandbox", Status: env.Failed, Detail: err.Error(), Fix: mendStart(err),
		})
	case lacking != "":
		return append(findings, tryEmpty(ctx, p, s, lacking)...)
	}
	return append(findings, try(ctx, p, s, "in "+s.Image)...)
}

// checkLocal looks at the providers of this machine.
func checkLocal(ctx context.Context, d Deps) []env.Finding {
	var findings []env.Finding
	for _, l := range d.Local {
		p, err := l.open()
		if err != nil {
			findings = append(findings, env.Finding{Check: l.Name, Status: env.Failed, Detail: err.Error(), Fix: l.Fix})
			continue
		}
		findings = append(findings, try(ctx, p, env.Spec{}, "")...)
		if err := p.Close(); err != nil {
			findings = append(findings, env.Finding{Check: l.Name, Status: env.Warning, Detail: err.Error()})
		}
	}
	return findings
}
