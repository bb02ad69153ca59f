package kubernetes

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/env"
	"deepswe/env/testkit"
)

// Where the namespace forbids removing the interface, a policy must close the network. A start is refused while the
// network is open, and succeeds when it is closed. The cluster's plugin enforces no policies, so a firewall rule takes
// the place of one: some plugins drop packets, others refuse them. It also closes the network of other tests, none of
// which uses it.
func TestNetworkByPolicy(t *testing.T) {
	t.Parallel()
	l := theLab(t)
	for _, c := range []struct {
		level string
		rules []string
	}{
		{"baseline", []string{"-j DROP"}},
		{"restricted", []string{"-j REJECT"}},
		{"restricted", []string{"-p tcp -j REJECT --reject-with tcp-reset", "-p udp -j DROP"}},
	} {
		level := c.level
		ns := l.namespace(map[string]string{"pod-security.kubernetes.io/enforce": level})
		p := l.provider(ns, Pods{})
		repository := t.TempDir()
		if err := os.WriteFile(repository+"/f", []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		spec := env.Spec{
			Image: bookworm, CopyIn: repository, Shown: []env.Shown{{Host: repository, Path: "/opt/deepswe/agent"}},
		}
		s, err := p.Start(t.Context(), spec)
		if err == nil {
			_ = s.Close(t.Context())
		}
		if !errors.Is(err, env.ErrUnsupported) || !strings.Contains(err.Error(), "answers") {
			t.Fatalf("%s, without a policy: %v", level, err)
		}
		if _, err := p.Start(t.Context(), spec); !errors.Is(err, env.ErrUnsupported) {
			t.Errorf("%s, again: %v", level, err)
		}
		open := firewall(t, c.rules)
		closed := l.provider(ns, Pods{})
		sandbox, err := closed.Start(t.Context(), spec)
		if err != nil {
			t.Errorf("%s, with %q: %v", level, c.rules, err)
		} else {
			if out := must(t, sandbox, "cat f /opt/*/agent/f; touch new; id -u"); out != "xx1000\n" {
				t.Errorf("%s: %q", level, out)
			}
			if err := sandbox.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		// A sandbox that may have a network needs no policy.
		open()
		networked, err := l.provider(ns, Pods{}).Start(t.Context(), env.Spec{Image: busybox, Network: true})
		if err != nil {
			t.Errorf("%s, with a network: %v", level, err)
		} else if err := networked.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// firewall cuts the pods off from the network by rules of iptables. The function that it returns reconnects them.
func firewall(t *testing.T, rules []string) (open func()) {
	t.Helper()
	const pods = "198.18.128.0/17"
	each := func(verb string) {
		for _, chain := range []string{"INPUT", "FORWARD"} {
			for _, rule := range rules {
				c := exec.Command("iptables", append([]string{"-w", verb, chain, "-s", pods}, strings.Fields(rule)...)...)
				if out, err := c.CombinedOutput(); err != nil {
					t.Errorf("iptables: %v: %s", err, out)
				}
			}
		}
	}
	each("-I")
	done := false
	open = func() {
		if !done {
			done = true
			each("-D")
		}
	}
	t.Cleanup(open)
	return open
}

// The policy of docs/kubernetes closes the network in a cluster that enforces it, with kube-router's controller, which
// is also the one of K3s. It refuses connections, which a sandbox tells from an answer.
func TestNetworkPolicyOfKubeRouter(t *testing.T) {
	l := theLab(t)
	if !l.EnforcePolicies(t) {
		testkit.Skip(t, "kube-router", "DEEPSWE_TEST_KUBEROUTER names no program of kube-router; `go install` makes one")
	}
	ns := l.namespace(map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	const kubelet = "198.18.0.1/20250" // a pod without a policy can reach it
	repository := t.TempDir()
	testkit.WriteFile(t, filepath.Join(repository, "f"), "x")
	spec := env.Spec{Image: bookworm, CopyIn: repository}
	if _, err := l.provider(ns, Pods{}).Start(t.Context(), spec); !errors.Is(err, env.ErrUnsupported) {
		t.Fatalf("without a policy: %v", err)
	}
	l.Kubectl(t, "", "-n", ns, "apply", "-f", "../../docs/kubernetes/networkpolicy.yaml")
	p := l.provider(ns, Pods{})
	for range 5 { // the controller learns of each pod after its start
		s, err := p.Start(t.Context(), spec)
		if err != nil {
			t.Fatalf("with the policy: %v", err)
		}
		if out := must(t, s, "cat f; (: </dev/tcp/"+kubelet+") 2>/dev/null || echo closed"); out != "xclosed\n" {
			t.Errorf("in the sandbox: %q", out)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	networked, err := p.Start(t.Context(), env.Spec{Image: bookworm, CopyIn: repository, Network: true})
	if err != nil {
		t.Fatalf("with a network: %v", err)
	}
	if out := must(t, networked, ": </dev/tcp/"+kubelet+" && echo open"); out != "open\n" {
		t.Errorf("with a network: %q", out)
	}
	if err := networked.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
