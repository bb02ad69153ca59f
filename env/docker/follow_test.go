//go:build linux

package docker

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"deepswe/env"
	"deepswe/env/fleet"
	"deepswe/env/testkit"
)

// A start that waits for a daemon which has died begins on another one as soon as the file names it. Once its last
// sandbox is closed, nothing of ours is left on a daemon that is no longer named.
func TestFollow(t *testing.T) {
	t.Parallel()
	usual := provider(t, Options{})
	needImage(t, usual, busybox)
	daemon := privateDaemon(t)
	file := filepath.Join(t.TempDir(), "hosts")
	name := func(host string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(host+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	name(daemon.host())
	opened, executable, state := make(chan *Provider, 2), testkit.Guest(t), t.TempDir()
	f, err := fleet.Follow(t.Context(), fleet.FollowOptions{
		File: file, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Every: 50 * time.Millisecond,
		Open: func(ctx context.Context, hosts []string) (env.Provider, error) {
			p, err := New(ctx, Options{Hosts: hosts, Executable: executable, State: state})
			if err != nil {
				return nil, err
			}
			opened <- hasty(p)
			return p, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	start := func() env.Sandbox {
		s, err := f.Start(t.Context(), env.Spec{Image: busybox})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before, first := <-opened, start()
	daemon.stop(syscall.SIGKILL)
	time.AfterFunc(time.Second, func() { name(usual.daemons[0].host) })
	second := start()
	after := <-opened
	if n := len(ours(t, after.daemons[0], after.owner)[kindSandbox]); n != 1 {
		t.Errorf("%d sandboxes are on the daemon that the file names", n)
	}
	daemon.start()
	for _, s := range []env.Sandbox{first, second} {
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	again := provider(t, Options{Hosts: []string{daemon.host()}})
	for kind, left := range ours(t, again.daemons[0], before.owner) {
		t.Errorf("%d of the kind %s are left on the daemon that is no longer named", len(left), kind)
	}
}
