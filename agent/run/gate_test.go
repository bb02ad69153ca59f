package run

import (
	"context"
	"errors"
	"sync"
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
		if gate.Inside() != 0 || gate.Waiting() != 0 {
			t.Errorf("%d inside, %d waiting at the end", gate.Inside(), gate.Waiting())
		}
	})
}

func TestGateCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{0, 2} {
			gate := NewGate(n)
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() {
					leave, err := gate.Enter(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Second)
					leave()
				})
			}
			synctest.Wait()
			inside, waiting := 5, 0
			if n > 0 {
				inside, waiting = n, 5-n
			}
			if gate.Inside() != inside || gate.Waiting() != waiting {
				t.Errorf("gate for %d: %d inside, %d waiting", n, gate.Inside(), gate.Waiting())
			}
			wg.Wait()
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
