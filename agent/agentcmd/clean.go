package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/disk"
)

const cleanHelp = `Remove what dead runs left: containers and volumes on the Docker daemon, scratch
directories, processes and control groups on this machine, and pods and leases
in the clusters that --kube-context and --kube-namespace name. What a living run
uses is left alone, also where the run is on another machine that shares the
daemon or the cluster.

What later runs may use again is removed when it has not been used for long:
images that deepswe has built or prepared after 14 days, set-ups in the cache
directory after 30 days, or earlier where there are more than 16. Runs remove
these by themselves, too. --all removes every one of them.

EXIT STATUS
  0  everything was removed, or there was nothing
  6  something could not be removed or looked at`

type cleanOptions struct {
	cli.Places
	dryRun bool
	all    bool
	json   bool
	stale  time.Duration
}

func newClean(d Deps) *cobra.Command {
	var o cleanOptions
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Remove containers, volumes and files that dead runs left",
		Long:  cleanHelp,
		Args:  cli.NoArgs(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return runClean(cmd.Context(), d, o) },
	}
	f := cmd.Flags()
	f.BoolVarP(&o.dryRun, "dry-run", "n", false, "only show what would be removed")
	f.BoolVar(&o.all, "all", false, "remove what live runs use, too, and all prepared images and set-ups")
	f.BoolVar(&o.json, "json", false, "print JSON lines")
	o.Add(cmd)
	f.DurationVar(&o.stale, "stale", 2*time.Minute, "`TIME` after which a silent run on another machine counts as dead")
	return cmd
}

func runClean(ctx context.Context, d Deps, o cleanOptions) error {
	c, err := d.LoadConfig()
	if err != nil {
		return err
	}
	o.Pods = c.Kubernetes
	var left []env.Leftover
	var failures error
	for _, k := range d.SandboxKinds() {
		if k.Elsewhere != nil && k.Elsewhere(o.Places) {
			continue
		}
		p, err := k.Open(ctx, d.Logger(), cli.SandboxChoice{Places: o.Places})
		switch {
		case err == nil:
			found, err := p.Reap(ctx, env.ReapOptions{DryRun: o.dryRun, All: o.all, Stale: o.stale})
			left = append(left, found...)
			failures = errors.Join(failures, err, p.Close())
		case k.Elsewhere != nil, k.Name == cli.EnvDocker && len(o.Hosts) > 0:
			failures = errors.Join(failures, err) // asked for by name
		default:
			// A provider that does not work here has left nothing here, so this is a note and not a failure.
			fmt.Fprintf(d.Err, "not looked at: %v\n", err)
		}
	}
	found, err := disk.ReapScratch(ctx, "", disk.Reaping{All: o.all, DryRun: o.dryRun})
	for _, f := range found {
		left = append(left, env.Leftover{
			Provider: "temporary", Kind: "directory", ID: f.Dir, Owner: fmt.Sprintf("process %d", f.PID), Age: f.Age,
		})
	}
	old, setupErr := setups(d.World).Reap(env.ReapOptions{DryRun: o.dryRun, All: o.all})
	left, failures = append(left, old...), errors.Join(failures, err, setupErr)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("clean: %w", err)
	}
	if len(left) > 0 || failures == nil || o.json { // after a failure, an empty list proves nothing
		if err := showLeftovers(d, o, left); err != nil {
			return err
		}
	}
	if failures != nil {
		return &cli.ExitError{Code: cli.ExitSandbox, Err: fmt.Errorf("clean: %w", failures)}
	}
	return nil
}

func showLeftovers(d Deps, o cleanOptions, left []env.Leftover) error {
	if o.json {
		return leftoverLines(d.Out, o, left)
	}
	if len(left) == 0 {
		_, err := fmt.Fprintln(d.Out, "nothing to clean")
		return err
	}
	w := tabwriter.NewWriter(d.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHERE\tWHAT\tID\tAGE\tRUN\tOWNER")
	for _, l := range left {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n",
			l.Provider, l.Kind, cli.Cut(l.ID, 31), age(l.Age), cli.Cut(l.Run, 20), l.Owner)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	verb := "removed"
	if o.dryRun {
		verb = "would remove"
	}
	_, err := fmt.Fprintf(d.Out, "\n%s %d\n", verb, len(left))
	return err
}

func leftoverLines(out io.Writer, o cleanOptions, left []env.Leftover) error {
	lines := cli.NewJSONLines(out)
	for _, l := range left {
		err := lines.Print(struct {
			Type    string `json:"type"`
			Version int    `json:"version"`
			env.Leftover
			AgeSeconds float64 `json:"age_seconds"`
			Removed    bool    `json:"removed"`
		}{"leftover", 1, l, l.Age.Seconds(), !o.dryRun})
		if err != nil {
			return err
		}
	}
	return lines.Print(struct {
		Type    string `json:"type"`
		Version int    `json:"version"`
		Found   int    `json:"found"`
		DryRun  bool   `json:"dry_run"`
	}{"result", 1, len(left), o.dryRun})
}

// age formats a duration in its largest unit.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	}
	return fmt.Sprintf("%ds", int(d.Seconds()))
}
