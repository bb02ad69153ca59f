package run

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"
)

// Stream plays jobs as they come and returns their outcomes as they end.
//
// The sequence of jobs is ranged over in a goroutine of its own, and asked for the next job only when a worker is free:
// it may create jobs from the outcomes so far, wait until there is something to do, or go on for ever. A job that the
// journal knows comes back at once, as Replayed. The attempts of a group come one after the other; the group is done
// when the sequence has gone on to another group, or has ended, and the last attempt of the group has ended.
//
// Each outcome is in the journal before it is handed out, and is handed out once. Outcomes that nobody has taken yet
// wait in memory and hold up no worker, so it is the sequence of jobs that bounds how far the workers run ahead. A
// failed attempt is an outcome. The last pair has the error, with an empty Outcome, if the run was not finished: one
// that wraps [ErrInterrupted] when ctx ended before the sequence did or cut an attempt short, what a Runner marked with
// [Abort], a journal that cannot be written, or a job that came twice.
//
// Leaving the range early ends the attempts under way, without outcomes. Whichever way the range ends, every goroutine
// has ended before the statement after it. A sequence of jobs that waits must therefore stop waiting when ctx ends,
// when the error has been handed out, and before the range is left.
func (e *Engine) Stream(ctx context.Context, jobs iter.Seq[Job]) iter.Seq2[Outcome, error] {
	return e.stream(ctx, jobs, nil)
}

// stream is Stream for groups whose sizes are known, unless sizes is nil.
func (e *Engine) stream(ctx context.Context, jobs iter.Seq[Job], sizes map[string]int) iter.Seq2[Outcome, error] {
	return func(yield func(Outcome, error) bool) {
		r := &run{Engine: *e, seen: map[Job]bool{}, groups: newGroups(sizes)}
		r.changed = sync.NewCond(&r.mu)
		r.Options = r.Options.withDefaults()
		if r.Log == nil {
			r.Log = slog.New(slog.DiscardHandler)
		}
		defer r.start(ctx, jobs)()
		for {
			o, ok := r.take()
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

// run is the state of one range over a Stream.
type run struct {
	Engine
	admit context.Context // ends when no further job is begun
	stop  context.CancelCauseFunc
	jobs  sync.WaitGroup // attempts under way

	mu       sync.Mutex
	seen     map[Job]bool
	groups   groups
	failures int        // in a row
	fatal    error      // what ended the run
	cut      bool       // an attempt under way was ended
	whole    bool       // the sequence of jobs came to its own end
	closed   bool       // no job is begun any more
	over     bool       // every attempt has ended
	ready    []Outcome  // not taken yet
	changed  *sync.Cond // of ready and over
}

// start begins the goroutines of the run and returns what ends them and waits for them.
func (r *run) start(ctx context.Context, jobs iter.Seq[Job]) (end func()) {
	r.admit, r.stop = context.WithCancelCause(ctx)
	playing, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	all.Go(func() {
		<-r.admit.Done()
		// Rollouts under way outlive the run's context by the drain; any other end ends them at once.
		if ctx.Err() != nil {
			r.drain(playing)
		}
		abandon(context.Cause(r.admit))
	})
	dispatched := make(chan struct{})
	all.Go(func() {
		defer close(dispatched)
		if r.dispatch(playing, jobs) && ctx.Err() == nil { // a sequence may end because the context has
			r.mu.Lock()
			defer r.mu.Unlock()
			r.whole = true
			r.groupDone(r.groups.close())
		}
	})
	all.Go(func() {
		// The consumer hears of the end even while the sequence of jobs still waits for something.
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

// drain waits for the rollouts under way, at most as long as Options.Drain.
func (r *run) drain(playing context.Context) {
	t := time.NewTimer(r.Options.Drain)
	defer t.Stop()
	select {
	case <-t.C:
	case <-playing.Done():
	case <-r.Options.Abandon:
	}
}

// dispatch begins the jobs, each when a worker is free, and reports whether the sequence came to its end.
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
		play, ok := r.begin(job)
		if !ok {
			return false
		}
		if !play {
			continue // the worker is still free
		}
		go func() {
			defer r.jobs.Done()
			w := &worker{places: workers, held: true}
			defer w.release()
			r.attempt(context.WithValue(playing, workerKey{}, w), job)
		}()
		if !free() {
			return false
		}
	}
	return true
}

// begin counts the job in, or hands out what the journal has of it. It reports whether the job is to be played, and
// whether the run goes on.
func (r *run) begin(job Job) (play, ok bool) {
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
	r.groupDone(r.groups.begin(job, replayed))
	if replayed {
		r.handOut(o)
		return false, true
	}
	r.jobs.Add(1)
	return true, true
}

// handOut gives the outcome to the consumer. The caller holds r.mu.
func (r *run) handOut(o Outcome) {
	r.ready = append(r.ready, o)
	r.changed.Signal()
}

// take waits for the next outcome; there is none after the last attempt has ended.
func (r *run) take() (Outcome, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.ready) == 0 {
		if r.over {
			return Outcome{}, false
		}
		r.changed.Wait()
	}
	o := r.ready[0]
	r.ready[0] = Outcome{} // the array must not keep it
	r.ready = r.ready[1:]
	return o, true
}

// result is the error of a run whose attempts have ended.
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

// end stops the run with the first fatal error. The caller holds r.mu.
func (r *run) end(err error) {
	if r.fatal == nil {
		r.fatal = err
		r.stop(err)
	}
}

// observe reports an event to the observer.
func (r *run) observe(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Options.Observe(e)
}

// groupDone reports a group that is done, unless it is nil. The caller holds r.mu.
func (r *run) groupDone(g *group) {
	if g != nil {
		r.Options.Observe(Event{Kind: GroupDone, Job: *g.last})
	}
}

// groups counts the attempts of each group that have not ended.
type groups struct {
	open map[string]*group
	// sized is set where the sizes were known beforehand. Otherwise more attempts may follow until another group
	// begins.
	sized   bool
	current *group
}

type group struct {
	name   string
	left   int  // attempts begun that have not ended
	closed bool // no attempt follows
	last   *Job // that was played and ended; nil while all were found in the journal
}

func newGroups(sizes map[string]int) groups {
	g := groups{open: make(map[string]*group), sized: sizes != nil}
	for name, n := range sizes {
		g.open[name] = &group{name: name, left: n, closed: true}
	}
	return g
}

// begin counts a job in. With the first one of a group it closes the group before, and returns that if it is done.
func (g *groups) begin(job Job, replayed bool) (done *group) {
	if g.sized {
		return nil
	}
	if g.current == nil || g.current.name != job.Group {
		done = g.close()
		g.current = g.open[job.Group]
		if g.current == nil {
			g.current = &group{name: job.Group}
			g.open[job.Group] = g.current
		}
		g.current.closed = false
	}
	if !replayed {
		g.current.left++
	}
	return done
}

// end counts a job out, and returns its group if that is done.
func (g *groups) end(job Job) (done *group) {
	c := g.open[job.Group]
	c.left--
	c.last = &job
	return g.done(c)
}

// close ends the current group, and returns it if it is done.
func (g *groups) close() (done *group) {
	c := g.current
	if c == nil {
		return nil
	}
	g.current, c.closed = nil, true
	return g.done(c)
}

// done forgets a group without a job to come, and returns it if it had one that was played.
func (g *groups) done(c *group) *group {
	if !c.closed || c.left > 0 {
		return nil
	}
	delete(g.open, c.name)
	if c.last == nil {
		return nil
	}
	return c
}
