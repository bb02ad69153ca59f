package run

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"
)

// Stream plays jobs as they come and returns their outcomes as they end.
//
// Stream iterates over jobs in a separate goroutine and requests the next one only when a worker is free, so the
// sequence may create jobs from earlier outcomes, wait, or never end. A job in the journal is returned at once,
// with Replayed set.
//
// Each outcome is recorded in the journal before it is returned, once. Outcomes that the caller has not taken yet
// wait in memory and do not block workers, so only the sequence of jobs limits how far the workers run ahead. A
// failed attempt is an outcome. If the run was not completed, the last pair has an empty Outcome and the error: ctx
// ended before the sequence did or cut an attempt short (the error wraps [ErrInterrupted]), a Runner returned an
// [Abort], the journal could not be written, or a job occurred twice.
//
// Leaving the loop early ends the running attempts, without outcomes. When the loop is left, for whatever reason,
// all goroutines have ended. So a sequence that waits must stop waiting when ctx ends, when the error has been
// returned, and before the caller leaves the loop.
func (e *Engine) Stream(ctx context.Context, jobs iter.Seq[Job]) iter.Seq2[Outcome, error] {
	return func(yield func(Outcome, error) bool) {
		r := &run{Engine: *e, seen: map[Job]bool{}}
		r.changed = sync.NewCond(&r.mu)
		r.Options = r.Options.withDefaults()
		r.Log = cmp.Or(r.Log, slog.New(slog.DiscardHandler))
		defer r.start(ctx, jobs)()
		for {
			o, ok := r.takeOutcome()
			if !ok {
				break
			}
			if !yield(o, nil) {
				return
			}
		}
		if err := r.result(ctx); err != nil {
			yield(Outcome{}, err)
		}
	}
}

type run struct {
	Engine
	admit context.Context // ends when no further jobs may start
	stop  context.CancelCauseFunc
	jobs  sync.WaitGroup // running attempts

	mu       sync.Mutex
	seen     map[Job]bool
	failures int        // consecutive
	fatal    error      // what ended the run
	cut      bool       // a running attempt was ended
	whole    bool       // the sequence of jobs ended by itself
	closed   bool       // no further jobs may start
	over     bool       // every attempt has ended
	ready    []Outcome  // outcomes that the caller has not taken yet
	changed  *sync.Cond // signals changes of ready and over
}

// start starts the goroutines of the run. end ends them and waits for them.
func (r *run) start(ctx context.Context, jobs iter.Seq[Job]) (end func()) {
	r.admit, r.stop = context.WithCancelCause(ctx)
	playing, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	all.Go(func() {
		<-r.admit.Done()
		// After the run's context has ended, running rollouts may continue for Options.Drain. Otherwise they end at
		// once.
		if ctx.Err() != nil {
			r.drain(playing)
		}
		abandon(context.Cause(r.admit))
	})
	dispatched := make(chan struct{})
	all.Go(func() {
		defer close(dispatched)
		if r.dispatch(playing, jobs) && ctx.Err() == nil { // the sequence may have ended because ctx has
			r.mu.Lock()
			defer r.mu.Unlock()
			r.whole = true
		}
	})
	all.Go(func() {
		// Tell the caller about the end even if the sequence of jobs is still waiting.
		select {
		case <-dispatched:
		case <-r.admit.Done():
		}
		r.mu.Lock()
		r.closed = true
		r.mu.Unlock()
		r.jobs.Wait()
		r.mu.Lock()
		r.over = true
		r.mu.Unlock()
		r.changed.Signal()
	})
	return func() {
		r.stop(nil)
		abandon(nil)
		all.Wait()
	}
}

// drain waits for the running rollouts, for at most Options.Drain.
func (r *run) drain(playing context.Context) {
	t := time.NewTimer(r.Options.Drain)
	defer t.Stop()
	select {
	case <-t.C:
	case <-playing.Done():
	case <-r.Options.Abandon:
	}
}

// dispatch starts each job when a worker is free, and reports whether the sequence ended by itself.
func (r *run) dispatch(playing context.Context, jobs iter.Seq[Job]) bool {
	workers := make(chan struct{}, r.Options.Workers)
	free := func() bool {
		select {
		case workers <- struct{}{}:
		case <-r.admit.Done():
		}
		return r.admit.Err() == nil
	}
	if !free() {
		return false
	}
	for job := range jobs {
		play, ok := r.beginJob(job)
		if !ok {
			return false
		}
		if !play {
			continue // the worker is still free
		}
		go func() {
			defer r.jobs.Done()
			w := &worker{places: workers, held: true, early: func() { r.observeEvent(Event{Kind: Released, Job: job}) }}
			defer w.release()
			r.attempt(context.WithValue(playing, workerKey{}, w), job)
		}()
		if !free() {
			return false
		}
	}
	return true
}

// beginJob registers a job, or returns its outcome from the journal to the caller. play reports whether to play the
// job, ok whether the run continues.
func (r *run) beginJob(job Job) (play, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed || r.admit.Err() != nil:
		return false, false
	case r.seen[key(job)]:
		r.end(twice(job))
		return false, false
	}
	r.seen[key(job)] = true
	o, replayed := r.find(job)
	if replayed {
		r.handOut(o)
		return false, true
	}
	r.jobs.Add(1)
	return true, true
}

// handOut passes an outcome to the caller of Stream. r.mu must be held.
func (r *run) handOut(o Outcome) {
	r.ready = append(r.ready, o)
	r.changed.Signal()
}

// takeOutcome waits for the next outcome. It returns false when the last attempt has ended.
func (r *run) takeOutcome() (Outcome, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.ready) == 0 {
		if r.over {
			return Outcome{}, false
		}
		r.changed.Wait()
	}
	o := r.ready[0]
	r.ready[0] = Outcome{} // lets the outcome be garbage-collected
	r.ready = r.ready[1:]
	return o, true
}

// result returns the error of a run whose attempts have ended.
func (r *run) result(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.fatal != nil:
		return r.fatal
	case r.cut || !r.whole:
		return fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx))
	}
	return nil
}

// end stops the run with its first fatal error. r.mu must be held.
func (r *run) end(err error) {
	if r.fatal == nil {
		r.fatal = err
		r.stop(err)
	}
}

func (r *run) observeEvent(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Options.Observe(e)
}

// worker is one attempt's share of Options.Workers.
type worker struct {
	places chan struct{}
	// early is called when the place was given up before the attempt had ended.
	early func()

	mu   sync.Mutex
	held bool
}

// workerKey is the key of the *worker in a rollout's context.
type workerKey struct{}

// Release makes the worker of the rollout whose context ctx is available to other rollouts, while this one
// continues, for example with grading, which a gate limits. It also applies to retries. Outside an Engine, and
// after the first call, it does nothing.
func Release(ctx context.Context) {
	if w, ok := ctx.Value(workerKey{}).(*worker); ok && w.release() {
		w.early()
	}
}

// release gives the place back. It reports whether the worker held one.
func (w *worker) release() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.held {
		return false
	}
	w.held = false
	<-w.places
	return true
}
