package cli

import (
	"errors"
	"fmt"
	"iter"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"deepswe/env"
	"deepswe/env/dataset"
)

// Choices sets a flag's completion values. Checking the value is left to the code that uses it.
func Choices(cmd *cobra.Command, flag string, words ...string) {
	fixed := cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(flag, fixed); err != nil {
		panic(err) // a bug in the command: an unknown flag, or one with choices already
	}
}

// NoArgs rejects arguments, and suggests the flags that they may have been meant for.
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

// TaskFlags are the flags that select tasks of a dataset.
type TaskFlags struct {
	Path    string
	Filter  string
	Slice   string
	Shuffle string
	Exclude string
	// Image is the container image for tasks that do not name one.
	Image  string
	Strict bool
}

// Add adds the flags to a command.
func (o *TaskFlags) Add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Path, "tasks", "", "tasks at `PATH`: a file, a pattern, a directory, or bugs (bundled)")
	f.StringVar(&o.Filter, "filter", "", "only tasks whose id matches `RE`")
	f.StringVar(&o.Shuffle, "shuffle", "", "shuffle the tasks by `SEED`, the same way everywhere")
	f.StringVar(&o.Slice, "slice", "", "only the part `A:B` of the tasks, after filter and shuffle")
	f.StringVar(&o.Exclude, "exclude-repos-of", "", "leave out repositories that occur in the dataset at `PATH`")
	f.StringVar(&o.Image, "image", "", "container image `REF` for tasks that do not name one")
	f.BoolVar(&o.Strict, "strict", false, "stop at the first bad record instead of leaving it out")
}

func (o *TaskFlags) options() (dataset.Options, error) {
	d := dataset.Options{Strict: o.Strict, ExcludeReposOf: o.Exclude, Image: o.Image, Counts: new(dataset.Counts)}
	if o.Path == "" {
		return d, errors.New("--tasks PATH is missing")
	}
	var err error
	if o.Filter != "" {
		if d.Filter, err = regexp.Compile(o.Filter); err != nil {
			return d, fmt.Errorf("--filter: %w", err)
		}
	}
	if o.Slice != "" {
		if d.Slice, err = dataset.ParseSlice(o.Slice); err != nil {
			return d, fmt.Errorf("--slice: %w", err)
		}
	}
	if o.Shuffle != "" {
		seed, err := strconv.ParseUint(o.Shuffle, 10, 64)
		if err != nil {
			return d, fmt.Errorf("invalid --shuffle %q: must be a whole number, 0 or greater", o.Shuffle)
		}
		d.Shuffle = &seed
	}
	return d, nil
}

// Read yields the selected tasks. Bad records are reported and left out, unless --strict is given; any other error
// ends the sequence.
func (o *TaskFlags) Read(w World) (iter.Seq2[env.Task, error], *dataset.Counts, error) {
	options, err := o.options()
	if err != nil {
		return nil, nil, Usage(err)
	}
	const most = 20 // further bad records are only counted
	tasks := func(yield func(env.Task, error) bool) {
		for t, err := range dataset.Read(o.Path, options) {
			if record, bad := errors.AsType[*dataset.RecordError](err); bad && !o.Strict {
				if options.Counts.Bad <= most {
					fmt.Fprintf(w.Err, "left out: %v\n", record)
				}
				continue
			}
			if err = Usage(err); !yield(t, err) || err != nil {
				return
			}
		}
		if n := options.Counts.Bad; n > 0 {
			fmt.Fprintf(w.Err, "%d of %d records could not be understood and were left out (--strict stops at the first)\n",
				n, options.Counts.Records)
		}
		if n := options.Counts.Excluded; n > 0 {
			fmt.Fprintf(w.Err, "%d tasks were left out because their repositories occur in %s\n", n, o.Exclude)
		}
	}
	return tasks, options.Counts, nil
}

// NoTasks returns the error that explains why no task is left.
func (o *TaskFlags) NoTasks(c *dataset.Counts) error {
	return Usagef("no task is left: of the %d records in %s, %d could not be understood, %d did not match --filter, "+
		"and %d are of excluded repositories", c.Records, o.Path, c.Bad, c.Filtered, c.Excluded)
}
