package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepswe/env"
	"deepswe/env/fleet"
	"deepswe/env/testkit"
)

// loading is held while an image is loaded, because concurrent imports of one image fail.
var loading sync.Mutex

// guestImage builds an image with only the guest, loads it into the cluster, and returns its name.
func (l *lab) guestImage() string {
	l.t.Helper()
	const image = "deepswe-test:guest"
	testkit.Images(l.t)
	loading.Lock()
	defer loading.Unlock()
	build := exec.Command("docker", "build", "-q", "-t", image, "-f", "-", filepath.Dir(testkit.Guest(l.t)))
	build.Stdin = strings.NewReader("FROM scratch\nCOPY " + filepath.Base(testkit.Guest(l.t)) + " /deepswe\n")
	if out, err := build.CombinedOutput(); err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command(filepath.Join(l.Scripts, "load.sh"), image).CombinedOutput(); err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
	return image
}

// With a guest image, images without a shell can be used, and an init container closes the network.
func TestGuestImage(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{Pods: Pods{GuestImage: theLab(t).guestImage()}})
	bare := start(t, p, env.Spec{Image: "kubelab.invalid/pause:1"})
	if _, err := bare.Write(t.Context(), "f", []byte("x"), env.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if data, _, err := bare.Read(t.Context(), "f", env.ReadOptions{}); err != nil || string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
	if r, err := bare.Run(t.Context(), env.Command{Line: "true"}); err != nil || r.ExitCode == 0 {
		t.Errorf("a command without a shell: %+v, %v", r, err)
	}
	s := start(t, p, env.Spec{Image: busybox})
	if out := must(t, s, "grep -c : /proc/net/dev; grep CapBnd /proc/self/status"); !strings.HasPrefix(out, "1\n") ||
		!strings.Contains(out, "0000000000000000") {
		t.Errorf("interfaces and capabilities: %s", out)
	}
}

// The error of the current call names what the cluster has done to a running pod.
func TestTakenAway(t *testing.T) {
	if os.Getenv("DEEPSWE_TEST_FULL") == "" {
		t.Skip("it disturbs all pods of the node, and takes a minute: DEEPSWE_TEST_FULL asks for it")
	}
	l := theLab(t)
	p := provider(t, Options{})
	for _, c := range []struct {
		name  string
		do    func(pod string)
		is    error
		says  string
		limit env.Limits
	}{
		{"evicted through the API", func(pod string) {
			l.post("/api/v1/namespaces/"+namespace+"/pods/"+pod+"/eviction", map[string]any{
				"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata{Name: pod, Namespace: namespace}})
		}, env.ErrInfrastructure, "evicted", env.Limits{}},
		{"its disk is full", func(pod string) {
			fill := fmt.Sprintf("fallocate -l %d /big; sleep 100", 64<<20+besideDisk+200<<20)
			s, err := p.clusters[0].exec(t.Context(), pod, "/bin/sh", "-c", fill)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = s.Close() })
		}, env.ErrExhausted, "disk", env.Limits{Disk: 64 << 20}},
		{"preempted", func(string) {
			l.Kubectl(l.t, `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: deepswe-test}, value: 1000}`,
				"apply", "-f", "-")
			free := l.Kubectl(l.t, "", "get", "node", "-o", "jsonpath={.items[0].status.allocatable.memory}")
			l.Kubectl(l.t, `{apiVersion: v1, kind: Pod, metadata: {name: hog, namespace: default}, spec: {priorityClassName: deepswe-test,
				containers: [{name: hog, image: "deepswe-test:busybox", imagePullPolicy: Never, command: [sleep, "1000"],
				resources: {requests: {memory: `+free+`}}}]}}`, "apply", "-f", "-")
			t.Cleanup(func() {
				l.Kubectl(l.t, "", "-n", "default", "delete", "pod", "hog", "--grace-period=0", "--force")
				l.Kubectl(l.t, "", "delete", "priorityclass", "deepswe-test")
			})
		}, env.ErrInfrastructure, "priority", env.Limits{}},
	} {
		s := start(t, p, env.Spec{Image: busybox, Limits: c.limit})
		began := time.Now()
		failed := make(chan error, 1)
		go func() {
			for { // when the disk is full, the guest ends commands, but not the pod
				if _, err := s.Run(t.Context(), env.Command{Line: "sleep 1"}); err != nil || time.Since(began) > 2*time.Minute {
					failed <- err
					return
				}
			}
		}()
		time.Sleep(300 * time.Millisecond)
		c.do(s.launch.name)
		err := <-failed
		t.Logf("%s: after %v: %v", c.name, time.Since(began).Round(time.Millisecond), err)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v that says %q", c.name, err, c.is, c.says)
		}
	}
}

