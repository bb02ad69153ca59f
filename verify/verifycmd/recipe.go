package verifycmd

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	"deepswe/agent/cli"
	"deepswe/env/hub"
)

//go:embed recipes.yaml
var recipes []byte

// recipe is a published evaluation.
type recipe struct {
	Name  string `yaml:"name"`
	About string `yaml:"about"`
	// Flags are those of eval that it sets.
	Flags map[string]string `yaml:"flags"`
	// Prompt is the file of prompts, by its address and the digest of its content.
	Prompt struct {
		URL    string `yaml:"url"`
		SHA256 string `yaml:"sha256"`
	} `yaml:"prompt"`
	// Apart says what is not bundled, and what differs from the published evaluation.
	Apart []string `yaml:"apart"`
}

func readRecipes() ([]recipe, error) {
	var all []recipe
	d := yaml.NewDecoder(bytes.NewReader(recipes))
	d.KnownFields(true)
	return all, d.Decode(&all)
}

// follow sets the flags of the recipe that were not given, and says what it is.
func (e *evaluation) follow(ctx context.Context, flags *pflag.FlagSet) error {
	if e.o.recipe == "" || e.o.resume { // a resumed run has the flags that it began with
		return nil
	}
	r, err := findRecipe(e.o.recipe)
	if err != nil {
		return err
	}
	out := e.d.Err
	fmt.Fprintf(out, "recipe %s: %s\n", r.Name, r.About)
	for _, name := range slices.Sorted(maps.Keys(r.Flags)) {
		f, value := flags.Lookup(name), r.Flags[name]
		if f.Changed {
			fmt.Fprintf(out, "  --%s %s is yours; the recipe has %s\n", name, f.Value, value)
			continue
		}
		if err := flags.Set(name, value); err != nil {
			return err
		}
		fmt.Fprintf(out, "  --%s %s\n", name, value)
	}
	for _, text := range r.Apart {
		fmt.Fprintf(out, "  %s\n", text)
	}
	if f := flags.Lookup("prompt-pack"); f.Changed {
		_, err := hub.File{SHA256: r.Prompt.SHA256}.Verify(f.Value.String())
		if errors.Is(err, hub.ErrDigest) {
			fmt.Fprintf(out, "  --prompt-pack %s is yours; the recipe has %s\n", f.Value, r.Prompt.URL)
			err = nil
		}
		return cli.Usage(err)
	}
	path := filepath.Join(e.d.CacheDir("prompts"), r.promptFile())
	if err := r.fetchPrompt(ctx, path); err != nil {
		return fmt.Errorf("%w\nto fix: bring this file by hand, and name it with --prompt-pack", err)
	}
	fmt.Fprintf(out, "  --prompt-pack %s\n", r.Prompt.URL)
	return flags.Set("prompt-pack", path)
}

// restorePrompt fetches the prompts of a resumed run again if the cache that they were in was cleared.
func (e *evaluation) restorePrompt(ctx context.Context) error {
	if e.o.recipe == "" {
		return nil
	}
	r, err := findRecipe(e.o.recipe)
	if err != nil || filepath.Base(e.o.model.Pack) != r.promptFile() {
		return err
	}
	if err := r.fetchPrompt(ctx, e.o.model.Pack); err != nil {
		return fmt.Errorf("%w\nto fix: bring this file by hand, as %s", err, e.o.model.Pack)
	}
	return nil
}

func findRecipe(name string) (recipe, error) {
	all, err := readRecipes()
	if err != nil {
		return recipe{}, err
	}
	i := slices.IndexFunc(all, func(r recipe) bool { return r.Name == name })
	if i < 0 {
		var names []string
		for _, r := range all {
			names = append(names, r.Name)
		}
		return recipe{}, cli.Usagef("no recipe is named %q: there is %s", name, strings.Join(names, ", "))
	}
	return all[i], nil
}

// promptFile is the name of the prompts in the cache.
func (r recipe) promptFile() string { return r.Prompt.SHA256 + ".yaml" }

// fetchPrompt writes the prompts to path unless they are there already.
func (r recipe) fetchPrompt(ctx context.Context, path string) error {
	file := hub.File{URL: r.Prompt.URL, SHA256: r.Prompt.SHA256}
	if _, err := (&hub.Client{}).Fetch(ctx, file, path); err != nil {
		return cli.Usagef("the prompts of the checkpoint: %w", err)
	}
	return nil
}
