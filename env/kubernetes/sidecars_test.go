package kubernetes

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepswe/env"
	"deepswe/env/fleet"
)

// operation is one operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// mutate registers a webhook that changes every pod of a namespace, as service meshes do.
func (l *lab) mutate(namespace string, change func(p *pod) []operation) {
	l.t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Request    struct {
				UID    string `json:"uid"`
				Object pod    `json:"object"`
			} `json:"request"`
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		patch, _ := json.Marshal(change(&review.Request.Object))
		answer(w, map[string]any{"apiVersion": review.APIVersion, "kind": review.Kind, "response": map[string]any{
			"uid": review.Request.UID, "allowed": true, "patchType": "JSONPatch", "patch": patch,
		}})
	}))
	l.t.Cleanup(server.Close)
	name := "deepswe-test-" + fleet.Nonce()
	const configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
	l.post(configurations, map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
		"metadata": metadata{Name: name},
		"webhooks": []any{map[string]any{
			"name": "inject.deepswe.test", "sideEffects": "None", "admissionReviewVersions": []string{"v1"},
			"clientConfig": map[string]any{"url": server.URL, "caBundle": pem.EncodeToMemory(
				&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
			"namespaceSelector": map[string]any{"matchLabels": map[string]string{"kubernetes.io/metadata.name": namespace}},
			"rules": []any{map[string]any{"apiGroups": []string{""}, "apiVersions": []string{"v1"},
				"operations": []string{"CREATE"}, "resources": []string{"pods"}}},
		}},
	})
	l.t.Cleanup(func() { l.Kubectl(l.t, "", "delete", "mutatingwebhookconfiguration", name) })
}

// added returns a container that a webhook adds.
func added(name, line, restart string) map[string]any {
	c := map[string]any{
		"name": name, "image": busybox, "imagePullPolicy": "Never", "command": []string{"/bin/sh", "-c", line},
	}
	if restart != "" {
		c["restartPolicy"] = restart
	}
	return c
}

// Sandboxes start, answer and end beside containers that a webhook inserts before theirs, and their network is still
// closed. A container that keeps a sandbox from starting is named.
func TestInjectedContainers(t *testing.T) {
	t.Parallel()
	l := theLab(t)
	image := l.guestImage()
	first := func(c map[string]any) func(*pod) []operation {
		return func(*pod) []operation { return []operation{{"add", "/spec/containers/0", c}} }
	}
	firstInit := func(c map[string]any) func(*pod) []operation {
		return func(p *pod) []operation {
			if len(p.Spec.InitContainers) == 0 {
				return []operation{{"add", "/spec/initContainers", []any{c}}}
			}
			return []operation{{"add", "/spec/initContainers/0", c}}
		}
	}
	for name, c := range map[string]struct {
		change func(*pod) []operation
		pods   Pods
		fails  string
	}{
		"a native sidecar": {change: firstInit(added("mesh", "sleep 1000", "Always"))},
		"a native sidecar and a guest image": {
			change: firstInit(added("mesh", "sleep 1000", "Always")), pods: Pods{GuestImage: image},
		},
		"a container":           {change: first(added("logs", "sleep 1000", ""))},
		"a container that ends": {change: first(added("once", "exit 3", ""))},
		"an init container":     {change: firstInit(added("setup", "exit 0", ""))},
		"an init container and a guest image": {
			change: firstInit(added("setup", "exit 0", "")), pods: Pods{GuestImage: image},
		},
		"an init container that fails": {
			change: firstInit(added("setup", "echo no certificate >/dev/termination-log; exit 3", "")),
			fails:  "the container setup, which the cluster has added, ended with exit code 3: no certificate",
		},
		"an init container without an image": {
			change: firstInit(map[string]any{"name": "gone", "image": "deepswe-test:nowhere", "imagePullPolicy": "Never"}),
			fails:  "the image deepswe-test:nowhere is not on the node",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &lab{Kubelab: l.Kubelab, t: t, config: l.config}
			ns := l.namespace(nil)
			l.mutate(ns, c.change)
			p := l.provider(ns, c.pods)
			began := time.Now()
			sandbox, err := p.Start(t.Context(), env.Spec{Image: busybox})
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("got %v, want %q", err, c.fails)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			t.Logf("after %v: %v", time.Since(began).Round(time.Millisecond), err)
			if err == nil {
				s := sandbox.(*Sandbox)
				if out := must(t, s, "grep -c : /proc/net/dev"); out != "1\n" {
					t.Errorf("%s interfaces", out)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
			left, _, err := p.clusters[0].listPods(t.Context(), labelOwner)
			if err != nil || len(left) > 0 {
				t.Errorf("%d pods are left, %v", len(left), err)
			}
		})
	}
}

// If a guest ends while another container of its pod goes on, the sandbox says so at once, and the pod can be removed.
func TestGuestEndsBesideSidecar(t *testing.T) {
	t.Parallel()
	l := theLab(t)
	ns := l.namespace(nil)
	l.mutate(ns, func(*pod) []operation {
		return []operation{{"add", "/spec/containers/0", added("logs", "sleep 1000", "")}}
	})
	p := l.provider(ns, Pods{})
	s, err := p.Start(t.Context(), env.Spec{Image: busybox})
	if err != nil {
		t.Fatal(err)
	}
	var id string
	for deadline := time.Now().Add(20 * time.Second); id == "" && time.Now().Before(deadline); { // the status is late
		id = strings.TrimPrefix(l.Kubectl(t, "", "-n", ns, "get", "pod", s.(*Sandbox).launch.name, "-o",
			`jsonpath={.status.containerStatuses[?(@.name=="sandbox")].containerID}`), "containerd://")
	}
	began := time.Now()
	if out, err := exec.Command("ctr", "-a", filepath.Join(l.Run, "containerd.sock"), "-n", "k8s.io", "tasks", "kill", "-s",
		"KILL", id).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, err = s.Run(t.Context(), env.Command{Line: "sleep 60"})
	t.Logf("after %v: %v", time.Since(began).Round(time.Millisecond), err)
	if !errors.Is(err, env.ErrInfrastructure) || !strings.Contains(err.Error(), "exit code 137") {
		t.Errorf("a guest that was killed: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
