package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"deepswe/env"
	"deepswe/env/guest"
)

func contextFor(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// A start that cannot succeed fails with its cause, and with the sentinel that says whether a retry may help.
func TestStartFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options Options
		image   string
		is      error
		says    string
	}{
		"an image that is not there": {image: "deepswe-test:nowhere", is: env.ErrNoImage, says: "forbids pulling it"},
		"no name of an image":        {image: "No Image", is: env.ErrNoImage, says: "is not a valid image name"},
		"an image without a shell": {image: "kubelab.invalid/pause:1", is: env.ErrUnsupported,
			says: "kubernetes.guest_image"},
		"no node": {options: Options{Pods: Pods{NodeSelector: map[string]string{"pool": "nowhere"}}}, image: busybox,
			is: env.ErrInfrastructure, says: "no node takes it"},
		"another architecture": {options: Options{Pods: Pods{NodeSelector: map[string]string{"kubernetes.io/arch": "s390x"}}},
			image: busybox, is: env.ErrInfrastructure, says: "no node takes it"},
		"a runtime class that is not there": {options: Options{Pods: Pods{RuntimeClass: "gvisor"}}, image: busybox,
			is: env.ErrUnsupported, says: "RuntimeClass"},
		"a namespace of somebody else": {options: Options{Namespaces: []string{"kube-system"}}, image: busybox,
			is: env.ErrInfrastructure, says: "apply the Role"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := provider(t, c.options)
			_, err := p.Start(t.Context(), env.Spec{Image: c.image, Run: "failures"})
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v that says %q", err, c.is, c.says)
			}
			if pods, _, err := p.clusters[0].listPods(t.Context(), labelOwner+"="+p.clusters[0].owner); len(pods) != 0 {
				t.Errorf("%d pods are left, %v", len(pods), err)
			}
		})
	}
}

// A call in a pod that somebody has deleted fails as infrastructure, and the error says so.
func TestDeleted(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	s := start(t, p, env.Spec{Image: busybox})
	if err := p.clusters[0].deletePod(t.Context(), s.launch.name, ""); err != nil {
		t.Fatal(err)
	}
	_, err := s.Run(t.Context(), env.Command{Line: "sleep 60"})
	if !errors.Is(err, env.ErrInfrastructure) || !errors.Is(err, guest.ErrClosed) || !strings.Contains(err.Error(), "delete") {
		t.Errorf("a call in a deleted pod: %v", err)
	}
}

// A pod that exceeds the quota for now waits for room. One that can never fit is refused.
func TestQuota(t *testing.T) {
	t.Parallel()
	l := theLab(t)
	ns := l.namespace(nil)
	l.post("/api/v1/namespaces/"+ns+"/resourcequotas", map[string]any{
		"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata{Name: "q"},
		"spec": map[string]any{"hard": map[string]string{"pods": "1", "limits.memory": "8Gi"}},
	})
	p := l.provider(ns, Pods{})
	first := start(t, p, env.Spec{Image: busybox})
	started := make(chan error, 1)
	go func() {
		second, err := p.Start(t.Context(), env.Spec{Image: busybox})
		if err == nil {
			err = second.Close(context.WithoutCancel(t.Context()))
		}
		started <- err
	}()
	select {
	case err := <-started:
		t.Fatalf("the second start did not wait: %v", err)
	case <-time.After(3 * time.Second):
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Errorf("the start that waited for quota: %v", err)
	}
	_, err := p.Start(t.Context(), env.Spec{Image: busybox, Limits: env.Limits{Memory: 64 << 30}})
	if !errors.Is(err, env.ErrUnsupported) || !strings.Contains(err.Error(), "exceeded quota") {
		t.Errorf("larger than the quota: %v", err)
	}
}

// A command continues while parts of the cluster are killed and restarted, and later calls work. Ending the API server
// with SIGTERM takes a minute, so that is tested only with DEEPSWE_TEST_FULL.
func TestRestarts(t *testing.T) {
	l := theLab(t)
	s := start(t, provider(t, Options{}), env.Spec{Image: busybox, Run: "restarts"})
	restarts := [][2]string{{"kubelet", "KILL"}, {"apiserver", "KILL"}, {"containerd", "KILL"}}
	if os.Getenv("DEEPSWE_TEST_FULL") != "" {
		restarts = append(restarts, [][2]string{{"kubelet", "TERM"}, {"apiserver", "TERM"}, {"containerd", "TERM"}}...)
	}
	const count = "rm -f stop; i=0; until [ -e stop ]; do echo $i; i=$((i+1)); sleep 0.1; done; echo end"
	for _, r := range restarts {
		part, signal := r[0], r[1]
		type outcome struct {
			r   env.Result
			err error
		}
		ended := make(chan outcome, 1)
		go func() {
			r, err := s.Run(t.Context(), env.Command{Line: count})
			ended <- outcome{r, err}
		}()
		time.Sleep(200 * time.Millisecond)
		began := time.Now()
		l.Restart(t, part, signal)
		restarted := time.Since(began)
		if _, err := s.Write(t.Context(), "stop", nil, env.WriteOptions{}); err != nil {
			t.Fatalf("%s -%s: a call after it: %v", part, signal, err)
		}
		o := <-ended
		t.Logf("%s -%s: restarted after %v, answered after %v", part, signal, restarted.Round(time.Millisecond),
			time.Since(began).Round(time.Millisecond))
		var want strings.Builder
		said := string(o.r.Stdout.Head)
		for i := range strings.Count(said, "\n") - 1 {
			fmt.Fprintln(&want, i)
		}
		if o.err != nil || said != want.String()+"end\n" || want.Len() == 0 {
			t.Fatalf("%s -%s: a command under way ended with %v and %q", part, signal, o.err, said)
		}
	}
}

// The user of the cluster has the Role of docs/kubernetes.md and the lab's, so no right is missing.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	findings := map[string]env.Finding{}
	for _, f := range p.Diagnose(t.Context()) {
		findings[f.Check] = f
	}
	for check, want := range map[string]env.Status{
		"kubernetes": env.OK, "kubernetes role": env.OK, "kubernetes quota": env.OK, "kubernetes pods": env.OK,
		"kubernetes limits": env.Warning,
	} {
		if f := findings[check]; f.Status != want || f.Detail == "" {
			t.Errorf("%s: %+v, want %s", check, f, want)
		}
	}
	// Missing rights are named, and the Role is printed.
	elsewhere := provider(t, Options{Namespaces: []string{"kube-system"}})
	f := elsewhere.clusters[0].diagnoseRole(t.Context())
	if f.Status != env.Failed || !strings.Contains(f.Detail, "create pods/exec") || !strings.Contains(f.Fix, "kind: Role") {
		t.Errorf("without a Role: %+v", f)
	}
}

// A command uses up the memory with many small processes. The kernel kills either the guest, which is larger than each
// of them, or some of them. In both cases the sandbox says that memory ran out.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	s := start(t, provider(t, Options{}), env.Spec{Image: busybox, Limits: env.Limits{Memory: 96 << 20}})
	const many = "while :; do (x=$(head -c 1000000 /dev/zero | tr '\\0' x); sleep 100) & done"
	r, err := s.Run(t.Context(), env.Command{Line: many, Timeout: 10 * time.Second})
	t.Logf("exit code %d, out of memory %v, %v", r.ExitCode, r.OutOfMemory, err)
	exhausted := errors.Is(err, env.ErrExhausted) && strings.Contains(err.Error(), "memory")
	if !exhausted && (err != nil || !r.OutOfMemory) {
		t.Errorf("got %+v, %v", r, err)
	}
}
