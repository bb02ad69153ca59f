package agentcmd

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"deepswe/agent/cli"
)

const configHelp = `Show the settings in force, and where each comes from: a variable of the
environment, the configuration in ~/.config/deepswe/config.yaml, or the default.
Flags of a command come before all of them.

The profile is what is known of the model by its name: sampling, where defaults
are bad for an agent; the context to assume where the endpoint reports none; and
vLLM's parser of its calls. profiles, a list in the configuration, comes before
those that are built in.

config set KEY VALUE checks a value and writes it to the configuration; an empty
VALUE removes the key.`

func newConfig(d Deps) *cobra.Command {
	return &cobra.Command{
		Use:   "config [set KEY VALUE]",
		Short: "Show the settings in force, or set one",
		Long:  configHelp,
		Example: "  deepswe config\n  deepswe config set base_url http://localhost:11434/v1\n" +
			"  deepswe config set context 64k",
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return showConfig(d)
			case len(args) == 3 && args[0] == "set":
				return setConfig(d, args[1], args[2])
			}
			return cli.Usagef("usage: deepswe config, or deepswe config set KEY VALUE")
		},
	}
}

func showConfig(d Deps) error {
	all, err := d.Settings()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(d.Out, 0, 4, 2, ' ', 0)
	profile := ""
	for _, s := range all {
		if s.Key == "profile" {
			profile = fmt.Sprintf("profile of the model (%s): %s", cli.Plain(d.ShortPath(s.Source)), shownValue(s))
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Key, shownValue(s), cli.Plain(d.ShortPath(s.Source)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(d.Out, "\n"+strings.Join(cli.Wrap(profile, 79), "\n"))
	return err
}

// shownValue returns a setting's value for display, without secrets.
func shownValue(s cli.Setting) string {
	switch {
	case s.Value == "":
		return "-"
	case s.Key == "api_key":
		return "(hidden)"
	case s.Key == "base_url":
		return cli.Plain(cli.WithoutPassword(s.Value))
	}
	return cli.Plain(s.Value)
}

// setConfig writes a setting, and warns if something takes precedence over it.
func setConfig(d Deps, key, value string) error {
	if err := d.SetConfig(key, value); err != nil {
		return err
	}
	all, err := d.Settings()
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Key != key {
			continue
		}
		fmt.Fprintf(d.Out, "%s  %s  %s\n", key, shownValue(s), cli.Plain(d.ShortPath(s.Source)))
		if s.Source != d.ConfigPath() && value != "" {
			d.Logger().Warn(fmt.Sprintf("%s was written, but %s takes precedence", key, s.Source))
		}
	}
	return nil
}
