package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"deepswe/agent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// solved is a result with a reward.
func solved() Result {
	return Result{Reward: new(1.0), StopReason: agent.Submitted}
}

// memory is a journal in memory.
type memory struct {
	mu   sync.Mutex
	kept map[Job]Outcome
	err  error
}

func (m *memory) Find(a Job) (Outcome, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.kept[a]
	return o, ok
}

func (m *memory) Record(o Outcome) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == nil {
		m.kept = map[Job]Outcome{}
	}
	m.kept[o.Job] = o
	return m.err
}

func TestOutcomesInThePlansOrder(t *testing.T) {
	plan := Plan([]string{"a", "b", "c"}, 4)
	runner := RunnerFunc(func(_ context.Context, a Job) (Result, error) {
		r := solved()
		r.Metrics = map[string]float64{"index": float64(a.Index)}
		return r, nil
	})
	out, err := (&Engine{Runner: runner, Options: Options{Workers: 5}}).Run(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range out {
		if o.Job != plan[i] || o.Metrics["index"] != float64(plan[i].Index) || o.Tries != 1 || o.Failed() {
			t.Errorf("place %d has %+v", i, o)
		}
	}
}

func TestTwiceInThePlan(t *testing.T) {
	_, err := (&Engine{Runner: RunnerFunc(nil)}).Run(t.Context(), []Job{{"a", "g", 1}, {"b", "g", 1}})
	if err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("got %v", err)
	}
}

func TestWorkersBoundWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside, most atomic.Int64
		runner := RunnerFunc(func(context.Context, Job) (Result, error) {
			most.Store(max(most.Load(), inside.Add(1)))
			time.Sleep(time.Second)
			inside.Add(-1)
			return solved(), nil
		})
		start := time.Now()
		e := &Engine{Runner: runner, Options: Options{Workers: 3}}
		if _, err := e.Run(t.Context(), Plan([]string{"a"}, 9)); err != nil {
			t.Fatal(err)
		}
		if most.Load() != 3 || time.Since(start) != 3*time.Second {
			t.Errorf("%d at once, %v in all: want 3 and 3s", most.Load(), time.Since(start))
		}
	})
}

func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("the daemon is gone")
		var tries atomic.Int64
		runner := RunnerFunc(func(_ context.Context, a Job) (Result, error) {
			if a.Task == "heals" && tries.Add(1) == 3 {
				return solved(), nil
			}
			return solved(), broken
		})
		var retries []Event
		o := Options{Workers: 1, Retries: 2, Backoff: time.Second, Observe: func(e Event) {
			if e.Kind == Retrying {
				retries = append(retries, e)
			}
		}}
		start := time.Now()
		out, err := (&Engine{Runner: runner, Options: o}).Run(t.Context(), Plan([]string{"heals", "stays"}, 1))
		if err != nil {
			t.Fatal(err)
		}
		if out[0].Failed() || out[0].Tries != 3 || *out[0].Reward != 1 {
			t.Errorf("healed: %+v", out[0])
		}
		if s := out[1]; !s.Failed() || s.Tries != 3 || s.Reward != nil || !strings.Contains(s.Err, broken.Error()) {
			t.Errorf("an infrastructure failure has no reward: %+v", s)
		}
		var slept time.Duration
		for i, e := range retries {
			full := time.Second << (i % 2)
			if e.Delay > full || e.Delay < full/2 || !errors.Is(e.Err, broken) {
				t.Errorf("retry %d after %v: want %v to %v", i, e.Delay, full/2, full)
			}
			slept += e.Delay
		}
		if len(retries) != 4 || time.Since(start) != slept {
			t.Errorf("%d retries, %v in all, %v of it waiting", len(retries), time.Since(start), slept)
		}
	})
}

func TestDelaysAreBounded(t *testing.T) {
	o := Options{Backoff: time.Second}
	for retry := 1; retry < 200; retry++ {
		if d := o.delay(Job{Task: "t", Index: retry}, retry); d < time.Second/2 || d > time.Minute {
			t.Errorf("retry %d waits %v", retry, d)
		}
	}
}

