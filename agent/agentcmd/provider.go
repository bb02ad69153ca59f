package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"deepswe/env"
	"deepswe/env/docker"
	"deepswe/env/local"
)

// The words of --env.
const (
	envAuto   = "auto"
	envDocker = "docker"
	envBwrap  = "bwrap"
	envHost   = "host"
)

// checkProvider tells what is wrong with a choice without opening anything.
func checkProvider(c ProviderChoice) error {
	switch c.Env {
	case envAuto, "":
		return nil
	case envDocker:
		if c.Image == "" {
			return Usage(errors.New("--env docker needs an image to work in: say --image REF"))
		}
		return nil
	case envBwrap, envHost:
		if c.Image != "" {
			return Usage(fmt.Errorf("--env %s uses the host's own programs: it takes no --image", c.Env))
		}
		return nil
	}
	return Usage(fmt.Errorf("--env %q: choose auto, docker, bwrap or host", c.Env))
}

// OpenProvider opens the sandbox that the choice asks for. auto is docker where an image is known and a daemon answers,
// else bwrap; host, which isolates nothing, is only chosen by name, or for the demo.
func OpenProvider(ctx context.Context, log *slog.Logger, c ProviderChoice) (env.Provider, error) {
	if err := checkProvider(c); err != nil {
		return nil, err
	}
	switch c.Env {
	case envDocker:
		return openDocker(ctx, log, c)
	case envBwrap:
		return openLocal(ctx, log, local.NewBwrap)
	case envHost:
		return openLocal(ctx, log, local.NewHost)
	}
	return openAuto(ctx, log, c)
}

func openAuto(ctx context.Context, log *slog.Logger, c ProviderChoice) (env.Provider, error) {
	if c.Image != "" {
		return openDocker(ctx, log, c)
	}
	p, err := openLocal(ctx, log, local.NewBwrap)
	switch {
	case err == nil:
		return p, nil
	case c.Demo:
		return openLocal(ctx, log, local.NewHost)
	}
	return nil, &codeError{code: ExitSandbox, err: fmt.Errorf("%w\n"+
		"without bubblewrap there are two other choices: --image REF works in a container of that image (needs Docker), and "+
		"--env host works on a scratch copy with no isolation at all", err)}
}

func openDocker(ctx context.Context, log *slog.Logger, c ProviderChoice) (env.Provider, error) {
	p, err := docker.New(ctx, docker.Options{
		Hosts: c.Hosts, Warm: c.Warm, Log: log, Mirror: c.Mirror, ImageBudget: c.ImageBudget, Progress: c.Progress,
	})
	if err != nil {
		return nil, sandboxError(err)
	}
	return p, nil
}

// openLocal opens a provider of this machine, and removes what killed runs left of its kind: unlike Docker's, it does
// not do so by itself.
func openLocal[P env.Provider](ctx context.Context, log *slog.Logger, open func(local.Options) (P, error)) (env.Provider, error) {
	p, err := open(local.Options{Log: log})
	if err != nil {
		return nil, sandboxError(err)
	}
	if _, err := p.Reap(ctx, env.ReapOptions{}); err != nil && ctx.Err() == nil {
		log.Warn("what a killed run left could not be removed", "error", err)
	}
	return p, nil
}

func sandboxError(err error) error { return &codeError{code: ExitSandbox, err: err} }
