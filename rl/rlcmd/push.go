package rlcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"deepswe/agent/cli"
	"deepswe/env/hub"
)

// pushOptions say where to push a folder that a command has made.
type pushOptions struct{ name, hub string }

func (o *pushOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.name, "push", "", "push the folder to the repository `OWNER/NAME` of a hub")
	f.StringVar(&o.hub, "hub", "", "with --push: the hub at `URL` (default: HF_ENDPOINT)")
}

// check refuses what cannot be pushed before anything is made.
func (o *pushOptions) check(d Deps) (err error) {
	if o.name == "" {
		return nil
	}
	owner, name, _ := strings.Cut(o.name, "/")
	if owner == "" || name == "" || strings.ContainsAny(name, "/?#% ") {
		return fmt.Errorf("invalid --push %q: must be OWNER/NAME, such as acme/fixer", o.name)
	}
	if o.hub = cmp.Or(o.hub, d.Getenv("HF_ENDPOINT")); o.hub == "" {
		return errors.New("--push needs a hub: give --hub URL (for example https://huggingface.co), or set HF_ENDPOINT")
	}
	o.hub, err = hub.Address(o.hub)
	return err
}

func (o *pushOptions) send(ctx context.Context, d Deps, dir string) error {
	if o.name == "" {
		return nil
	}
	progress, done := cli.Transfer(d.Err)
	client := hub.Client{Token: d.Getenv("HF_TOKEN"), Progress: progress}
	pushed, err := client.Push(ctx, o.hub, o.name, dir, "deepswe: weights and their page")
	done()
	switch {
	case err != nil:
		fmt.Fprintf(d.Err, "%s is complete; to go on with the upload: deepswe merge --out %[1]s --push %s --hub %s\n",
			dir, o.name, o.hub)
		return fmt.Errorf("push to %s: %w", o.name, err)
	case pushed.Commit == "":
		fmt.Fprintf(d.Err, "%s/%s is up to date\n", o.hub, o.name)
	default:
		fmt.Fprintf(d.Err, "%s/%s: %d files in commit %s, %d bytes sent to its storage\n", o.hub, o.name, pushed.Files,
			pushed.Commit, pushed.Bytes)
	}
	return nil
}
