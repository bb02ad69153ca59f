package run

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/agent"
)

// runs plays a stream to its end and returns its outcomes and its error.
func runs(ctx context.Context, e *Engine, jobs iter.Seq[Job]) (out []Outcome, err error) {
	for o, streamErr := range e.Stream(ctx, jobs) {
		if streamErr != nil {
			err = streamErr
			continue
		}
		out = append(out, o)
	}
	return out, err
}

// Whatever workers, failures, journal, interrupts and consumer do, each job is played once, recorded before it is
// handed out, and handed out at most once. All are handed out unless somebody stops the run. Jobs are requested one at
// a time.
func TestStreamLosesNothingAndRepeatsNothing(t *testing.T) {
	for seed := range uint64(400) {
		synctest.Test(t, func(t *testing.T) {
			newStreamCase(seed).play(t)
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// streamCase is a random case of a stream.
type streamCase struct {
	rng                         *rand.Rand
	jobs, workers, known        int
	leave                       int           // the consumer leaves after that many outcomes, unless negative
	cancel                      time.Duration // of the context, unless zero
	drain, slow, runner, source time.Duration
	failing                     float64
	retries                     int

	mu      sync.Mutex
	results map[Job]int // results of the runner
	pulled  int
	begun   int
}

func newStreamCase(seed uint64) *streamCase {
	rng := rand.New(rand.NewPCG(seed, 1))
	c := &streamCase{
		rng: rng, jobs: rng.IntN(40), workers: 1 + rng.IntN(8), leave: -1, results: map[Job]int{},
		runner: time.Duration(rng.IntN(20)) * time.Second, retries: rng.IntN(3),
	}
	some := func(p float64, do func()) {
		if rng.Float64() < p {
			do()
		}
	}
	some(0.3, func() { c.known = rng.IntN(c.jobs + 1) })
	some(0.3, func() { c.leave = rng.IntN(c.jobs + 1) })
	some(0.3, func() {
		c.cancel = time.Duration(1+rng.IntN(60)) * time.Second
		c.drain = time.Duration(rng.IntN(20)) * time.Second
	})
	some(0.4, func() { c.slow = time.Duration(rng.IntN(30)) * time.Second })
	some(0.3, func() { c.source = time.Duration(rng.IntN(10)) * time.Second })
	some(0.4, func() { c.failing = rng.Float64() })
	return c
}

// sequence returns the jobs, and checks that one is requested only when a worker is free.
func (c *streamCase) sequence(ctx context.Context, t *testing.T) iter.Seq[Job] {
	return func(yield func(Job) bool) {
		for i := range c.jobs {
			select {
			case <-time.After(c.source):
			case <-ctx.Done():
				return
			}
			c.mu.Lock()
			ended := 0
			for _, n := range c.results {
				ended += n
			}
			if under := c.pulled - c.known - ended; c.pulled > c.known && under >= c.workers {
				t.Errorf("asked for a job while %d are under way with %d workers", under, c.workers)
			}
			c.pulled++
			c.mu.Unlock()
			if !yield(Job{"t", fmt.Sprint("g", i/4), i % 4}) {
				return
			}
		}
	}
}

func (c *streamCase) Run(ctx context.Context, job Job) (Result, error) {
	c.mu.Lock()
	c.begun++
	after := time.Duration(c.rng.IntN(1+int(c.runner/time.Second))) * time.Second
	fails := c.rng.Float64() < c.failing
	c.mu.Unlock()
	select {
	case <-time.After(after):
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
	if fails {
		return Result{}, errors.New("down")
	}
	return solved(), nil
}

func (c *streamCase) play(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if c.cancel > 0 {
		defer time.AfterFunc(c.cancel, cancel).Stop()
	}
	journal := &memory{kept: map[Job]Outcome{}}
	for i := range c.known {
		job := Job{"t", fmt.Sprint("g", i/4), i % 4}
		journal.kept[job] = Outcome{Job: job, Result: solved(), Tries: 1}
	}
	ends := map[Job]int{}
	e := &Engine{Runner: c, Journal: journal, Options: Options{
		Workers: c.workers, Retries: c.retries - 1, Drain: c.drain, Observe: func(ev Event) {
			switch ev.Kind {
			case Finished, Failed:
				if _, ok := journal.Find(ev.Job); !ok {
					t.Errorf("%v is told of before it is recorded", ev.Job)
				}
				ends[ev.Job]++
				c.mu.Lock()
				c.results[ev.Job]++
				c.mu.Unlock()
			}
		},
	}}
	got := map[Job]Outcome{}
	var err error
	left := false
	for o, streamErr := range e.Stream(ctx, c.sequence(ctx, t)) {
		if err != nil {
			t.Error("something came after the error")
		}
		if err = streamErr; err != nil {
			continue
		}
		if _, twice := got[o.Job]; twice {
			t.Errorf("%v came twice", o.Job)
		}
		if _, ok := journal.Find(o.Job); !ok {
			t.Errorf("%v came before it was recorded", o.Job)
		}
		got[o.Job] = o
		time.Sleep(c.slow)
		if len(got) == c.leave {
			left = true
			break
		}
	}
	c.check(t, got, ends, journal.kept, err, left)
}

func (c *streamCase) check(
	t *testing.T, got map[Job]Outcome, ends map[Job]int, kept map[Job]Outcome, err error, left bool,
) {
	for job, n := range ends {
		if n != 1 {
			t.Errorf("%v ended %d times", job, n)
		}
	}
	if len(ends) != len(kept)-c.known {
		t.Errorf("%d ended, %d recorded", len(ends), len(kept)-c.known)
	}
	switch {
	case left && err != nil:
		t.Errorf("an error after the range was left: %v", err)
	case left:
	case err != nil && (c.cancel == 0 || !errors.Is(err, ErrInterrupted)):
		t.Errorf("error %v", err)
	case err == nil && len(got) != c.jobs:
		t.Errorf("%d outcomes of %d jobs", len(got), c.jobs)
	case err != nil && len(got) < len(ends):
		t.Errorf("%d attempts ended, %d outcomes came", len(ends), len(got))
	}
	for i, o := range slices.Collect(maps.Values(got)) {
		if o.Replayed != (ends[o.Job] == 0) || o.Tries == 0 {
			t.Errorf("outcome %d: %+v", i, o)
		}
	}
}

// If the consumer leaves the range, running rollouts are ended, and neither a job nor a goroutine is left.
func TestStreamIsLeftEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside, begun atomic.Int64
		runner := RunnerFunc(func(ctx context.Context, job Job) (Result, error) {
			begun.Add(1)
			inside.Add(1)
			defer inside.Add(-1)
			if job.Index == 0 {
				return solved(), nil
			}
			<-ctx.Done()
			time.Sleep(time.Second) // a sandbox is removed
			r := solved()
			r.StopReason = agent.Interrupted
			return r, nil
		})
		j := &memory{}
		e := &Engine{Runner: runner, Journal: j, Options: Options{Workers: 4, Drain: time.Hour}}
		start := time.Now()
		for o, err := range e.Stream(t.Context(), slices.Values(Plan([]string{"a"}, 100))) {
			if err != nil || o.Index != 0 {
				t.Errorf("got %+v, %v", o, err)
			}
			synctest.Wait() // until all workers have a job
			break
		}
		if inside.Load() != 0 || begun.Load() != 5 || time.Since(start) != time.Second || len(j.kept) != 1 {
			t.Errorf("%d under way, %d begun, %v later, %d recorded",
				inside.Load(), begun.Load(), time.Since(start), len(j.kept))
		}
	})
}

// A slow consumer holds up no worker.
func TestStreamWithASlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := RunnerFunc(func(context.Context, Job) (Result, error) {
			time.Sleep(time.Minute)
			return solved(), nil
		})
		var last time.Time
		e := &Engine{Runner: runner, Options: Options{Workers: 2, Observe: func(Event) { last = time.Now() }}}
		start := time.Now()
		n := 0
		for _, err := range e.Stream(t.Context(), slices.Values(Plan([]string{"a"}, 10))) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			time.Sleep(time.Hour)
		}
		if n != 10 || last.Sub(start) != 5*time.Minute {
			t.Errorf("%d outcomes, the last rollout ended after %v", n, last.Sub(start))
		}
	})
}