func TestStopReasonOfFailures(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want agent.StopReason
	}{
		{fmt.Errorf("call: %w", agent.ErrModelUnavailable), agent.ModelError},
		{errors.New("no space left"), agent.SandboxError},
	} {
		runner := RunnerFunc(func(context.Context, Job) (Result, error) { return Result{}, tt.err })
		out, err := (&Engine{Runner: runner, Options: Options{Retries: -1}}).Run(t.Context(), Plan([]string{"a"}, 1))
		if err != nil || out[0].StopReason != tt.want || out[0].Tries != 1 {
			t.Errorf("%v: stopped by %s after %d tries, %v", tt.err, out[0].StopReason, out[0].Tries, err)
		}
	}
}

func TestPanicIsAFailureOfOneRollout(t *testing.T) {
	runner := RunnerFunc(func(_ context.Context, a Job) (Result, error) {
		if a.Index == 1 {
			panic("boom")
		}
		return solved(), nil
	})
	out, err := (&Engine{Runner: runner}).Run(t.Context(), Plan([]string{"a"}, 3))
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range out {
		if o.Failed() != (i == 1) || o.Tries != 1 {
			t.Errorf("attempt %d: %+v", i, o)
		}
	}
	if !strings.Contains(out[1].Err, "boom") {
		t.Errorf("error %q", out[1].Err)
	}
}

func TestAbortStopsTheRun(t *testing.T) {
	bad := errors.New("the key was refused")
	runner := RunnerFunc(func(ctx context.Context, a Job) (Result, error) {
		if a.Index == 2 {
			return Result{}, fmt.Errorf("ask: %w", Abort(bad))
		}
		if a.Index > 2 {
			<-ctx.Done() // a fatal error also ends what is under way
			return Result{}, ctx.Err()
		}
		return solved(), nil
	})
	j := &memory{}
	e := &Engine{Runner: runner, Journal: j, Options: Options{Workers: 2}}
	out, err := e.Run(t.Context(), Plan([]string{"a"}, 50))
	if !errors.Is(err, bad) || errors.Is(err, ErrInterrupted) {
		t.Fatalf("error %v", err)
	}
	for i, o := range out {
		if (o.Tries > 0) != (i < 2) {
			t.Errorf("attempt %d: %d tries", i, o.Tries)
		}
	}
	if len(j.kept) != 2 {
		t.Errorf("%d outcomes recorded, want 2", len(j.kept))
	}
}

func TestFailuresInARowStopTheRun(t *testing.T) {
	down := errors.New("no route to host")
	var calls atomic.Int64
	runner := RunnerFunc(func(_ context.Context, a Job) (Result, error) {
		calls.Add(1)
		if a.Index == 3 {
			return solved(), nil
		}
		return Result{}, down
	})
	e := &Engine{Runner: runner, Options: Options{Workers: 1, Retries: -1, MaxFailures: 5}}
	_, err := e.Run(t.Context(), Plan([]string{"a"}, 100))
	if !errors.Is(err, down) || calls.Load() != 9 {
		t.Errorf("after %d calls: %v; want 3 failures, a success, and 5 in a row", calls.Load(), err)
	}
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := RunnerFunc(func(ctx context.Context, a Job) (Result, error) {
			<-ctx.Done()
			if a.Index == 0 {
				r := solved()
				r.StopReason, r.Reward = agent.Timeout, new(0.0)
				return r, nil
			}
			return Result{}, ctx.Err()
		})
		e := &Engine{Runner: runner, Options: Options{Deadline: time.Minute, Retries: -1}}
		out, err := e.Run(t.Context(), Plan([]string{"a"}, 2))
		if err != nil {
			t.Fatal(err)
		}
		if out[0].Failed() || out[0].StopReason != agent.Timeout || out[0].Times.Total != 60 {
			t.Errorf("one that ends in good order: %+v", out[0])
		}
		if !out[1].Failed() || !strings.Contains(out[1].Err, "deadline of 1m0s") || out[1].Reward != nil {
			t.Errorf("one that does not: %+v", out[1])
		}
	})
}

func TestInterruptDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := RunnerFunc(func(ctx context.Context, a Job) (Result, error) {
			select {
			case <-time.After(time.Duration(a.Index+1) * time.Minute):
				return solved(), nil
			case <-ctx.Done():
				r := solved()
				r.StopReason = agent.Interrupted
				return r, nil
			}
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("Ctrl-C")
		time.AfterFunc(30*time.Second, func() { cancel(why) })
		j := &memory{}
		start := time.Now()
		e := &Engine{Runner: runner, Journal: j, Options: Options{Workers: 3, Drain: 100 * time.Second}}
		out, err := e.Run(ctx, Plan([]string{"a"}, 9))
		if !errors.Is(err, ErrInterrupted) || !errors.Is(err, why) {
			t.Fatalf("error %v", err)
		}
		if d := time.Since(start); d != 130*time.Second {
			t.Errorf("ended after %v: want the 30 s before and a drain of 100 s", d)
		}
		// The first two end within the drain, the third is cut short, and no other is begun.
		for i, o := range out {
			if (o.Tries > 0) != (i < 2) {
				t.Errorf("attempt %d: %+v", i, o)
			}
		}
		if len(j.kept) != 2 {
			t.Errorf("%d outcomes recorded, want 2: one that was cut short is to be played again", len(j.kept))
		}
	})
}

func TestAbandonEndsTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := RunnerFunc(func(ctx context.Context, _ Job) (Result, error) {
			<-ctx.Done()
			return Result{}, ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		abandon := make(chan struct{})
		time.AfterFunc(2*time.Minute, func() { close(abandon) })
		start := time.Now()
		e := &Engine{Runner: runner, Options: Options{Drain: time.Hour, Abandon: abandon}}
		_, err := e.Run(ctx, Plan([]string{"a"}, 2))
		if !errors.Is(err, ErrInterrupted) || time.Since(start) != 2*time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestInterruptedRetryIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := RunnerFunc(func(context.Context, Job) (Result, error) { return Result{}, errors.New("down") })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		j := &memory{}
		o := Options{Backoff: time.Hour}
		_, err := (&Engine{Runner: runner, Journal: j, Options: o}).Run(ctx, Plan([]string{"a"}, 2))
		if !errors.Is(err, ErrInterrupted) || len(j.kept) != 0 {
			t.Errorf("%v, %d recorded", err, len(j.kept))
		}
	})
}

func TestJournalIsNotPlayedAgain(t *testing.T) {
	plan := Plan([]string{"a", "b"}, 3)
	j := &memory{}
	var calls atomic.Int64
	runner := RunnerFunc(func(context.Context, Job) (Result, error) {
		calls.Add(1)
		return solved(), nil
	})
	e := &Engine{Runner: runner, Journal: j}
	if _, err := e.Run(t.Context(), plan[:4]); err != nil {
		t.Fatal(err)
	}
	out, err := e.Run(t.Context(), plan)
	if err != nil || calls.Load() != 6 {
		t.Fatalf("%d calls, %v: want 6", calls.Load(), err)
	}
	for i, o := range out {
		if o.Replayed != (i < 4) || *o.Reward != 1 {
			t.Errorf("attempt %d: %+v", i, o)
		}
	}
}

func TestJournalThatFails(t *testing.T) {
	full := errors.New("disk full")
	runner := RunnerFunc(func(context.Context, Job) (Result, error) { return solved(), nil })
	_, err := (&Engine{Runner: runner, Journal: &memory{err: full}}).Run(t.Context(), Plan([]string{"a"}, 3))
	if !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}

func TestEventsComeInOrder(t *testing.T) {
	runner := RunnerFunc(func(context.Context, Job) (Result, error) { return solved(), nil })
	var kinds []string
	o := Options{Workers: 1, Observe: func(e Event) {
		kinds = append(kinds, fmt.Sprint(e.Kind, " ", e.Job.Group, e.Job.Index))
	}}
	if _, err := (&Engine{Runner: runner, Options: o}).Run(t.Context(), Plan([]string{"a", "b"}, 2)); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"started a0", "finished a0", "started a1", "finished a1",
		"started b0", "finished b0", "started b1", "finished b1",
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("got %q", kinds)
	}
}

// The same stream can be ranged over again, which is another run.
func TestStreamTwice(t *testing.T) {
	runner := RunnerFunc(func(context.Context, Job) (Result, error) { return solved(), nil })
	stream := (&Engine{Runner: runner, Journal: &memory{}}).Stream(t.Context(), slices.Values(Plan([]string{"a"}, 5)))
	for round := range 2 {
		n := 0
		for o, err := range stream {
			if err != nil || o.Replayed != (round == 1) {
				t.Errorf("round %d: %+v, %v", round, o, err)
			}
			n++
		}
		if n != 5 {
			t.Errorf("round %d: %d outcomes", round, n)
		}
	}
}
