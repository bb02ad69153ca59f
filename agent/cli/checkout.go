package cli

import (
	"github.com/spf13/cobra"

	"deepswe/env/repo"
)

// CheckoutFlags are the flags that select what a sandbox gets of a local repository.
type CheckoutFlags struct {
	Include []string
	Exclude []string
	// Test is the command that runs the project's tests.
	Test string
}

// Add adds the flags to a command's.
func (o *CheckoutFlags) Add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.Include, "include", nil,
		"show ignored files that match `PATTERN` to the agent, though they look like secrets; may be repeated")
	f.StringArrayVar(&o.Exclude, "exclude", nil,
		"hide ignored files that match `PATTERN` from the agent; may be repeated")
	f.StringVar(&o.Test, "test", "",
		"run the tests with `CMD` on the patch and without it, in fresh sandboxes; auto finds the command")
}

// Options returns the flags as options of a snapshot.
func (o *CheckoutFlags) Options() repo.Options {
	return repo.Options{Include: o.Include, Exclude: o.Exclude}
}
