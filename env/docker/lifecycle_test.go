package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"deepswe/env"
	"deepswe/env/fleet"
	"deepswe/env/program"
	"deepswe/env/testkit"
)

// TestDeath: the error of a call says how its container ended.
func TestDeath(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	s := start(t, p, env.Spec{Image: busybox})
	if _, err := s.d.cli.ContainerKill(t.Context(), s.id, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	_, err := s.Run(t.Context(), env.Command{Line: "true"})
	if !errors.Is(err, env.ErrInfrastructure) || !strings.Contains(err.Error(), "exit code 137") {
		t.Errorf("Run in a killed container: %v, want env.ErrInfrastructure with exit code 137", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("Close of a killed container: %v", err)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	s := start(t, p, env.Spec{Image: busybox, Run: "a run", Rollout: "a/rollout"})
	d := p.daemons[0]
	found := ours(t, d, p.owner)[kindSandbox]
	if len(found) != 1 || found[0].Labels[labelRun] != "a run" || found[0].Labels[labelRollout] != "a/rollout" ||
		found[0].Labels[labelCreated] == "" {
		t.Errorf("the sandbox is labelled as %v", found)
	}
	must(t, s, "trap '' TERM; sleep 1000 & sleep 1000 & true")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := s.Close(cancelled); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	wg.Wait()
	if found := ours(t, d, p.owner)[kindSandbox]; len(found) > 0 {
		t.Errorf("closed, and still there: %v", found)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, env.ErrInfrastructure) {
		t.Errorf("Ping after Close: %v, want env.ErrInfrastructure", err)
	}
}

// TestCancelledStarts gives up on starts at different moments. Nothing may be left of them.
func TestCancelledStarts(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	start(t, p, env.Spec{Image: busybox}) // so that the guest is installed
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*25*time.Millisecond)
			defer cancel()
			s, err := p.Start(ctx, env.Spec{Image: busybox})
			if err == nil {
				err = s.Close(t.Context())
			} else if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, env.ErrInfrastructure) {
				err = nil
			}
			if err != nil {
				t.Errorf("start %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	testkit.Eventually(t, "nothing is left of cancelled starts", func() bool {
		return len(ours(t, p.daemons[0], p.owner)[kindSandbox]) == 1
	})
}

// TestReapJudges reaps a daemon with containers of owners of every kind. Only those of dead owners are removed.
func TestReapJudges(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	mine := start(t, p, env.Spec{Image: busybox})
	d := p.daemons[0]
	leave := func(owner, kind string) string {
		t.Helper()
		labels := p.labels(kind, "old run", "")
		labels[labelOwner] = owner
		id, err := d.create(t.Context(), client.ContainerCreateOptions{Config: &container.Config{Image: busybox,
			Cmd: []string{"x"}, Labels: labels}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.remove(context.WithoutCancel(t.Context()), id) })
		return id
	}
	exists := func(id string) bool {
		_, err := d.cli.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
		return err == nil
	}
	self := fleet.This()
	gone, reborn := self, self
	gone.PID, reborn.Start = 1<<22+1, 10*self.Start
	silent, talking := "far-"+fleet.Nonce()+"/12/34", "far-"+fleet.Nonce()+"/12/34"
	dead := []string{leave(gone.String(), kindSandbox), leave(reborn.String(), kindPrepare), leave(silent, kindSandbox),
		leave(silent, kindLease)}
	living := []string{mine.id, leave(talking, kindSandbox)}
	lease := leave(talking, kindLease)
	living = append(living, lease)
	makeDir(t, d, lease, leaseDir)
	for _, dry := range []bool{true, false} {
		left, err := fleet.Reaper{Place: later{d, lease}, Self: p.owner}.Reap(t.Context(), env.ReapOptions{DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, l := range left {
			got[l.ID] = l.Kind == "container" && l.Run == "old run" && l.Provider == "docker"
		}
		for _, id := range dead {
			// Another process may have reaped it in the meantime.
			if !got[id[:12]] && exists(id) {
				t.Errorf("dry run %v: a dead owner's container was not reaped: %v", dry, left)
			}
		}
		for _, id := range living {
			if _, there := got[id[:12]]; there {
				t.Errorf("dry run %v: a living owner's container was reaped: %v", dry, left)
			}
		}
	}
	for _, id := range dead {
		if exists(id) {
			t.Errorf("%s was reported and not removed", id[:12])
		}
	}
	must(t, mine, "true")
}

// later is the daemon ten minutes later, after the owner on another machine has renewed its lease.
type later struct {
	*daemon
	lease string
}

func (l later) Inventory(ctx context.Context) (fleet.Inventory, error) {
	now, err := l.now(ctx)
	if err == nil {
		err = l.installer.touch(ctx, l.lease, now.Add(10*time.Minute))
	}
	if err != nil {
		return fleet.Inventory{}, err
	}
	found, err := l.daemon.Inventory(ctx)
	found.Now = found.Now.Add(10 * time.Minute)
	return found, err
}

func makeDir(t *testing.T, d *daemon, id, dir string) {
	t.Helper()
	if _, err := d.copyIn(t.Context(), &Sandbox{id: id, spec: env.Spec{Dir: dir}}); err != nil {
		t.Fatal(err)
	}
}

// TestVolumeIsShared: many providers that start at the same time fill the guest's volume once.
func TestVolumeIsShared(t *testing.T) {
	t.Parallel()
	needImage(t, provider(t, Options{}), busybox)
	// This guest differs from all others, so that its volume does not exist yet.
	data, err := os.ReadFile(testkit.Guest(t))
	if err != nil {
		t.Fatal(err)
	}
	guest := filepath.Join(t.TempDir(), "guest")
	if err := os.WriteFile(guest, append(data, fleet.Nonce()...), 0o755); err != nil {
		t.Fatal(err)
	}
	var providers []*Provider
	for range 4 {
		providers = append(providers, provider(t, Options{Executable: guest}))
	}
	var wg sync.WaitGroup
	for _, p := range providers {
		wg.Go(func() {
			s, err := p.Start(t.Context(), env.Spec{Image: busybox})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, p := range providers[1:] {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	// The volume stays while the last provider is open, and is removed afterwards.
	binary, err := program.Open(guest, providers[0].daemons[0].facts.arch)
	if err != nil {
		t.Fatal(err)
	}
	volume := guestVolumes + binary.Hash[:16]
	reaper := provider(t, Options{})
	for _, want := range []bool{false, true} {
		if _, err := reaper.Reap(t.Context(), env.ReapOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err := reaper.daemons[0].cli.VolumeInspect(t.Context(), volume, client.VolumeInspectOptions{})
		if reaped := errdefs.IsNotFound(err); reaped != want {
			t.Errorf("the volume was reaped: %v, want %v (%v)", reaped, want, err)
		}
		if err := providers[0].Close(); err != nil {
			t.Error(err)
		}
	}
}