// When a node runs short of memory or process ids, the kubelet evicts pods and admits no others. The errors say so.
func TestNodePressure(t *testing.T) {
	if os.Getenv("DEEPSWE_TEST_FULL") == "" {
		t.Skip("it disturbs all pods of the node, and takes a minute: DEEPSWE_TEST_FULL asks for it")
	}
	l := theLab(t)
	p := provider(t, Options{})
	for signal, least := range map[string]string{"memory.available": "1000Gi", "pid.available": "100000000"} {
		s := start(t, p, env.Spec{Image: busybox})
		failed := make(chan error, 1)
		go func() {
			_, err := s.Run(t.Context(), env.Command{Line: "sleep 100"})
			failed <- err
		}()
		// up.sh writes the variable into the kubelet's configuration, so that it can add more lines.
		t.Setenv("KUBELAB_POD_PIDS", fmt.Sprintf("1024\nevictionSoft: {%s: %q}\nevictionSoftGracePeriod: {%s: 1s}", signal,
			least, signal))
		l.Restart(t, "kubelet", "KILL")
		began := time.Now()
		err := <-failed
		t.Logf("%s: evicted after %v: %v", signal, time.Since(began).Round(time.Millisecond), err)
		if !errors.Is(err, env.ErrInfrastructure) ||
			!strings.Contains(err.Error(), "short of resources") && !strings.Contains(err.Error(), "evicted") {
			t.Errorf("%s, a pod that runs: %v", signal, err)
		}
		began = time.Now()
		another, err := p.Start(t.Context(), env.Spec{Image: busybox})
		if err == nil { // it was admitted before the next evictions
			_, err = another.Run(t.Context(), env.Command{Line: "sleep 100"})
			_ = another.Close(t.Context())
		}
		t.Logf("%s: another after %v: %v", signal, time.Since(began).Round(time.Millisecond), err)
		if !errors.Is(err, env.ErrInfrastructure) ||
			!strings.Contains(err.Error(), "short of resources") && !strings.Contains(err.Error(), "short of memory") {
			t.Errorf("%s, a pod that starts: %v", signal, err)
		}
		t.Setenv("KUBELAB_POD_PIDS", "1024")
		l.Restart(t, "kubelet", "KILL")
		for strings.Contains(l.Kubectl(t, "", "get", "nodes", "-o", "jsonpath={.items[*].spec.taints}"), "pressure") {
			time.Sleep(200 * time.Millisecond)
		}
	}
}

