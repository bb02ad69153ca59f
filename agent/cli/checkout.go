package cli

import (
	"github.com/spf13/cobra"

	"deepswe/env/repo"
)

// CheckoutFlags are the flags that select which parts of a local repository a sandbox gets.
type CheckoutFlags struct {
	Include []string
	Exclude []string
	// Test is the command that runs the project's tests.
	Test string
	// Setup are the commands that install what the project needs, or one of the words SetupAuto and SetupNone.
	Setup []string
}

// The words of --setup. Without the flag, what the user has agreed to for the repository is installed.
const (
	SetupAuto = "auto"
	SetupNone = "none"
)

// Add adds the flags to a command's.
func (o *CheckoutFlags) Add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.Include, "include", nil,
		"show ignored files that match `PATTERN` to the agent, though they look like secrets; may be repeated")
	f.StringArrayVar(&o.Exclude, "exclude", nil,
		"hide ignored files that match `PATTERN` from the agent; may be repeated")
	f.StringArrayVar(&o.Setup, "setup", nil,
		"install dependencies with `CMD`, with a network for that alone; auto finds it, none skips it; may be repeated")
	f.StringVar(&o.Test, "test", "",
		"run the tests with `CMD` on the patch and without it, in fresh sandboxes; auto finds the command")
}

// Options returns the flags as options of a snapshot.
func (o *CheckoutFlags) Options() repo.Options {
	return repo.Options{Include: o.Include, Exclude: o.Exclude}
}
