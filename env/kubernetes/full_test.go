package kubernetes

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepswe/env"
)

// More attempts than a cluster has room for all get their original files, each from another image. An attempt that
// needs an original gives up its place for it, idle originals are removed, and new sandboxes wait.
func TestOriginalsInAFullCluster(t *testing.T) {
	t.Parallel()
	s, p := onSimulation(t)
	const room, attempts = 3, 6
	s.quota.Store(room)
	var working sync.WaitGroup
	var running atomic.Int64
	full := make(chan struct{}) // closed before the first original is requested
	for i := range attempts {
		working.Go(func() {
			sandbox, err := p.Start(t.Context(), env.Spec{Image: fmt.Sprint("image", i)})
			if err != nil {
				t.Errorf("start %d: %v", i, err)
				return
			}
			if running.Add(1) == room {
				close(full)
			}
			<-full
			began := time.Now()
			if _, err = sandbox.Original(t.Context(), "f"); err == nil || !strings.Contains(err.Error(), "not simulated") {
				t.Errorf("original %d after %v: %v", i, time.Since(began), err)
			}
			if err := sandbox.Close(t.Context()); err != nil {
				t.Errorf("close %d: %v", i, err)
			}
		})
	}
	working.Wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	s.checkEmpty(t)
}

// In a full cluster, gradings start before agents that were requested earlier, and sandboxes that were started ahead of
// time are closed to make room.
func TestGradingsGoFirstInAFullCluster(t *testing.T) {
	t.Parallel()
	s, p := onSimulation(t)
	p.fleet.Warm = 2
	s.quota.Store(2)
	if err := p.Prefetch(t.Context(), env.Spec{Image: "other", Rollout: "other"}); err != nil {
		t.Fatal(err)
	}
	begin := func(spec env.Spec) env.Sandbox {
		sandbox, err := p.Start(t.Context(), spec)
		if err != nil {
			t.Error(err)
		}
		return sandbox
	}
	first, second := begin(env.Spec{Image: "a"}), begin(env.Spec{Image: "a"}) // the place of the one started ahead
	c := p.clusters[0]
	var order []string
	var mu sync.Mutex
	var working sync.WaitGroup
	for i, spec := range []env.Spec{{Image: "agent"}, {Image: "grading", Grading: true}} {
		working.Go(func() {
			sandbox := begin(spec)
			mu.Lock()
			order = append(order, spec.Image)
			mu.Unlock()
			if err := sandbox.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
		for c.queue.len() <= i {
			time.Sleep(time.Millisecond)
		}
	}
	if err := first.Close(t.Context()); err != nil {
		t.Error(err)
	}
	working.Wait()
	if order[0] != "grading" {
		t.Errorf("started in the order %v", order)
	}
	if err := errors.Join(second.Close(t.Context()), p.Close()); err != nil {
		t.Error(err)
	}
	s.checkEmpty(t)
}

// If others have taken the room of a cluster, a start ends in time, with the quota's message.
func TestWaitForRoomEnds(t *testing.T) {
	t.Parallel()
	s, p := onSimulation(t)
	var waited atomic.Int64
	c := p.clusters[0]
	c.options.Progress = func(now env.Progress) { waited.Store(max(waited.Load(), int64(now.Layers))) }
	c.roomWait = time.Second
	s.quota.Store(1)
	s.mu.Lock()
	s.pods["foreign"] = &simulated{}
	s.mu.Unlock()
	_, err := p.Start(t.Context(), env.Spec{Image: "a"})
	if !errors.Is(err, env.ErrInfrastructure) || !strings.Contains(err.Error(), "exceeded quota") {
		t.Errorf("error %v", err)
	}
	if n := c.queue.len(); n != 0 || waited.Load() != 1 {
		t.Errorf("%d still wait, %d were shown", n, waited.Load())
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
