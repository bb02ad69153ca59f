package attempt

import (
	"context"
	"path"

	"deepswe/env"
)

// twin is the origin of a repository that neither an image nor the host has, because the task's own preparation makes
// it: another sandbox, prepared alike, which the agent never sees. It is started when the first file is asked for.
type twin struct {
	provider env.Provider
	spec     env.Spec
	sb       env.Sandbox
}

// Original implements env.Origin.
func (t *twin) Original(ctx context.Context, name string) ([]byte, error) {
	if t.sb == nil {
		sb, err := t.provider.Start(ctx, t.spec)
		if err != nil {
			return nil, err
		}
		t.sb = sb
	}
	data, _, err := t.sb.Read(ctx, path.Join(t.sb.Dir(), name), env.ReadOptions{NoFollow: true})
	return data, err
}

func (t *twin) close(ctx context.Context) error {
	if t.sb == nil {
		return nil
	}
	return t.sb.Close(ctx)
}
