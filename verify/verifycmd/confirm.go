package verifycmd

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"deepswe/verify"
)

// confirmFlags say how rewards are confirmed.
type confirmFlags struct {
	canary   string
	evidence string
	odds     float64
	training bool
}

func (o *confirmFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.canary, "canary", "on", "confirm a reward with tests that must fail: on, require (as --evidence "+
		"outright) or off")
	f.StringVar(&o.evidence, "evidence", "none", "the `STRENGTH` of evidence that a reward requires, without which "+
		"there is no verdict: outside, paired, outright, or none (see docs/grading.md)")
	f.Float64Var(&o.odds, "odds", verify.DefaultOdds, "with paired evidence, a guess may succeed in at most one of `N` "+
		"cases (up to 8 runs are made for that)")
	f.BoolVar(&o.training, "training", false, "grade as training does: the first run is strict already")
}

// The values of --canary.
const (
	canaryOn      = "on"
	canaryRequire = "require"
	canaryOff     = string(verify.CanaryNever)
)

func (o *confirmFlags) check() error {
	if !slices.Contains([]string{canaryOn, canaryRequire, canaryOff}, o.canary) {
		return fmt.Errorf("invalid --canary %q: must be on, require or off", o.canary)
	}
	if !slices.Contains(verify.Strengths(), verify.Strength(o.evidence)) {
		return fmt.Errorf("invalid --evidence %q: must be outside, paired, outright or none", o.evidence)
	}
	if o.canary == canaryOff && o.evidence != string(verify.NoEvidence) {
		return fmt.Errorf("--evidence %s requires --canary on", o.evidence)
	}
	if !(o.odds >= 1) { // also refuses NaN
		return fmt.Errorf("invalid --odds %v: must be at least 1", o.odds)
	}
	return nil
}

func (o *confirmFlags) set(e *verify.Evaluator) {
	e.Training, e.Odds = o.training, o.odds
	if o.canary == canaryOff {
		e.Canary = verify.CanaryNever
	}
	switch {
	case o.evidence != string(verify.NoEvidence):
		e.Evidence = verify.Strength(o.evidence)
	case o.canary == canaryRequire:
		e.Evidence = verify.OutrightEvidence
	}
}
