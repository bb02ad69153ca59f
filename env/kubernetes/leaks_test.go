package kubernetes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"deepswe/env"
	"deepswe/env/testkit"
)

// child is another process with a provider. It prints its owner, starts sandboxes, and waits to be killed.
func child(scenario string) int {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("DEEPSWE_TEST_KUBECONFIG"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	p, err := New(context.Background(), Options{
		Namespaces: []string{namespace}, Executable: os.Getenv("DEEPSWE_TEST_GUEST"), config: config,
		Pods: Pods{PullPolicy: "Never", Requests: 0.01},
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(p.clusters[0].owner)
	var work sync.WaitGroup
	for range 3 {
		work.Go(func() {
			s, err := p.Start(context.Background(), env.Spec{Image: busybox, Run: scenario})
			if err == nil {
				_, err = s.Run(context.Background(), env.Command{Line: "sleep 1000"})
			}
			fmt.Println(err)
		})
	}
	work.Wait()
	return 1
}

// TestKilledHost kills hosts at random moments. The next provider's first start, together with Reap, removes what they
// left.
func TestKilledHost(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	owners := make([]string, 6)
	var hosts sync.WaitGroup
	for i := range owners {
		hosts.Go(func() { owners[i] = killedHost(t) })
	}
	hosts.Wait()
	if t.Failed() {
		return
	}
	start(t, p, env.Spec{Image: busybox})
	if _, err := p.Reap(t.Context(), env.ReapOptions{}); err != nil {
		t.Error(err)
	}
	c := p.clusters[0]
	i, err := c.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, thing := range i.Things {
		if slices.Contains(owners, thing.Owner) {
			t.Errorf("the %s %s of %s is left", thing.Leftover.Kind, thing.Leftover.ID, thing.Owner)
		}
	}
}

// killedHost starts a host, kills it within four seconds, and returns its owner.
func killedHost(t *testing.T) string {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "DEEPSWE_TEST_CHILD=killed", "DEEPSWE_TEST_GUEST="+testkit.Guest(t))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
		return ""
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return ""
	}
	who, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(who, ".") {
		t.Errorf("the child said %q, %v", who, err)
	}
	time.Sleep(rand.N(4 * time.Second))
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	return strings.TrimSpace(who)
}

// Two providers share a namespace, even under the same owner, as in copies of a virtual machine. Neither removes what
// belongs to the other, whether it starts, reaps or closes.
func TestTwoDrivers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"two owners", "one owner"} {
		one, two := provider(t, Options{}), provider(t, Options{})
		if name == "one owner" {
			two.clusters[0].owner = one.clusters[0].owner
		}
		first := start(t, one, env.Spec{Image: busybox, Run: "one"})
		second := start(t, two, env.Spec{Image: busybox, Run: "two"})
		lease := leaseName(one.clusters[0])
		if lease == leaseName(two.clusters[0]) {
			t.Errorf("%s: both have the lease %s", name, lease)
		}
		left, err := two.Reap(t.Context(), env.ReapOptions{DryRun: true})
		for _, l := range left {
			if err != nil || l.ID == first.launch.name || l.ID == lease {
				t.Errorf("%s: the second would remove %+v, %v", name, l, err)
			}
		}
		if _, err := two.Reap(t.Context(), env.ReapOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := errors.Join(second.Close(t.Context()), two.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := one.clusters[0].lease.renew(t.Context()); err != nil || leaseName(one.clusters[0]) != lease {
			t.Errorf("%s: the first has lost its lease: %v", name, err)
		}
		if out := must(t, first, "echo lives"); out != "lives\n" {
			t.Errorf("%s: %q", name, out)
		}
	}
}

// leaseName returns the name of a provider's lease, or "" if it has none.
func leaseName(c *cluster) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lease.current.Load() == nil {
		return ""
	}
	return c.lease.current.Load().Metadata.Name
}

// A renewed lease shows that its owner is alive. When a lease is deleted, the cluster removes its pods.
func TestLeases(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	c := p.clusters[0]
	s := start(t, p, env.Spec{Image: busybox})
	if err := c.lease.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	i, err := c.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, thing := range i.Things {
		if thing.Lease && thing.Leftover.ID == leaseName(c) && i.Now.Sub(thing.Seen) > time.Minute {
			t.Errorf("a lease was last renewed at %v, and it is %v", thing.Seen, i.Now)
		}
	}
	// The lease is the owner of the pods.
	if err := c.deleteLease(t.Context(), leaseName(c)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); s.Ping(t.Context()) == nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a pod without a lease is left")
		}
	}
}

// TestOriginal: original files come from another pod, which all sandboxes of an image share.
func TestOriginal(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	spec := env.Spec{Image: busybox, Prepare: []string{"echo before > f; ln -s f l; mkdir d"}}
	one, two := start(t, p, spec), start(t, p, spec)
	for _, s := range []*Sandbox{one, two} {
		must(t, s, "echo after > f; rm -r l d")
		for name, want := range map[string]string{"f": "before\n", "l": "f"} {
			if got, err := s.Original(t.Context(), name); err != nil || string(got) != want {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		for _, name := range []string{"none", "d", "f/x", "../etc/passwd"} {
			if got, err := s.Original(t.Context(), name); err == nil {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
	pods, _, err := p.clusters[0].listPods(t.Context(), labelKind+"="+kindOriginal+","+labelOwner+"="+p.clusters[0].owner)
	if err != nil || len(pods) != 1 {
		t.Errorf("%d pods for original files, %v", len(pods), err)
	}
}

// TestGuestImageLacking: if the guest image has no guest, the start fails and says why.
func TestGuestImageLacking(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{Pods: Pods{GuestImage: busybox}})
	_, err := p.Start(t.Context(), env.Spec{Image: busybox})
	if err == nil || !strings.Contains(err.Error(), "/deepswe") {
		t.Errorf("a guest image without a guest: %v", err)
	}
}
