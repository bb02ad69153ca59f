package kubernetes

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"deepswe/env/owner"
	"deepswe/env/testkit"
)

// lab is the cluster that .ci/run starts, for tests that change it: DEEPSWE_TEST_KUBELAB is the folder of its scripts.
type lab struct {
	t      *testing.T
	folder string
	run    string
	config *rest.Config // the administrator's
}

func theLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, folder: os.Getenv("DEEPSWE_TEST_KUBELAB"), run: "/var/tmp/kubelab/run"}
	if l.folder == "" {
		testkit.Skip(t, "kubernetes", "DEEPSWE_TEST_KUBELAB names no folder of a cluster's scripts; .ci/run does")
	}
	var err error
	if l.config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(l.run, "admin.kubeconfig")); err != nil {
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

// namespace makes a namespace with labels, which is deleted at the end, and returns its name.
func (l *lab) namespace(labels map[string]string) string {
	l.t.Helper()
	name := "deepswe-test-" + owner.Nonce()
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
	// Pods cannot be created before the namespace has its service account.
	l.post("/api/v1/namespaces/"+name+"/serviceaccounts", object{"v1", "ServiceAccount", metadata{Name: "deepswe"}})
	return name
}

// provider starts a provider that acts as the administrator in a namespace.
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

// restart ends a part of the cluster with a signal, and starts it again.
func (l *lab) restart(part, signal string) {
	l.t.Helper()
	said, err := os.ReadFile(filepath.Join(l.run, "pids", part))
	if err != nil {
		l.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(string(said))[0])
	if err != nil {
		l.t.Fatal(err)
	}
	if out, err := exec.Command("kill", "-"+signal, strconv.Itoa(pid)).CombinedOutput(); err != nil {
		l.t.Fatalf("kill %s: %v %s", part, err, out)
	}
	for { // gone, or a zombie
		state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err := os.Remove(filepath.Join(l.run, "pids", part)); err != nil { // up.sh takes a zombie for running
		l.t.Fatal(err)
	}
	// up.sh takes the socket that a killed containerd leaves for one that answers.
	if err := os.Remove(filepath.Join(l.run, part+".sock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(l.folder, "up.sh")).CombinedOutput(); err != nil {
		l.t.Fatalf("restart %s: %v\n%s", part, err, out)
	}
}
