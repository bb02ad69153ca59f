package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Choices gives a flag completion values. Whether a value is one of them is checked where it is used.
func Choices(cmd *cobra.Command, flag string, words ...string) {
	register(cmd, flag, words, cobra.ShellCompDirectiveNoFileComp)
}

// ChoicesAndFiles gives a flag completion values beside the names of files.
func ChoicesAndFiles(cmd *cobra.Command, flag string, words ...string) {
	register(cmd, flag, words, cobra.ShellCompDirectiveDefault)
}

func register(cmd *cobra.Command, flag string, words []string, directive cobra.ShellCompDirective) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, directive)); err != nil {
		panic(err) // the flag does not exist, or was given choices twice: a defect of the command's declaration
	}
}

// NoArgs refuses arguments, and names the flags that they may have been meant for.
func NoArgs(flags ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		meant := ""
		if len(flags) > 0 {
			meant = fmt.Sprintf("; is %q meant for %s?", args[0], strings.Join(flags, " or "))
		}
		return Usagef("%s takes no arguments%s", cmd.Name(), meant)
	}
}
