package kubernetes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"deepswe/env"
	"deepswe/env/testkit"
)

// TestCloseTidies closes a sandbox several times at once. The guest is asked once to end what commands have left,
// before it is disconnected. A guest that is gone is not waited for.
func TestCloseTidies(t *testing.T) {
	t.Parallel()
	s, p := onSimulation(t)
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	for rollout, want := range map[string]int64{"alive": 1, "gone": 0} {
		s.tidied.Store(0)
		sandbox, err := p.Start(t.Context(), env.Spec{Image: "i", Rollout: rollout})
		if err != nil {
			t.Fatal(err)
		}
		if rollout == "gone" {
			sandbox.(*Sandbox).line.Fail(io.EOF)
		}
		var closers sync.WaitGroup
		for range 3 {
			closers.Go(func() {
				if err := sandbox.Close(t.Context()); err != nil {
					t.Errorf("%s: %v", rollout, err)
				}
			})
		}
		closers.Wait()
		if n := s.tidied.Load(); n != want {
			t.Errorf("%s: the guest was asked %d times to tidy, want %d", rollout, n, want)
		}
	}
	s.checkEmpty(t)
}

// TestPrefetch pulls images ahead of time: each once, and none that a sandbox has already used. Nothing is left of it.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	s, p := onSimulation(t)
	used, err := p.Start(t.Context(), env.Spec{Image: "used"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		image string
		is    error
		pulls int64 // until then
	}{{"used", nil, 0}, {"next", nil, 1}, {"next", nil, 1}, {"missing", env.ErrNoImage, 2}, {"missing", env.ErrNoImage, 3}} {
		if err := p.Prefetch(t.Context(), env.Spec{Image: c.image, Rollout: "r"}); !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want %v", c.image, err, c.is)
		}
		if n := s.pulled.Load(); n != c.pulls {
			t.Errorf("%s: %d pods for images until now, want %d", c.image, n, c.pulls)
		}
	}
	if err := errors.Join(used.Close(t.Context()), p.Close()); err != nil {
		t.Error(err)
	}
	s.checkEmpty(t)
}