// Jobs can depend on outcomes: as in training, only a limited number of groups is admitted beyond those that were used.
func TestStreamByAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const group, ahead, steps = 4, 2, 20
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		used := make(chan struct{}, steps)
		for range ahead {
			used <- struct{}{}
		}
		admitted := 0
		jobs := func(yield func(Job) bool) {
			for g := 0; ; g++ {
				select {
				case <-used:
				case <-ctx.Done():
					return
				}
				admitted++
				for i := range group {
					if !yield(Job{"t", fmt.Sprint(g), i}) {
						return
					}
				}
			}
		}
		runner := RunnerFunc(func(_ context.Context, job Job) (Result, error) {
			time.Sleep(time.Duration(1+job.Index) * time.Minute)
			return solved(), nil
		})
		members, trained := map[string]int{}, 0
		for o, err := range (&Engine{Runner: runner, Options: Options{Workers: 64}}).Stream(ctx, jobs) {
			if err != nil {
				t.Fatal(err)
			}
			if members[o.Group]++; members[o.Group] < group {
				continue
			}
			time.Sleep(time.Minute) // an update
			if trained++; trained == steps {
				cancel()
				break
			}
			used <- struct{}{}
		}
		if trained != steps || admitted > steps+ahead {
			t.Errorf("%d groups admitted for %d trained", admitted, trained)
		}
	})
}

