package verifycmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"deepswe/agent/agentcmd"
	"deepswe/env"
)

// sandboxOptions are the flags that say where containers run.
type sandboxOptions struct {
	env   string
	hosts []string
	warm  int

	images agentcmd.ImageOptions
}

func (o *sandboxOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.env, "env", "auto", "sandbox: auto or docker")
	f.StringArrayVar(&o.hosts, "docker-host", nil, "Docker daemon `ADDRESS`; may be given more than once")
	o.images.AddFlags(f)
}

// open opens the provider that the tasks need. progress is told how pulls and
// builds of images go.
func (o *sandboxOptions) open(ctx context.Context, d Deps, tasks []env.Task, progress func(env.Progress)) (env.Provider, error) {
	image := ""
	for _, t := range tasks {
		switch {
		case t.Image != "":
			image = t.Image
		case t.Dockerfile != "":
			image = t.Dockerfile
		default:
			return nil, agentcmd.Usage(fmt.Errorf("task %s names no image: its repository cannot be had", t.ID))
		}
	}
	config, err := agentcmd.LoadConfig(d.Getenv)
	if err != nil {
		return nil, err
	}
	choice := agentcmd.ProviderChoice{Env: o.env, Image: image, Hosts: o.hosts, Warm: o.warm, Progress: progress}
	if err := o.images.Complete(config, &choice); err != nil {
		return nil, err
	}
	p, err := d.Provider(ctx, choice)
	if err != nil {
		return nil, err
	}
	if !p.Capabilities().Images {
		return nil, errors.Join(p.Close(), agentcmd.Usage(fmt.Errorf("--env %s starts no images, and the tasks need theirs: use --env docker", p.Name())))
	}
	return p, nil
}
