package kubernetes

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/env"
	"deepswe/env/testkit"
)

// A pod's status tells why it ended, or what keeps it from starting.
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
		"the registry's name is not found": {status: `{"phase": "Pending", "containerStatuses": [{"name": "sandbox", "state":
			{"waiting": {"reason": "ErrImagePull", "message": "lookup r.example on 10.0.0.10:53: no such host"}}}]}`},
		"the registry is out of order": {status: `{"phase": "Pending", "containerStatuses": [{"name": "sandbox", "state":
			{"waiting": {"reason": "ErrImagePull", "message": "unexpected status from HEAD request: 503 Service Unavailable"}}}]}`},
		"the registry has no such image": {is: env.ErrNoImage, says: "the image task:1 cannot", status: `{"phase": "Pending",
			"containerStatuses": [{"name": "sandbox", "state": {"waiting": {"reason": "ImagePullBackOff", "message":
			"Back-off pulling image \"task:1\": ErrImagePull: task:1: not found"}}}]}`},
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

// Several goroutines read the state of a pod at once, so none of them may write to it.
func TestStatusIsNotWrittenTo(t *testing.T) {
	t.Parallel()
	room := make([]containerStatus, 2)
	p := &pod{Status: &podStatus{
		InitContainerStatuses: room[:1], ContainerStatuses: []containerStatus{{Name: mainContainer}},
	}}
	if err := ended(p); err != nil || !pulling(p) {
		t.Errorf("%v, or the container runs", err)
	}
	if room[1].Name != "" {
		t.Errorf("%q was written to the list of the init containers", room[1].Name)
	}
}

// The contexts of all files in KUBECONFIG can be used.
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

// A registry that does not answer is waited for, but not for ever, and this is logged once.
func TestRegistryOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		c := newCluster("c", "n")
		c.log = slog.New(slog.NewTextHandler(&said, nil))
		p := &pod{Spec: podSpec{Containers: []container{{Name: "sandbox", Image: "task:1"}}}}
		var hindered impediments
		began := time.Now()
		for {
			for _, reason := range []string{"ErrImagePull", "ImagePullBackOff"} {
				err := hindered.waiting(c, p, "sandbox", reason, "dial tcp: lookup r.example: no such host")
				if err == nil {
					continue
				}
				if took := time.Since(began); took != pullWait || !errors.Is(err, env.ErrInfrastructure) {
					t.Errorf("after %v: %v", took, err)
				}
				if n := strings.Count(said.String(), "waiting for the registry"); n != 1 {
					t.Errorf("said %d times: %s", n, said.String())
				}
				return
			}
			time.Sleep(time.Second)
		}
	})
}

// A container's end is reported before its cause, so an eviction is waited for, but not for long.
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
			w := cluster.watch.register("p")
			cluster.watch.saw("p", killed)
			time.AfterFunc(c.after, func() { cluster.watch.saw("p", evicted) })
			if err := cluster.explained(t.Context(), w, ended(killed)); !strings.Contains(err.Error(), c.says) {
				t.Errorf("a cause after %v: %v, want %q", c.after, err, c.says)
			}
		}
	})
}
