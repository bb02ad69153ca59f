package agentcmd

import (
	"fmt"

	"github.com/docker/go-units"
	"github.com/spf13/pflag"

	"deepswe/env"
)

// ImageOptions are the flags that say where container images come from, and how much room they may take.
type ImageOptions struct {
	Mirror string
	Budget string
}

// AddFlags adds the flags to a command's.
func (o *ImageOptions) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Mirror, "registry-mirror", "", "registry `HOST` that is asked for Docker Hub's images first")
	f.StringVar(&o.Budget, "image-budget", "", "keep all images within `SIZE` (200GB): the task images unused for longest go")
}

// Complete completes a choice with the flags, or with the user's configuration where they are not given.
func (o ImageOptions) Complete(c Config, choice *ProviderChoice) error {
	choice.Mirror = first(o.Mirror, c.RegistryMirror)
	budget, from := o.Budget, "--image-budget"
	if budget == "" {
		budget, from = c.ImageBudget, "image_budget of the configuration"
	}
	if budget == "" {
		return nil
	}
	size, err := units.FromHumanSize(budget)
	if err != nil || size <= 0 {
		return Usage(fmt.Errorf("%s: %q is no size: say 200GB, or 1.5TB", from, budget))
	}
	choice.ImageBudget = size
	return nil
}

// Pulling says how far the pull or the build of an image has come.
func Pulling(p env.Progress) string {
	switch {
	case p.Action == env.Building && p.Done:
		return "built the image of " + p.Image
	case p.Action == env.Building:
		return "building the image of " + p.Image
	case p.Done && p.Total == 0:
		return "pulled " + p.Image // all of its layers were there
	case p.Done:
		return fmt.Sprintf("pulled %s, %s", p.Image, units.HumanSize(float64(p.Total)))
	case p.Total > 0:
		return fmt.Sprintf("pulling %s, %s of %s", p.Image, units.HumanSize(float64(p.Bytes)), units.HumanSize(float64(p.Total)))
	}
	return "pulling " + p.Image
}
