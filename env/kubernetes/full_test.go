package kubernetes

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepswe/env"
)

// More attempts than a cluster has room for all get their original files, each of another image: whoever needs an
// original gives its place to it, idle originals go, and new sandboxes wait.
func TestOriginalsInAFullCluster(t *testing.T) {
	t.Parallel()
	s, p := onSimulation(t)
	const room, attempts = 3, 6
	s.quota.Store(room)
	var working sync.WaitGroup
	var running atomic.Int64
	full := make(chan struct{}) // before the first original is asked for
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