// The errors name a LimitRange that a pod exceeds, and a namespace that is being deleted.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	l := theLab(t)
	limited := l.namespace(nil)
	l.post("/api/v1/namespaces/"+limited+"/limitranges", map[string]any{
		"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata{Name: "r"},
		"spec": map[string]any{"limits": []any{map[string]any{
			"type": "Container", "max": map[string]string{"memory": "1Gi"},
			"default": map[string]string{"memory": "64Mi", "cpu": "100m"}, "defaultRequest": map[string]string{"memory": "32Mi"},
		}}},
	})
	p := l.provider(limited, Pods{})
	_, err := p.Start(t.Context(), env.Spec{Image: busybox, Limits: env.Limits{Memory: 2 << 30}})
	if !errors.Is(err, env.ErrUnsupported) || !strings.Contains(err.Error(), "maximum memory usage per Container is 1Gi") {
		t.Errorf("above a LimitRange: %v", err)
	}
	// The defaults of the LimitRange do not replace the sandbox's own limits.
	s := start(t, p, env.Spec{Image: busybox, Limits: env.Limits{Memory: 256 << 20}})
	var made pod
	c := p.clusters[0]
	err = c.call(t.Context(), request{method: http.MethodGet, path: c.pods() + "/" + s.launch.name, into: &made})
	if err != nil || made.Spec.Containers[0].Resources.Limits["memory"] != fmt.Sprint(256<<20) {
		t.Errorf("%+v, %v", made.Spec.Containers, err)
	}

	ends := "deepswe-test-" + fleet.Nonce()
	l.Kubectl(l.t, "", "create", "namespace", ends)
	l.Kubectl(l.t, "", "-n", ends, "create", "serviceaccount", "deepswe")
	l.Kubectl(l.t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: stays, namespace: `+ends+`, finalizers: [deepswe.test/stays]}}`,
		"apply", "-f", "-")
	l.Kubectl(l.t, "", "delete", "namespace", ends, "--wait=false")
	defer l.Kubectl(l.t, "", "-n", ends, "patch", "configmap", "stays", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	if _, err := l.provider(ends, Pods{}).Start(t.Context(), env.Spec{Image: busybox}); !errors.Is(err, env.ErrInfrastructure) ||
		!strings.Contains(err.Error(), "the namespace is being deleted") {
		t.Errorf("a namespace that is being deleted: %v", err)
	}
}

// TestAtOnce starts fifty sandboxes at once on one node, spread over two namespaces.
func TestAtOnce(t *testing.T) {
	if os.Getenv("DEEPSWE_TEST_FULL") == "" {
		t.Skip("fifty pods take a minute: DEEPSWE_TEST_FULL asks for them")
	}
	l := theLab(t)
	o := onCluster(t, Options{
		Namespaces: []string{l.namespace(nil), l.namespace(nil)}, Pods: Pods{ServiceAccount: "deepswe", Requests: 0.001},
	})
	o.config = l.config
	p, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	const many = 50
	var work sync.WaitGroup
	sandboxes, took := make([]env.Sandbox, many), make([]time.Duration, many)
	began := time.Now()
	for i := range many {
		work.Go(func() {
			var err error
			if sandboxes[i], err = p.Start(t.Context(), env.Spec{Image: busybox, Run: "fifty"}); err != nil {
				t.Error(err)
			}
			took[i] = time.Since(began)
		})
	}
	work.Wait()
	slices.Sort(took)
	t.Logf("%d pods: half after %v, all after %v, in the namespaces %v and %v", many, took[many/2], took[many-1],
		p.clusters[0].Load(env.Spec{}, 0), p.clusters[1].Load(env.Spec{}, 0))
	if p.clusters[0].Load(env.Spec{}, 0) < many/3 ||
		p.clusters[1].Load(env.Spec{}, 0) < many/3 {
		t.Error("they are not spread over the namespaces")
	}
	closed := time.Now()
	for _, s := range sandboxes {
		work.Go(func() {
			if s == nil {
				return
			}
			if r, err := s.Run(t.Context(), env.Command{Line: "echo ok"}); err != nil || string(r.Stdout.Head) != "ok\n" {
				t.Errorf("%+v, %v", r, err)
			}
			if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	t.Logf("used and closed in %v", time.Since(closed))
}

// BenchmarkCall alternates calls to the guest with echoes through a stream of the same kind.
func BenchmarkCall(b *testing.B) {
	p := provider(b, Options{})
	s := start(b, p, env.Spec{Image: busybox})
	text := strings.Repeat("0123456789abcde\n", 256)
	if _, err := s.Write(b.Context(), "f", []byte(text), env.WriteOptions{}); err != nil {
		b.Fatal(err)
	}
	echo, err := p.clusters[0].exec(b.Context(), s.launch.name, "cat")
	if err != nil {
		b.Fatal(err)
	}
	defer echo.Close()
	back := make([]byte, len(text))
	var calls, echoes []time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := echo.Write([]byte(text)); err != nil {
			b.Fatal(err)
		}
		for n := 0; n < len(text); {
			m, err := echo.Read(back[n:])
			if err != nil {
				b.Fatal(err)
			}
			n += m
		}
		between := time.Now()
		if _, _, err := s.Read(b.Context(), "f", env.ReadOptions{}); err != nil {
			b.Fatal(err)
		}
		echoes, calls = append(echoes, between.Sub(began)), append(calls, time.Since(between))
	}
	report(b, "call", calls, "echo", echoes)
}

// report reports the medians of two series, and their ratio.
func report(b *testing.B, name string, ours []time.Duration, against string, theirs []time.Duration) {
	slices.Sort(ours)
	slices.Sort(theirs)
	mine, other := ours[len(ours)/2], theirs[len(theirs)/2]
	b.ReportMetric(float64(mine.Microseconds()), name+"-us/p50")
	b.ReportMetric(float64(other.Microseconds()), against+"-us/p50")
	b.ReportMetric(float64(mine)/float64(other), "ratio")
}

// BenchmarkStart alternates starts of a sandbox, from the creation of the pod to the guest's first answer, with starts
// of a bare pod, until it is seen running.
func BenchmarkStart(b *testing.B) {
	p := provider(b, Options{})
	c := p.clusters[0]
	start(b, p, env.Spec{Image: busybox}) // creates the lease and the watch
	var sandboxes, bare []time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		sandbox, err := p.Start(b.Context(), env.Spec{Image: busybox})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := sandbox.Run(b.Context(), env.Command{Line: "true"}); err != nil {
			b.Fatal(err)
		}
		sandboxes = append(sandboxes, time.Since(began))
		if err := sandbox.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
		plain := pod{APIVersion: "v1", Kind: "Pod",
			Metadata: metadata{Name: fmt.Sprint("bare-", fleet.Nonce()), Labels: map[string]string{labelOwner: c.owner},
				OwnerReferences: c.lease.references()},
			Spec: podSpec{TerminationGracePeriodSeconds: new(int64(0)), Containers: []container{{Name: "c", Image: busybox,
				ImagePullPolicy: "Never", Command: []string{"sleep", "1000"}}}}}
		w := c.watch.register(plain.Metadata.Name)
		began = time.Now()
		if err := c.call(b.Context(), request{method: http.MethodPost, path: c.pods(), body: plain}); err != nil {
			b.Fatal(err)
		}
		for {
			p, _, change := c.watch.look(w)
			if p != nil && p.Status != nil && p.Status.Phase == "Running" {
				break
			}
			<-change
		}
		bare = append(bare, time.Since(began))
		c.watch.unregister(plain.Metadata.Name)
		if err := c.deletePod(b.Context(), plain.Metadata.Name, ""); err != nil {
			b.Fatal(err)
		}
	}
	report(b, "start", sandboxes, "bare", bare)
}
