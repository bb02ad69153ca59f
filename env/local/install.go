//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/setup"
)

var (
	_ env.Installer = (*Bwrap)(nil)
	_ env.Installer = (*Host)(nil)
)

// kept returns the directory with the result of a set-up for the sandboxes of a Spec.
func kept(s env.Spec) string {
	if s.Installed == nil {
		return ""
	}
	return s.Installed.Dir
}

// Install implements env.Installer.
func (b *Bwrap) Install(ctx context.Context, s env.Spec, how env.Setup) (env.Installed, error) {
	return install(ctx, s, how, false, b.start)
}

// Install implements env.Installer. Nothing keeps the commands from the machine and its network.
func (h *Host) Install(ctx context.Context, s env.Spec, how env.Setup) (env.Installed, error) {
	return install(ctx, s, how, true, h.start)
}

// install runs a set-up in a sandbox whose layers are kept.
func install(
	ctx context.Context, s env.Spec, how env.Setup, open bool,
	start func(ctx context.Context, s env.Spec, keep string) (env.Sandbox, error),
) (env.Installed, error) {
	if s.Checkout == nil {
		return env.Installed{}, fmt.Errorf("set up: %w: it requires a sandbox that shows the repository in place",
			env.ErrUnsupported)
	}
	s.Network, s.Installed = false, nil
	s.Env = append(setup.Trusting(setup.Certificates()), s.Env...)
	sandbox, err := start(ctx, s, how.Dir)
	if err != nil {
		return env.Installed{}, err
	}
	err = setup.Run(ctx, sandbox.(*env.GuestSandbox), how, open)
	if err := errors.Join(err, sandbox.Close(context.WithoutCancel(ctx))); err != nil {
		return env.Installed{}, err
	}
	done := env.Installed{Dir: how.Dir}
	layers, err := os.ReadDir(how.Dir)
	for _, l := range layers {
		if strings.HasSuffix(l.Name(), workSuffix) {
			err = errors.Join(err, disk.RemoveScratch(filepath.Join(how.Dir, l.Name())))
		}
	}
	if err == nil {
		layer := filepath.Join(how.Dir, "repo")
		done.Added, done.Restored, err = setup.Sift(layer, s.Checkout.Root, how.Aside, s.Checkout.Hidden)
	}
	if err == nil && os.Geteuid() == 0 {
		err = giveTo(how.Dir, s.Checkout.Root)
	}
	if err != nil {
		return env.Installed{}, fmt.Errorf("keep what the set-up has installed: %w", err)
	}
	return done, nil
}

// giveTo makes another directory's owner the owner of everything below dir, because sandboxes show that owner's files
// as the command user's.
func giveTo(dir, owner string) error {
	var stat syscall.Stat_t
	if err := syscall.Stat(owner, &stat); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		return os.Lchown(path, int(stat.Uid), int(stat.Gid))
	})
}
