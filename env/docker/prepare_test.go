package docker

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"

	"deepswe/env"
)

// TestPrepare: the commands run once for many concurrent starts, and the image's own configuration is kept.
func TestPrepare(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	base := build(t, p, &container.Config{User: "7:8", Env: []string{"A=1"}, Cmd: []string{"/bin/sh"}, WorkingDir: "/"},
		"mkdir -p /testbed && chown 7 /testbed")
	spec := env.Spec{Image: base, Prepare: []string{"id -u > /who",
		"date +%s%N > /when; cat /proc/sys/kernel/random/uuid >> /when", "chmod 755 /testbed", "(sleep 1000 &)"}}
	var mu sync.Mutex
	when := map[string]bool{}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			s, err := p.Start(t.Context(), spec)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close(t.Context())
			if out := must(t, s, "cat /who; id -u; echo $A"); out != "0\n7\n1\n" {
				t.Errorf("printed %q", out)
			}
			mu.Lock()
			when[must(t, s, "cat /when")] = true
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(when) != 1 {
		t.Errorf("the commands ran %d times, want once", len(when))
	}
	img, err := p.daemons[0].images.get(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	key, err := prepareKey(img, env.Spec{Dir: "/testbed", Prepare: spec.Prepare})
	if err != nil {
		t.Fatal(err)
	}
	unpull(t, p, preparedImages+":"+key)
	found, err := p.daemons[0].cli.ImageInspect(t.Context(), preparedImages+":"+key)
	if err != nil {
		t.Fatal(err)
	}
	// Reaping keeps it until it has not been used for a long time.
	for _, old := range []bool{false, true} {
		left, err := p.Reap(t.Context(), env.ReapOptions{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		if reaped := strings.Contains(fmt.Sprint(left), key); reaped != old {
			t.Errorf("an old image: %v; it would be reaped: %v", old, reaped)
		}
		if err := p.daemons[0].images.own.records().update(func(all map[string]record) bool {
			r := all[found.ID]
			r.Used = r.Used.Add(-15 * 24 * time.Hour)
			all[found.ID] = r
			return true
		}); err != nil {
			t.Fatal(err)
		}
	}
	// An image without a record, because its maker was killed, gets one when it is used again.
	if err := p.daemons[0].images.own.records().update(func(all map[string]record) bool {
		delete(all, found.ID)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	p.daemons[0].images.own.touched = map[string]time.Time{}
	start(t, p, spec)
	all, err := p.daemons[0].images.own.records().read()
	if r := all[found.ID]; err != nil || r.Ref != preparedImages+":"+key || time.Since(r.Used) > time.Hour {
		t.Errorf("the record of the image is %+v, %v", r, err)
	}
	if c := found.Config; c.User != "7:8" || len(c.Cmd) != 1 || c.Labels[labelPrepared] != key {
		t.Errorf("the prepared image is configured as %+v", c)
	}
}

func TestPrepareFails(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	needImage(t, p, busybox)
	for _, copyIn := range []string{"", t.TempDir()} {
		_, err := p.Start(t.Context(), env.Spec{Image: busybox, CopyIn: copyIn,
			Prepare: []string{"true", "echo the reason >&2; exit 3"}})
		var failed *env.PrepareError
		if !errors.As(err, &failed) || failed.Step != 2 || failed.Result.ExitCode != 3 ||
			errors.Is(err, env.ErrInfrastructure) {
			t.Errorf("Start: %v, want a PrepareError for step 2, not of the infrastructure", err)
		} else if !strings.Contains(err.Error(), "the reason") {
			t.Errorf("the error does not give the reason: %v", err)
		}
	}
	found := ours(t, p.daemons[0], p.owner)
	if len(found[kindPrepare]) > 0 || len(found[kindSandbox]) > 0 {
		t.Errorf("failed preparations left containers: %v", found)
	}
}

func TestWarm(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{Warm: 2})
	needImage(t, p, busybox)
	spec := env.Spec{Image: busybox, Run: "r"}
	for range 3 {
		if err := p.Prefetch(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	warm := map[string]bool{}
	for _, c := range ours(t, p.daemons[0], p.owner)[kindSandbox] {
		warm[c.ID] = true
	}
	if len(warm) != 2 {
		t.Fatalf("%d sandboxes are warm, want 2", len(warm))
	}
	repository := write(t, map[string]string{"f": "x"})
	for i, c := range []struct {
		spec env.Spec
		warm bool
	}{
		{env.Spec{Image: busybox, Run: "r", Rollout: "task/1", Dir: "/elsewhere"}, false},
		{env.Spec{Image: busybox, Run: "r", Rollout: "task/2", Network: true}, false},
		{env.Spec{Image: busybox, Run: "r", Rollout: "task/3", CopyIn: repository}, false},
		{env.Spec{Image: busybox, Run: "r", Rollout: "task/4"}, true},
		{env.Spec{Image: busybox, Run: "r", Rollout: "task/5"}, true},
		{env.Spec{Image: busybox, Run: "r", Rollout: "task/6"}, false},
	} {
		s := start(t, p, c.spec)
		if warm[s.id] != c.warm {
			t.Errorf("start %d got a warm sandbox: %v, want %v", i, warm[s.id], c.warm)
		}
		must(t, s, "true")
	}
	names := ""
	for _, c := range ours(t, p.daemons[0], p.owner)[kindSandbox] {
		names += c.Names[0] + "\n"
	}
	if !strings.Contains(names, "/deepswe-task-4-") {
		t.Errorf("a warm sandbox does not carry its rollout's name:\n%s", names)
	}
	// A sandbox that died while it waited is not handed out.
	if err := p.Prefetch(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	for _, c := range ours(t, p.daemons[0], p.owner)[kindSandbox] {
		if strings.HasPrefix(c.Names[0], "/deepswe-r-") { // it waits: others have their rollout's name
			if err := p.daemons[0].remove(t.Context(), c.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	must(t, start(t, p, spec), "true")
	if err := p.Prefetch(t.Context(), env.Spec{Image: busybox, CopyIn: repository}); err != nil {
		t.Fatal(err)
	}
	if out := must(t, start(t, p, env.Spec{Image: busybox, CopyIn: repository}), "cat f"); out != "x" {
		t.Errorf("a warm sandbox got the repository as %q", out)
	}
}
