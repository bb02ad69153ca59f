package kubernetes

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"deepswe/env/fleet"
	"deepswe/env/testkit"
)

// lab is the cluster that .ci/run starts, for tests that change it.
type lab struct {
	*testkit.Kubelab
	t      *testing.T
	config *rest.Config // the administrator's
}

func theLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{Kubelab: testkit.OpenKubelab(t), t: t}
	var err error
	if l.config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(l.Run, "admin.kubeconfig")); err != nil {
		t.Fatal(err)
	}
	return l
}

// post creates an object as the administrator.
func (l *lab) post(path string, body any) {
	l.t.Helper()
	c, err := connect(Options{config: l.config}, "", "default")
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.discard()
	if err := c.call(l.t.Context(), request{method: http.MethodPost, path: path, body: body}); err != nil {
		l.t.Fatalf("create %s: %v", path, err)
	}
}

// namespace makes a namespace with labels, which is deleted at the end of the test, and returns its name.
func (l *lab) namespace(labels map[string]string) string {
	l.t.Helper()
	name := "deepswe-test-" + fleet.Nonce()
	type object struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Metadata   metadata `json:"metadata"`
	}
	l.post("/api/v1/namespaces", object{"v1", "Namespace", metadata{Name: name, Labels: labels}})
	l.t.Cleanup(func() {
		c, err := connect(Options{config: l.config}, "", "default")
		if err != nil {
			l.t.Error(err)
			return
		}
		defer c.discard()
		ctx, cancel := contextFor(time.Minute)
		defer cancel()
		if err := c.call(ctx, request{method: http.MethodDelete, path: "/api/v1/namespaces/" + name}); err != nil {
			l.t.Error(err)
		}
	})
	// Pods need the namespace's service account.
	l.post("/api/v1/namespaces/"+name+"/serviceaccounts", object{"v1", "ServiceAccount", metadata{Name: "deepswe"}})
	return name
}

// provider opens a provider that acts as the administrator in a namespace.
func (l *lab) provider(namespace string, pods Pods) *Provider {
	l.t.Helper()
	pods.ServiceAccount = "deepswe"
	o := onCluster(l.t, Options{Namespaces: []string{namespace}, Pods: pods})
	o.config = l.config
	p, err := New(l.t.Context(), o)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if err := p.Close(); err != nil {
			l.t.Errorf("closing the provider: %v", err)
		}
	})
	return p
}
