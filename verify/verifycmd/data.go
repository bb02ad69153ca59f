package verifycmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"deepswe/agent/cli"
	"deepswe/env/hub"
)

const dataHelp = `Fetch a published dataset from a hub, for --tasks. Without a name, list those
that are known.

The hub is the one that you name (--hub, or HF_ENDPOINT); it must speak the API
of Hugging Face. HF_TOKEN is sent to it, and nowhere else. A transfer that
breaks off goes on where it stopped when the command is run again.

Each dataset is fetched at a pinned revision. The digests of its files are
checked where they are known; the others are recorded by the first fetch, in
DIR/SOURCE.lock, and hold from then on. Without a hub, files that were put into
the directory by hand are checked and recorded in the same way.`

func newData(d Deps) *cobra.Command {
	var address, out string
	cmd := &cobra.Command{
		Use:   "data [NAME]",
		Short: "Fetch a published dataset",
		Long:  dataHelp,
		Example: `  deepswe data
  deepswe data swe-bench-verified --hub https://hub.example
  deepswe data r2e-gym-subset --out /data/r2e`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := hub.Datasets()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return listDatasets(d, all)
			}
			i := slices.IndexFunc(all, func(s hub.Dataset) bool { return s.Name == args[0] })
			if i < 0 {
				return cli.Usagef("no dataset is named %q: deepswe data lists those that are", args[0])
			}
			if address = cmp.Or(address, d.Getenv("HF_ENDPOINT")); address != "" {
				if address, err = hub.Address(address); err != nil {
					return cli.Usage(err)
				}
			}
			return fetchDataset(cmd.Context(), d, all[i], address, cmp.Or(out, filepath.Join(d.CacheDir("data"), args[0])))
		},
	}
	cmd.Flags().StringVar(&address, "hub", "", "fetch from the hub at `URL`")
	cmd.Flags().StringVar(&out, "out", "", "keep the files in `DIR` (default: in ~/.cache/deepswe/data)")
	return cmd
}

func listDatasets(d Deps, all []hub.Dataset) error {
	w := tabwriter.NewWriter(d.Out, 0, 8, 2, ' ', 0)
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%s\n", s.Name, s.About)
	}
	return w.Flush()
}

// fetchDataset brings a dataset, and prints what to give to --tasks.
func fetchDataset(ctx context.Context, d Deps, s hub.Dataset, address, dir string) error {
	progress, done := cli.Transfer(d.Err)
	source, err := s.Bring(ctx, &hub.Client{Token: d.Getenv("HF_TOKEN"), Progress: progress}, address, dir)
	done()
	switch {
	case errors.Is(err, hub.ErrNoHub):
		return cli.Usagef("%s: %w\nto fix: --hub URL, or by hand, with any client of a hub that has %s:\n"+
			"  hf download --repo-type dataset %s --revision %s --include '%s' --local-dir %s\nand run this command again",
			s.Name, err, s.Dataset, s.Dataset, cmp.Or(s.Revision, "main"), strings.Join(s.Files, "' '"), dir)
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return cli.Usagef("%s: %w", s.Name, err)
	}
	revision := cmp.Or(source.Revision, "unknown: brought by hand")
	fmt.Fprintf(d.Err, "%s: %s of %s, revision %s\n", s.Name, cli.Plural(len(source.Files), "file"), s.Dataset,
		cli.Plain(revision))
	if s.Lacks != "" {
		fmt.Fprintf(d.Err, "its tasks need %s\n", s.Lacks)
	}
	for _, pattern := range s.Files {
		fmt.Fprintln(d.Out, filepath.Join(dir, filepath.FromSlash(pattern)))
	}
	return nil
}
