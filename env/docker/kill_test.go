package docker

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"deepswe/env"
	"deepswe/env/fleet"
	"deepswe/env/testkit"
)

// child is what the test binary does when a test runs it as another process.
func child(scenario string) int {
	switch scenario {
	case "churn":
		return churn()
	case "dial-stdio":
		return dialStdio()
	}
	fmt.Fprintln(os.Stderr, "unknown scenario", scenario)
	return 2
}

// churn starts sandboxes of every kind, uses them and removes them, several at a time, until it is killed.
func churn() int {
	ctx := context.Background()
	p, err := New(ctx, Options{
		Executable: os.Getenv("DEEPSWE_TEST_GUEST"), State: os.Getenv("DEEPSWE_TEST_STATE"), Warm: 1,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	specs := []env.Spec{
		{Image: busybox},
		{Image: busybox, CopyIn: os.Getenv("DEEPSWE_TEST_STATE"), Prepare: []string{"ls >/dev/null"}},
		{Image: busybox, Prepare: ownPreparation(os.Getpid())},
	}
	fmt.Println(p.owner)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for round := 0; ; round++ {
				spec := specs[(i+round)%len(specs)]
				spec.Run, spec.Rollout = "child", fmt.Sprint(i, "/", round)
				if i == 3 {
					_ = p.Prefetch(ctx, spec)
				}
				fmt.Println("start")
				s, err := p.Start(ctx, spec)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					continue
				}
				fmt.Println("run")
				_, _ = s.Run(ctx, env.Command{Line: "sleep 1000 & echo started"})
				_, _ = s.Original(ctx, "nothing")
				fmt.Println("close")
				_ = s.Close(ctx)
			}
		})
	}
	wg.Wait()
	return 0
}

// ownPreparation differs for each child, so that each makes an image of its own.
func ownPreparation(pid int) []string { return []string{fmt.Sprintf("echo %d > /prepared", pid)} }

// dialStdio is what "docker system dial-stdio" does on the far side of ssh.
func dialStdio() int {
	conn, err := net.Dial("unix", "/var/run/docker.sock")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		io.Copy(conn, os.Stdin)
		conn.(*net.UnixConn).CloseWrite()
	}()
	io.Copy(os.Stdout, conn)
	return 0
}

// TestKilledHost kills a process like this one at random moments. Reaping must then remove everything that it left on
// the daemon, and must not affect another process on the same daemon.
func TestKilledHost(t *testing.T) {
	t.Parallel()
	neighbour := provider(t, Options{})
	s := start(t, neighbour, env.Spec{Image: busybox, Run: "neighbour"})
	must(t, s, "echo still here > /tmp/mark")
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	if n := os.Getenv("DEEPSWE_TEST_KILLS"); n != "" {
		fmt.Sscan(n, &rounds)
	}
	state := t.TempDir()
	for i := range rounds {
		reapDead(t, neighbour, killAtRandom(t, neighbour, state))
		if out := must(t, s, "cat /tmp/mark"); out != "still here\n" {
			t.Fatalf("round %d: the other process's sandbox lost its file: %q", i, out)
		}
	}
	again := start(t, neighbour, env.Spec{Image: busybox})
	must(t, again, "true")
	removePrepared(t, neighbour, state)
}

// reapDead reaps what a killed owner left. A busy daemon may still carry out a request after its client has died. What
// that creates is removed by the next reaping.
func reapDead(t *testing.T, p *Provider, owner string) {
	t.Helper()
	testkit.Eventually(t, "nothing is left of "+owner, func() bool {
		before := ours(t, p.daemons[0], owner)
		if _, err := p.Reap(t.Context(), env.ReapOptions{}); err != nil {
			t.Fatalf("Reap: %v", err)
		}
		after := ours(t, p.daemons[0], owner)
		for kind, left := range after {
			for _, c := range left {
				if slices.ContainsFunc(before[kind], func(b container.Summary) bool { return b.ID == c.ID }) {
					t.Errorf("a %s container was not reaped: %s, %s", kind, c.Names, c.Status)
				}
			}
		}
		return len(after) == 0
	})
}

// killAtRandom runs a child, kills it, and returns its owner. The image that it may have made is removed with the test,
// even if the child was killed before it recorded the image.
func killAtRandom(t *testing.T, p *Provider, state string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(),
		"DEEPSWE_TEST_CHILD=churn", "DEEPSWE_TEST_GUEST="+testkit.Guest(t), "DEEPSWE_TEST_STATE="+state)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	base, err := p.daemons[0].images.get(t.Context(), busybox)
	if err != nil {
		t.Fatal(err)
	}
	key, err := prepareKey(base, env.Spec{Dir: "/testbed", Prepare: ownPreparation(cmd.Process.Pid)})
	if err != nil {
		t.Fatal(err)
	}
	unpull(t, p, preparedImages+":"+key)
	var owner string
	if _, err := fmt.Fscanln(out, &owner); err != nil {
		t.Fatalf("the child did not begin: %v\n%s", err, complaints.String())
	}
	// The child prints a line before each step, so this is a moment in one of its first steps, or a later one.
	for range rand.N(30) {
		var step string
		if _, err := fmt.Fscanln(out, &step); err != nil {
			t.Fatalf("the child ended: %v\n%s", err, complaints.String())
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if complaints.Len() > 0 {
		t.Errorf("the child complained before it was killed:\n%s", complaints.String())
	}
	return owner
}

// removePrepared removes the images that were prepared with this state directory.
func removePrepared(t *testing.T, p *Provider, state string) {
	t.Helper()
	d := p.daemons[0]
	facts, _ := d.known()
	err := records{filepath.Join(state,
		"docker-images-"+fleet.ShortHash(facts.ID)+".json")}.update(func(all map[string]record) bool {
		for _, r := range all {
			_, err := d.cli.ImageRemove(context.WithoutCancel(t.Context()), r.Ref, client.ImageRemoveOptions{})
			if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) { // another test run also uses it
				t.Errorf("removing %s: %v", r.Ref, err)
			}
		}
		clear(all)
		return true
	})
	if err != nil {
		t.Error(err)
	}
}

// TestSSH reaches the daemon through a program called ssh, which here connects to the local daemon.
func TestSSH(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\necho \"$@\" > " + dir + "/args\nDEEPSWE_TEST_CHILD=dial-stdio exec " + self + "\n"
	if err := os.WriteFile(filepath.Join(dir, "ssh"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	p := provider(t, Options{Hosts: []string{"ssh://me@far.example:2222"}})
	s := start(t, p, env.Spec{Image: busybox})
	if out := must(t, s, "echo over ssh"); out != "over ssh\n" {
		t.Errorf("printed %q", out)
	}
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "-l me -p 2222 -- far.example docker system dial-stdio\n"; !strings.HasSuffix(string(args), want) {
		t.Errorf("ssh was run with %s, want it to end in %s", args, want)
	}
}
