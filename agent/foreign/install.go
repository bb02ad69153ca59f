package foreign

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"

	"deepswe/env"
	"deepswe/env/setup"
)

// Install installs the agent into the store, unless it is there, and returns the player. The installation runs in a
// sandbox of the provider, with network access.
func Install(
	ctx context.Context, p env.Provider, store setup.Store, r Recipe, progress func(env.SetupProgress),
) (*Player, error) {
	if len(r.Install) == 0 {
		return &Player{Recipe: r}, nil
	}
	v := values{"agent": Folder, "version": r.Version}
	how := env.Setup{Progress: progress}
	for _, line := range r.Install {
		how.Commands = append(how.Commands, v.fill(line))
	}
	hash := sha256.Sum256([]byte(strings.Join(how.Commands, "\x00")))
	key := filepath.Base(r.Name) + "-" + r.Version + "-" + hex.EncodeToString(hash[:6])
	kept, _, err := store.Get(ctx, key, func(dir string) (env.Installed, error) {
		how.Dir = dir
		shown := env.Spec{Shown: []env.Shown{{Host: dir, Path: Folder, Writable: true}}}
		return env.Installed{Dir: dir}, setup.Fill(ctx, p, shown, how)
	})
	if err != nil {
		return nil, fmt.Errorf("install %s: %w", r.Name, err)
	}
	return &Player{Recipe: r, Installed: kept.Dir}, nil
}
