package kubernetes

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"deepswe/env"
	"deepswe/env/testkit"
)

// What a pod's status says about its end, or about what keeps it from starting.
func TestTrouble(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status string
		is     error // nil: the pod is well
		says   string
	}{
		"running": {status: `{"phase": "Running", "containerStatuses": [{"name": "sandbox", "state": {"running": {}}}]}`},
		"an injected init container is done": {status: `{"phase": "Pending", "initContainerStatuses": [
			{"name": "istio-init", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}`},
		"an injected sidecar has ended": {status: `{"phase": "Running", "containerStatuses": [
			{"name": "proxy", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}},
			{"name": "sandbox", "state": {"running": {}}}]}`},
		"an injected init container fails": {is: env.ErrInfrastructure, says: "the container setup, which the cluster has added, " +
			"ended with exit code 3: no certificate", status: `{"phase": "Failed", "initContainerStatuses": [
			{"name": "setup", "state": {"terminated": {"exitCode": 3, "reason": "Error", "message": "no certificate"}}}]}`},
		"the node's runtime has failed": {is: env.ErrInfrastructure, says: "without a message", status: `{"phase": "Failed",
			"containerStatuses": [{"name": "sandbox", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}`},
		"the guest's image cannot be pulled": {is: env.ErrNoImage, says: "the image guest:1 cannot", status: `{"phase": "Pending",
			"initContainerStatuses": [{"name": "guest", "state": {"waiting":
			{"reason": "ErrImagePull", "message": "guest:1: not found"}}}]}`},
		"a sidecar's image cannot be pulled": {is: env.ErrNoImage, says: "the image proxy:1 cannot", status: `{"phase": "Pending",
			"containerStatuses": [{"name": "proxy", "state": {"waiting":
			{"reason": "ErrImagePull", "message": "proxy:1: not found"}}}]}`},
		"out of memory": {is: env.ErrExhausted, says: "memory", status: `{"phase": "Failed", "containerStatuses": [
			{"name": "sandbox", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}`},
		"its own disk": {is: env.ErrExhausted, says: "disk", status: `{"phase": "Failed", "reason": "Evicted",
			"message": "Pod ephemeral local storage usage exceeds the total limit of containers 64Mi."}`},
		"the node's disk": {is: env.ErrInfrastructure, says: "evicted", status: `{"phase": "Failed", "reason": "Evicted",
			"message": "The node was low on resource: ephemeral-storage."}`},
		"preempted": {is: env.ErrInfrastructure, says: "higher priority", status: `{"phase": "Failed", "conditions": [
			{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}`},
		"another architecture": {is: env.ErrUnsupported, says: "another architecture", status: `{"phase": "Pending",
			"containerStatuses": [{"name": "sandbox", "state": {"waiting":
			{"reason": "CreateContainerError", "message": "exec format error"}}}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &pod{Metadata: metadata{Name: "p"}, Spec: podSpec{
				InitContainers: []container{{Name: "guest", Image: "guest:1"}},
				Containers:     []container{{Name: "proxy", Image: "proxy:1"}, {Name: "sandbox", Image: "task:1"}},
			}}
			if err := json.Unmarshal([]byte(c.status), &p.Status); err != nil {
				t.Fatal(err)
			}
			err := new(impediments).watch(p, newCluster("c", "n"))
			if !errors.Is(err, c.is) || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v that says %q", err, c.is, c.says)
			}
		})
	}
}

// The contexts come from all the files of KUBECONFIG.
func TestSeveralConfigurations(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string {
		return testkit.WriteFile(t, filepath.Join(dir, name), strings.ReplaceAll(`{apiVersion: v1, kind: Config,
			clusters: [{name: X, cluster: {server: "https://X.example:6443"}}], users: [{name: X, user: {token: t}}],
			contexts: [{name: X, context: {cluster: X, user: X, namespace: of-X}}]}`, "X", name))
	}
	t.Setenv("KUBECONFIG", strings.Join([]string{file("one"), filepath.Join(dir, "missing"), file("two")},
		string(os.PathListSeparator)))
	for _, name := range []string{"one", "two"} {
		c, err := connect(Options{}, name, "")
		if err != nil || c.base.Host != name+".example:6443" || c.namespace != "of-"+name {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if _, err := connect(Options{}, "three", ""); err == nil || !strings.Contains(err.Error(), "--kube-context") {
		t.Errorf("a context that no file has: %v", err)
	}
}

// A token that expires in mid-run is replaced by the one that its file has by then.
func TestTokenExpires(t *testing.T) {
	t.Parallel()
	if os.Getenv("DEEPSWE_TEST_FULL") == "" {
		t.Skip("a token is kept for a minute: DEEPSWE_TEST_FULL asks for this test")
	}
	s, config := simulate(t)
	token := testkit.WriteFile(t, filepath.Join(t.TempDir(), "token"), "first")
	s.token.Store("first")
	p, err := New(t.Context(), Options{
		config: &rest.Config{Host: config.Host, BearerTokenFile: token}, Namespaces: []string{"default"},
		Executable: testkit.Guest(t), Pods: Pods{GuestImage: "guest"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	binary, err := p.clusters[0].guests.find()
	if err != nil {
		t.Fatal(err)
	}
	s.build = binary.Hash
	for _, next := range []string{"first", "second"} {
		testkit.WriteFile(t, token, next)
		s.token.Store(next)
		sandbox, err := p.Start(t.Context(), env.Spec{Image: "i", Rollout: next})
		if err != nil {
			t.Fatalf("with the %s token: %v", next, err)
		}
		if err := sandbox.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A container's end is reported before its cause: an eviction is waited for, but not for long.
func TestExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := func(text string) *pod {
			p := &pod{Metadata: metadata{Name: "p"}}
			if err := json.Unmarshal([]byte(text), &p.Status); err != nil {
				t.Fatal(err)
			}
			return p
		}
		killed := status(`{"phase": "Running", "containerStatuses": [
			{"name": "sandbox", "state": {"terminated": {"exitCode": 137, "reason": "Error"}}}]}`)
		evicted := status(`{"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}`)
		for _, c := range []struct {
			after time.Duration
			says  string
		}{{time.Second, "evicted"}, {time.Minute, "exit code 137, without a message"}} {
			cluster := newCluster("c", "n")
			w := cluster.register("p")
			cluster.saw("p", killed)
			time.AfterFunc(c.after, func() { cluster.saw("p", evicted) })
			if err := cluster.explained(t.Context(), w, ended(killed)); !strings.Contains(err.Error(), c.says) {
				t.Errorf("a cause after %v: %v, want %q", c.after, err, c.says)
			}
		}
	})
}
