package verifycmd

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepswe/agent/cli"
	history "deepswe/env/mine"
	"deepswe/verify/mine"
)

type mineOptions struct {
	sandbox cli.SandboxFlags
	repo    string
	path    string
	commits int
	more    bool
	again   bool
	bounds  history.Bounds
	workers int
	mutants int
	timeout time.Duration
	setup   []string
	holdout string
	// synthetic are the kinds of bugs to make.
	synthetic []string
	issues    string
	// statement says who writes statements that no issue gives, model with which endpoint.
	statement string
	model     cli.EndpointFlags
	out       string
	json      bool
}

// writesBugs reports whether a model is to write bugs.
func (o *mineOptions) writesBugs() bool { return slices.Contains(o.synthetic, history.Writing) }

// noBugs is the value of --synthetic that ends what earlier runs have begun.
const noBugs = "none"

// kinds are the kinds of bugs to make, which are those of the last time unless the flag is given.
func (o *mineOptions) kinds(last mine.Report) []string {
	switch {
	case slices.Equal(o.synthetic, []string{noBugs}):
		return nil
	case len(o.synthetic) == 0:
		return last.Kinds()
	}
	return o.synthetic
}

func syntheticKinds() []string { return []string{history.Reverting, history.Mutating, history.Writing} }

// The values of --statement.
const (
	byMessage = "message"
	byModel   = "model"
)

// share returns the share of the tasks to hold out: last, that of the run before, unless --holdout is given.
func (o *mineOptions) share(last float64) (float64, error) {
	if o.holdout == "" {
		return last, nil
	}
	n, err := strconv.ParseFloat(strings.TrimSuffix(o.holdout, "%"), 64)
	if err != nil || n < 0 || n > 90 {
		return 0, fmt.Errorf("invalid --holdout %q: must be a percentage up to 90%%, such as 20%%", o.holdout)
	}
	return n / 100, nil
}

func (o *mineOptions) check() error {
	_, err := o.share(0)
	for _, kind := range o.synthetic {
		if !slices.Contains(syntheticKinds(), kind) && !slices.Equal(o.synthetic, []string{noBugs}) {
			return fmt.Errorf("invalid --synthetic %q: must be none, or one or more of %s", kind,
				strings.Join(syntheticKinds(), ","))
		}
	}
	switch {
	case err != nil:
		return err
	case o.workers < 1 || o.mutants < 0 || o.commits < 0:
		return errors.New("--workers must be at least 1, --mutants and --commits must not be negative")
	case o.bounds.Files < 1 || o.bounds.Lines < 1 || o.bounds.Bytes < 1:
		return errors.New("--max-files, --max-lines and --max-bytes must be at least 1")
	case o.statement != byMessage && o.statement != byModel:
		return fmt.Errorf("invalid --statement %q: must be %s or %s", o.statement, byMessage, byModel)
	case o.statement == byMessage && !o.writesBugs() && o.model != cli.EndpointFlags{}:
		return errors.New(
			"--base-url and --model name the endpoint of --statement model or --synthetic model: neither is asked for")
	case len(o.setup) > 1 && (slices.Contains(o.setup, cli.SetupAuto) || slices.Contains(o.setup, cli.SetupNone)):
		return errors.New("--setup auto and --setup none cannot be combined with another --setup")
	case o.timeout <= 0:
		return errors.New("--test-timeout must be longer than 0")
	case o.sandbox.Network:
		return errors.New("--network: the tests of tasks run without a network, as they are graded without one")
	case o.more && o.commits > 0:
		return errors.New("--more and --commits both say how many commits to walk: give one of them")
	}
	return nil
}
