package verifycmd

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env/disk"
)

// evalSettings are the settings in the manifest of a run of eval.
type evalSettings struct {
	// Flags are the settings that decide about results, by the names of their flags, those left at their defaults
	// included.
	Flags map[string]string `json:"flags"`
	// Given are the flags that were set, because some have another meaning if they are not set.
	Given []string `json:"given"`
}

// open opens the directory of a resumed run, restores the flags that the run began with, and checks them.
func (e *evaluation) open(flags *pflag.FlagSet) error {
	if e.o.resume {
		if err := e.takeUp(flags); err != nil {
			return err
		}
	}
	e.o.model.Given = func(name string) bool { return flags.Changed(name) || slices.Contains(e.settings.Given, name) }
	return cli.Usage(e.o.check())
}

// begin makes a new run's directory.
func (e *evaluation) begin(flags *pflag.FlagSet) error {
	e.settings = evalSettings{Flags: map[string]string{}, Given: []string{}}
	for _, name := range settled {
		f := flags.Lookup(name)
		e.settings.Flags[name] = settledValue(f)
		if f.Changed {
			e.settings.Given = append(e.settings.Given, name)
		}
	}
	path := cmp.Or(e.o.out, e.d.RunDir(e.d.RunID()))
	settings, err := disk.MarshalJSON(e.settings)
	if err != nil {
		return err
	}
	e.dir, err = run.Create(path, run.Manifest{Kind: run.Eval, Program: e.d.Program(), Settings: settings})
	if errors.Is(err, run.ErrExists) {
		err = fmt.Errorf("%w: resume it (--resume), or choose another --out", err)
	}
	if err != nil {
		return cli.Usage(err)
	}
	return nil
}

// settledValue is a flag's value as a manifest keeps it. Paths are absolute: a run may be resumed from another
// directory.
func settledValue(f *pflag.Flag) string {
	prefix, path := "", f.Value.String()
	recorded := f.Name == "model" && strings.HasPrefix(path, cli.ReplayPrefix)
	if recorded {
		prefix, path = cli.ReplayPrefix, strings.TrimPrefix(path, cli.ReplayPrefix)
	}
	paths := []string{"tasks", "exclude-repos-of", "prompt-pack", "judge-pack"}
	if recorded || slices.Contains(paths, f.Name) && path != "" {
		if full, err := filepath.Abs(path); err == nil {
			path = full
		}
	}
	return prefix + path
}

// takeUp opens the run in the directory and sets the flags that it began with. One that was given again must be the
// same.
func (e *evaluation) takeUp(flags *pflag.FlagSet) error {
	if e.o.out == "" {
		return cli.Usagef("--resume requires --out DIR, the directory of the run")
	}
	var err error
	e.dir, err = run.Open(e.o.out, run.Eval)
	if err != nil {
		return cli.Usage(err)
	}
	if err := json.Unmarshal(e.dir.Manifest.Settings, &e.settings); err != nil {
		return cli.Usagef("%s: the settings in the manifest: %w", e.o.out, err)
	}
	for _, name := range settled {
		f := flags.Lookup(name)
		value, known := e.settings.Flags[name]
		if !known && !f.Changed {
			continue // an older run has no such setting
		}
		if !f.Changed {
			if err := f.Value.Set(value); err != nil {
				return cli.Usagef("%s: the run began with --%s %q: %w", e.o.out, name, value, err)
			}
			continue
		}
		now := settledValue(f)
		// Without the flag, the endpoint's own setting counts, which has no value here.
		own := slices.Contains([]string{"temperature", "seed"}, name) && !slices.Contains(e.settings.Given, name)
		if own {
			value = "the endpoint's own"
		}
		if now != value {
			return cli.Usagef("the run in %s began with --%s %q and cannot be resumed with %q: "+
				"leave out the flag, or begin a new run with another --out",
				e.o.out, name, value, now)
		}
	}
	return nil
}
