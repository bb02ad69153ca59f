package run

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/agent"
)

type slowModel struct{}

func (m slowModel) Complete(context.Context, agent.Request) (agent.Reply, error) {
	time.Sleep(time.Second)
	return agent.Reply{}, nil
}

func TestGateBoundsModelCallsAndChargesTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := NewGate(1)
		model := gate.Guard(slowModel{})
		runner := RunnerFunc(func(ctx context.Context, _ Job) (Result, error) {
			_, err := model.Complete(ctx, agent.Request{})
			return solved(), err
		})
		out, err := (&Engine{Runner: runner, Options: Options{Workers: 8}}).Run(t.Context(), Plan([]string{"a"}, 4))
		if err != nil {
			t.Fatal(err)
		}
		waited := map[float64]bool{}
		for _, o := range out {
			if o.Times.Total != o.Times.Queue+1 {
				t.Errorf("%+v: a second of work and the rest waiting", o.Times)
			}
			waited[o.Times.Queue] = true
		}
		for _, want := range []float64{0, 1, 2, 3} {
			if !waited[want] {
				t.Errorf("nobody waited %v s: %v", want, waited)
			}
		}
	})
}

func TestGateBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{0, 2} {
			gate := NewGate(n)
			var wg sync.WaitGroup
			var inside atomic.Int64
			for range 5 {
				wg.Go(func() {
					leave, err := gate.Enter(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					inside.Add(1)
					time.Sleep(time.Second)
					inside.Add(-1)
					leave()
				})
			}
			synctest.Wait()
			want := int64(5)
			if n > 0 {
				want = int64(n)
			}
			if got := inside.Load(); got != want {
				t.Errorf("gate for %d: %d inside", n, got)
			}
			wg.Wait()
			if got := inside.Load(); got != 0 {
				t.Errorf("gate for %d: %d inside at the end", n, got)
			}
		}
	})
}

func TestGateGivesUpWithTheContext(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	full := NewGate(1)
	if _, err := full.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, gate := range []*Gate{full, NewGate(0)} {
		if _, err := gate.Enter(ctx); !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
	}
}
