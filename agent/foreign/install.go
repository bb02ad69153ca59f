package foreign

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"deepswe/env"
	"deepswe/env/setup"
)

// Install installs the agent into the store, unless it is there, and returns the player. It runs in a sandbox of the
// provider, which has the network for that alone.
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
		return env.Installed{Dir: dir}, fill(ctx, p, how)
	})
	if err != nil {
		return nil, fmt.Errorf("install %s: %w", r.Name, err)
	}
	return &Player{Recipe: r, Installed: kept.Dir}, nil
}

// fill runs the commands in a sandbox that shows the directory as [Folder].
func fill(ctx context.Context, p env.Provider, how env.Setup) error {
	if err := os.Chmod(how.Dir, 0o777); err != nil { // commands run as a user of their own
		return err
	}
	sb, err := p.Start(ctx, env.Spec{
		Shown: []env.Shown{{Host: how.Dir, Path: Folder, Writable: true}}, Env: setup.Trusting(setup.Certificates()),
	})
	if err != nil {
		return err
	}
	inside, ok := sb.(setup.Sandbox)
	if !ok {
		err = env.ErrUnsupported
	} else {
		err = setup.Run(ctx, inside, how, false)
	}
	if err := errors.Join(err, sb.Close(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	return keep(how.Dir)
}

// keep makes what was installed this user's, and readable for the users of sandboxes.
func keep(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := os.Lchown(path, os.Getuid(), os.Getgid()); err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm()&^0o022 | 0o444
		if d.IsDir() || mode&0o100 != 0 {
			mode |= 0o111
		}
		return os.Chmod(path, mode)
	})
}
