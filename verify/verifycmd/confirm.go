package verifycmd

import (
	"fmt"

	"github.com/spf13/pflag"

	"deepswe/verify"
)

// confirmFlags say how rewards are confirmed.
type confirmFlags struct {
	canary    string
	training  bool
	telltales string
}

func (o *confirmFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.canary, "canary", "on", "confirm a reward with tests that must fail: on, require (where that is "+
		"not possible, there is no verdict), or off")
	f.BoolVar(&o.training, "training", false, "grade as training does: the first run is strict already")
	f.StringVar(&o.telltales, "telltales", "auto", "what code that is typical of forged results means: "+
		"flag (it is listed "+
		"as suspicious), refuse (there is no reward either), or auto (refuse with --training, else flag)")
}

func (o *confirmFlags) check() error {
	switch o.canary {
	case "on", string(verify.CanaryRequired), string(verify.CanaryNever):
	default:
		return fmt.Errorf("invalid --canary %q: must be on, require or off", o.canary)
	}
	switch o.telltales {
	case "auto", "flag", "refuse":
		return nil
	}
	return fmt.Errorf("invalid --telltales %q: must be flag, refuse or auto", o.telltales)
}

// set puts them into an evaluator.
func (o *confirmFlags) set(e *verify.Evaluator) {
	if e.Training = o.training; o.canary != "on" {
		e.Canary = verify.CanaryMode(o.canary)
	}
	e.RefuseTelltales = o.telltales == "refuse" || o.telltales == "auto" && o.training
}