// An error reaches the consumer even while the job sequence waits for the consumer.
func TestStreamTellsAnErrorToAConsumerThatIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("the key was refused")
		told := make(chan struct{})
		jobs := func(yield func(Job) bool) {
			if yield(Job{"t", "g", 0}) {
				<-told
				yield(Job{"t", "g", 1})
			}
		}
		runner := RunnerFunc(func(context.Context, Job) (Result, error) {
			time.Sleep(time.Second)
			return Result{}, Abort(bad)
		})
		n := 0
		for _, err := range (&Engine{Runner: runner}).Stream(t.Context(), jobs) {
			if !errors.Is(err, bad) {
				t.Errorf("got %v", err)
			}
			n++
			close(told)
		}
		if n != 1 {
			t.Errorf("%d pairs came", n)
		}
	})
}

func TestStreamRefusesAJobTwice(t *testing.T) {
	runner := RunnerFunc(func(context.Context, Job) (Result, error) { return solved(), nil })
	e := &Engine{Runner: runner, Options: Options{Workers: 1}}
	out, err := runs(t.Context(), e, slices.Values([]Job{{"a", "g", 1}, {"b", "g", 1}}))
	if err == nil || !strings.Contains(err.Error(), "twice") || len(out) > 1 {
		t.Errorf("%d outcomes, %v", len(out), err)
	}
}

func TestStreamInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := RunnerFunc(func(_ context.Context, job Job) (Result, error) {
			time.Sleep(time.Duration(1+job.Index) * time.Minute)
			return solved(), nil
		})
		why := errors.New("Ctrl-C")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 90*time.Second, why)
		defer cancel()
		e := &Engine{Runner: runner, Options: Options{Workers: 3, Drain: time.Hour}}
		out, err := runs(ctx, e, slices.Values(Plan([]string{"a"}, 9)))
		// a0 and a3 take their worker's first five minutes: rollouts begun before the interrupt are played to their
		// end.
		if !errors.Is(err, ErrInterrupted) || !errors.Is(err, why) || len(out) != 4 {
			t.Errorf("%d outcomes, %v", len(out), err)
		}
	})
}
