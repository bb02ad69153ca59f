package run

import (
	"context"
	"errors"
	"slices"
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
			began := time.Now()
			_, err := model.Complete(ctx, agent.Request{})
			r := solved()
			r.Times.Model = time.Since(began).Seconds()
			return r, err
		})
		out, err := (&Engine{Runner: runner, Options: Options{Workers: 8}}).Run(t.Context(), Plan([]string{"a"}, 4))
		if err != nil {
			t.Fatal(err)
		}
		waited := map[float64]bool{}
		for _, o := range out {
			if o.Times.Total != o.Times.Queue+1 || o.Times.Model != 1 {
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

// A gate follows its limit: it admits the next in turn once that has grown, and nobody while there is no room. Whoever
// has given up meanwhile is passed over.
func TestVaryingGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limit atomic.Int64
		limit.Store(3)
		gate := NewVaryingGate(func() int { return int(limit.Load()) })
		start, entered := time.Now(), make([]string, 8)
		wait := func(ctx context.Context, who int) {
			leave, err := gate.Enter(ctx)
			if err != nil {
				entered[who] = "never"
				return
			}
			entered[who] = time.Since(start).String()
			time.Sleep(time.Duration(who%3+1) * time.Second)
			leave()
		}
		var all sync.WaitGroup
		hurried, cancel := context.WithCancel(t.Context())
		for who := range 8 {
			ctx := t.Context()
			if who == 4 {
				ctx = hurried
			}
			all.Go(func() { wait(ctx, who) })
			synctest.Wait()
		}
		limit.Store(0) // which counts as 1
		cancel()
		time.Sleep(2500 * time.Millisecond)
		limit.Store(2)
		all.Wait()
		want := []string{"0s", "0s", "0s", "3s", "never", "3s", "4s", "5s"}
		if !slices.Equal(entered, want) {
			t.Errorf("they entered after %v, want %v", entered, want)
		}
	})
}