// TestSecondLook: after an outage of the API server, all leases are old. An owner that renews its lease now is alive.
func TestSecondLook(t *testing.T) {
	t.Parallel()
	s, p := onSimulation(t)
	const stale = time.Second
	silent := func(who string, ago time.Duration) lease {
		return lease{
			Metadata: metadata{Name: who, Labels: map[string]string{labelOwner: who}},
			Spec:     leaseSpec{RenewTime: &microTime{time.Now().Add(-ago)}},
		}
	}
	for who, ago := range map[string]time.Duration{"living": time.Minute, "dead": time.Minute, "long dead": 24 * time.Hour} {
		s.foreign[who] = silent(who, ago)
	}
	working, stop := context.WithCancel(t.Context())
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for env.Sleep(working, stale/20) == nil {
			s.mu.Lock()
			s.foreign["living"] = silent("living", 0)
			s.mu.Unlock()
		}
	})
	left, err := p.Reap(t.Context(), env.ReapOptions{Stale: stale})
	stop()
	renewing.Wait()
	var removed []string
	for _, l := range left {
		removed = append(removed, l.ID)
	}
	if slices.Sort(removed); err != nil || !slices.Equal(removed, []string{"dead", "long dead"}) {
		t.Errorf("%q were removed, %v", removed, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestSuccessProvesNothing ends every stream with the API server's "Success" during a transfer, as a restart of the
// kubelet does. The transfer continues over the next stream until the guest answers.
func TestSuccessProvesNothing(t *testing.T) {
	t.Parallel()
	s, p := onSimulation(t)
	s.cutAfter.Store(400 << 10)
	sandbox, err := p.Start(t.Context(), env.Spec{Image: "i"})
	if err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("0123456789abcdef"), 128<<10)
	if err := sandbox.(*Sandbox).Unpack(t.Context(), "/", bytes.NewReader(content)); err != nil {
		t.Errorf("unpack: %v", err)
	}
	if want := fmt.Sprintf("%x", sha256.Sum256(content)); s.unpacked.Load() != want {
		t.Errorf("what was unpacked has the hash %v, want %s", s.unpacked.Load(), want)
	}
	if n := s.cuts.Load(); n < 4 {
		t.Errorf("%d streams were cut, want at least 4", n)
	}
	if err := errors.Join(sandbox.Close(t.Context()), p.Close()); err != nil {
		t.Error(err)
	}
}

// A stream that breaks as soon as it is used is not reopened again and again without a pause.
func TestUnsteadyStream(t *testing.T) {
	t.Parallel()
	s, p := onSimulation(t)
	s.cutAfter.Store(1 << 10) // enough for the key, but not for a file
	sandbox, err := p.Start(t.Context(), env.Spec{Image: "i"})
	if err != nil {
		t.Fatal(err)
	}
	before := s.dials.Load()
	unpacked := make(chan error, 1)
	go func() {
		unpacked <- sandbox.(*Sandbox).Unpack(t.Context(), "/", bytes.NewReader(make([]byte, 4<<10)))
	}()
	for s.cuts.Load() < 2 {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond)
	if n := s.dials.Load() - before; n > 10 {
		t.Errorf("%d streams were opened within a second", n)
	}
	s.cutAfter.Store(0)
	if err := <-unpacked; err != nil {
		t.Errorf("a file that passes in the end: %v", err)
	}
	if err := errors.Join(sandbox.Close(t.Context()), p.Close()); err != nil {
		t.Error(err)
	}
}

// TestManySandboxes starts many sandboxes on a server that sometimes fails. All of them answer, even after their
// streams have broken, nothing is left, and the number of requests is limited.
func TestManySandboxes(t *testing.T) {
	t.Parallel()
	many := 100
	if testkit.Required("scale") {
		many = 1000
	}
	s, p := onSimulation(t)
	// Until one request has been allowed, a refusal would be taken for a missing Role.
	first, err := p.Start(t.Context(), env.Spec{Image: "i", Rollout: "first"})
	if err != nil {
		t.Fatal(err)
	}
	before := memory()
	s.faulty.Store(true)
	began := time.Now()
	sandboxes := make([]env.Sandbox, many)
	var work sync.WaitGroup
	for i := range sandboxes {
		work.Go(func() {
			sandbox, err := p.Start(t.Context(), env.Spec{Image: "i", Rollout: fmt.Sprint(i)})
			if err != nil {
				t.Errorf("start %d: %v", i, err)
				return
			}
			sandboxes[i] = sandbox
		})
	}
	work.Wait()
	if t.Failed() {
		t.FailNow()
	}
	started := time.Since(began)
	for range 20 {
		for _, sandbox := range sandboxes {
			work.Go(func() {
				if err := sandbox.Ping(t.Context()); err != nil {
					t.Errorf("ping: %v", err)
				}
			})
		}
		work.Wait()
		time.Sleep(50 * time.Millisecond)
	}
	each := (memory() - before) / int64(many)
	t.Logf("%d sandboxes started in %v; %d requests, of which %d streams (%d too early), %d lists; %d faults; %d KiB each, "+
		"both ends", many, started.Round(time.Millisecond), s.requests.Load(), s.dials.Load(), s.early.Load(), s.lists.Load(),
		s.faults.Load(), each>>10)
	// Both ends of every stream are in this process.
	if each > 1<<20 {
		t.Errorf("a sandbox takes %d KiB", each>>10)
	}
	if most := int64(many) * 16; s.requests.Load() > most {
		t.Errorf("%d requests for %d sandboxes", s.requests.Load(), many)
	}
	for _, sandbox := range append(sandboxes, first) {
		work.Go(func() {
			if err := sandbox.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	work.Wait()
	s.faulty.Store(false)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	s.checkEmpty(t)
}

// checkEmpty checks that no pod is left.
func (s *simulation) checkEmpty(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pods) != 0 {
		t.Errorf("%d pods are left", len(s.pods))
	}
}

func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
