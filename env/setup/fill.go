package setup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"deepswe/env"
)

// Fill runs a set-up in a sandbox of the spec, whose commands fill the set-up's directory on this machine. The spec
// shows it as writable.
func Fill(ctx context.Context, p env.Provider, s env.Spec, how env.Setup) error {
	if err := os.Chmod(how.Dir, 0o777); err != nil { // commands run as a user of their own
		return err
	}
	sb, err := p.Start(ctx, s)
	if err != nil {
		return err
	}
	inside, ok := sb.(Sandbox)
	trusting := Trusting(Certificates())
	switch {
	case !ok:
		err = env.ErrUnsupported
	case s.Image != "": // it lacks this machine's files
		trusting, err = Trust(ctx, sb)
	}
	if err == nil {
		how.Env = append(trusting, how.Env...)
		err = Run(ctx, inside, how, false)
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
