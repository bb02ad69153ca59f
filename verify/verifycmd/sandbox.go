package verifycmd

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/pflag"

	"deepswe/agent/agentcmd"
	"deepswe/env"
	"deepswe/env/docker"
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

// open opens the provider that the tasks need. pull is told how pulls of images go.
func (o *sandboxOptions) open(ctx context.Context, d Deps, tasks []env.Task, pull func(docker.Pull)) (env.Provider, error) {
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
	choice := agentcmd.ProviderChoice{Env: o.env, Image: image, Hosts: o.hosts, Warm: o.warm, Pull: pull}
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

// builder is a provider that builds images. It keeps what it has built, and gives the same folder the same image.
type builder interface {
	Build(ctx context.Context, folder string) (image string, err error)
}

// images builds what tasks bring as a Dockerfile, each folder once.
type images struct {
	provider env.Provider

	mu     sync.Mutex
	folder map[string]*built
}

type built struct {
	mu    sync.Mutex
	image string // empty until it is built
}

// complete gives the task its image.
func (i *images) complete(ctx context.Context, t env.Task) (env.Task, error) {
	if t.Image != "" {
		return t, nil
	}
	b, ok := i.provider.(builder)
	if !ok {
		return t, fmt.Errorf("task %s: %w: the image in %s has to be built, which --env %s cannot do", t.ID, env.ErrUnsupported, t.Dockerfile, i.provider.Name())
	}
	i.mu.Lock()
	if i.folder == nil {
		i.folder = map[string]*built{}
	}
	known := i.folder[t.Dockerfile]
	if known == nil {
		known = &built{}
		i.folder[t.Dockerfile] = known
	}
	i.mu.Unlock()
	known.mu.Lock()
	defer known.mu.Unlock()
	if known.image == "" {
		var err error
		if known.image, err = b.Build(ctx, t.Dockerfile); err != nil {
			return t, fmt.Errorf("build the image of %s: %w", t.ID, err)
		}
	}
	t.Image = known.image
	return t, nil
}
