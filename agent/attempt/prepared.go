package attempt

import (
	"context"
	"path"
	"sync"

	"deepswe/env"
)

// prepared is the origin of a repository that neither an image nor the host has, because the task's own preparation
// makes it: another sandbox, prepared alike, which the agent never sees. It is started when the first file is asked
// for, because providers of such sandboxes have room for any number, and not every attempt changes a file.
type prepared struct {
	provider env.Provider
	spec     env.Spec

	mu sync.Mutex // files are read several at once
	sb env.Sandbox
}

// Original implements env.Origin.
func (p *prepared) Original(ctx context.Context, name string) ([]byte, error) {
	sb, err := p.start(ctx)
	if err != nil {
		return nil, err
	}
	data, _, err := sb.Read(ctx, path.Join(sb.Dir(), name), env.ReadOptions{NoFollow: true})
	return data, err
}

func (p *prepared) start(ctx context.Context) (env.Sandbox, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sb != nil {
		return p.sb, nil
	}
	sb, err := p.provider.Start(ctx, p.spec)
	if err == nil {
		p.sb = sb
	}
	return sb, err
}

func (p *prepared) close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sb == nil {
		return nil
	}
	return p.sb.Close(ctx)
}
