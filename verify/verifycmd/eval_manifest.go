package verifycmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env/dataset"
	"deepswe/env/disk"
	"deepswe/env/kubernetes"
)

type evalSettings struct {
	// Flags are the settings that decide about results, by the names of their flags, those left at their defaults
	// included.
	Flags map[string]string `json:"flags"`
	// Given are the flags that were set, because some have another meaning if they are not set.
	Given []string `json:"given"`
	// Places are where the run works, by the names of the flags in places. A resumed run works there, too, unless it
	// is told otherwise.
	Places map[string][]string `json:"places,omitempty"`
}

// places are the flags that say where a run works, and what it may cost. They don't decide about its results.
var places = []string{"docker-host", "kube-context", "kube-namespace", "registry-mirror", "image-budget", "disk",
	"base-url", "max-cost"}

// placesOf returns the places of a new run. What depends on the user's environment and configuration is resolved,
// because these may have changed when the run is resumed.
func (e *evaluation) placesOf(flags *pflag.FlagSet) (map[string][]string, error) {
	all := map[string][]string{}
	for _, name := range places {
		if f := flags.Lookup(name); f.Changed {
			all[name] = valuesOf(f)
		}
	}
	if contexts := all["kube-context"]; e.o.sandbox.Env == cli.EnvKubernetes && len(contexts) <= 1 {
		context, namespace := kubernetes.Selected(strings.Join(contexts, ""))
		if context != "" {
			all["kube-context"] = []string{context}
		}
		if namespace != "" && len(all["kube-namespace"]) == 0 {
			all["kube-namespace"] = []string{namespace}
		}
	}
	if e.o.attempts > 0 && !strings.HasPrefix(e.o.model.Name, cli.ReplayPrefix) {
		config, err := e.d.LoadConfig()
		if err != nil {
			return nil, err
		}
		all["base-url"] = []string{e.d.ResolveModel(config, e.o.model.BaseURL, "").BaseURL}
	}
	if u, err := url.Parse(strings.Join(all["base-url"], "")); err != nil || u.User != nil {
		delete(all, "base-url") // a secret does not belong in a run's directory
	}
	return all, nil
}

func valuesOf(f *pflag.Flag) []string {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	return []string{f.Value.String()}
}

// takePlaces sets the places that a resumed run began with, and that were not given again.
func (e *evaluation) takePlaces(flags *pflag.FlagSet) error {
	for _, name := range places {
		f, values := flags.Lookup(name), e.settings.Places[name]
		if f.Changed || name == "kube-namespace" && flags.Changed("kube-context") {
			continue // the namespace was another context's
		}
		for _, value := range values { // a list takes one after the other
			if err := f.Value.Set(value); err != nil {
				return cli.Usagef("%s: the run began with --%s %q: %w", e.o.out, name, value, err)
			}
		}
	}
	if e.settings.Places == nil && e.o.sandbox.Env == cli.EnvKubernetes && len(e.o.sandbox.Contexts) == 0 {
		if context, _ := kubernetes.Selected(""); context != "" {
			return cli.Usagef("the run in %s was begun by an older deepswe, which did not keep its cluster: "+
				"name it with --kube-context and --kube-namespace", e.o.out)
		}
	}
	return nil
}

// open opens the directory of a resumed run, restores the flags that the run began with, and checks them.
func (e *evaluation) open(ctx context.Context, flags *pflag.FlagSet) error {
	if e.o.resume {
		if err := e.takeUp(flags); err != nil {
			return err
		}
		if err := e.restorePrompt(ctx); err != nil {
			return err
		}
	}
	e.o.model.Given = func(name string) bool { return flags.Changed(name) || slices.Contains(e.settings.Given, name) }
	return cli.Usage(e.o.check())
}

// beginRun makes a new run's directory.
func (e *evaluation) beginRun(flags *pflag.FlagSet) error {
	e.settings = evalSettings{Flags: map[string]string{}, Given: []string{}}
	for _, name := range settled {
		f := flags.Lookup(name)
		e.settings.Flags[name] = settledValue(f)
		if f.Changed {
			e.settings.Given = append(e.settings.Given, name)
		}
	}
	var err error
	if e.settings.Places, err = e.placesOf(flags); err != nil {
		return err
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
	if recorded || slices.Contains(paths, f.Name) && path != "" && !dataset.Bundled(path) {
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
	return e.takePlaces(flags)
}
