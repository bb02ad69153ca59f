package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"deepswe/agent"
)

// Engine runs the attempts of a plan.
type Engine struct {
	Runner Runner
	// Journal remembers outcomes between runs; nil remembers nothing.
	Journal Journal
	Options Options
	// Log hears of retries and failures; nil is silent.
	Log *slog.Logger
}

// Options of an engine. Every zero field takes the default in brackets.
type Options struct {
	// Workers is the number of rollouts at once [16].
	Workers int
	// Deadline ends a rollout [none]. It is the guard against one that hangs: limits that are part of the task belong
	// to the Runner, which can end a rollout in good order.
	Deadline time.Duration
	// Retries is how often an attempt is tried again after a failure of machinery [2]; negative is never.
	Retries int
	// Backoff before the first retry [1 s], doubled up to MaxBackoff [1 min].
	Backoff    time.Duration
	MaxBackoff time.Duration
	// MaxFailures in a row, over all attempts, stop the run: something is down, and going on would only fail every
	// attempt [off].
	MaxFailures int
	// Drain is how long rollouts under way may go on after the run's context ended [not at all]; Abandon, when closed, ends
	// the drain early.
	Drain   time.Duration
	Abandon <-chan struct{}
	// Observe is told of everything that happens, one event at a time, from the goroutine it happened in. It must not
	// block.
	Observe func(Event)
}

func (o Options) withDefaults() Options {
	if o.Workers <= 0 {
		o.Workers = 16
	}
	if o.Retries == 0 {
		o.Retries = 2
	}
	if o.Backoff <= 0 {
		o.Backoff = time.Second
	}
	if o.MaxBackoff <= 0 {
		o.MaxBackoff = time.Minute
	}
	return o
}

// EventKind says what happened.
type EventKind string

// What happens in a run. GroupDone comes after the last attempt of a group has ended.
const (
	Started   EventKind = "started"
	Retrying  EventKind = "retrying"
	Finished  EventKind = "finished"
	Failed    EventKind = "failed"
	GroupDone EventKind = "group_done"
)

// Event is something that happened to an attempt, or to the group of it.
type Event struct {
	Kind EventKind
	Job  Job
	// Outcome of Finished and Failed.
	Outcome *Outcome
	// Err and Delay of Retrying.
	Err   error
	Delay time.Duration
}

// Run plays the attempts and returns their outcomes in the plan's order. Those in the journal are not played again. A
// failed attempt is an outcome, not an error of Run.
//
// An error means that the plan was not finished: one that wraps [ErrInterrupted] and the context's cause when ctx ended,
// what a Runner marked with [Abort], or a journal that cannot be written. The outcomes up to then come with it; those of
// attempts that did not end have Tries 0.
func (e *Engine) Run(ctx context.Context, plan []Job) ([]Outcome, error) {
	r := &run{Engine: *e, open: map[string]int{}, outcomes: make([]Outcome, len(plan))}
	r.Options = r.Options.withDefaults()
	if r.Log == nil {
		r.Log = slog.New(slog.DiscardHandler)
	}
	todo, err := r.replay(plan)
	if err != nil {
		return r.outcomes, err
	}
	r.all(ctx, plan, todo)
	switch {
	case r.fatal != nil:
		return r.outcomes, r.fatal
	case r.unfinished.Load() > 0:
		return r.outcomes, fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx))
	}
	return r.outcomes, nil
}

// run is the state of one Run.
type run struct {
	Engine
	outcomes   []Outcome
	unfinished atomic.Int64

	mu       sync.Mutex
	open     map[string]int // attempts of a group that have not ended
	failures int            // in a row
	fatal    error
	stop     context.CancelCauseFunc
}

// replay takes what the journal knows and returns the places in the plan that are left.
func (r *run) replay(plan []Job) ([]int, error) {
	seen := make(map[Job]bool, len(plan))
	var todo []int
	for i, a := range plan {
		key := Job{Group: a.Group, Index: a.Index}
		if seen[key] {
			return nil, fmt.Errorf("plan has attempt %d of group %q twice", a.Index, a.Group)
		}
		seen[key] = true
		r.outcomes[i].Job = a
		if r.Journal != nil {
			if o, ok := r.Journal.Find(a); ok {
				o.Job, o.Replayed = a, true
				r.outcomes[i] = o
				continue
			}
		}
		r.open[a.Group]++
		todo = append(todo, i)
	}
	return todo, nil
}

// all plays the attempts at the given places with a fixed number of workers, and returns when all of them have ended.
func (r *run) all(ctx context.Context, plan []Job, todo []int) {
	admit, stop := context.WithCancelCause(ctx)
	r.stop = stop
	playing, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	var drain sync.WaitGroup
	drain.Go(func() {
		<-admit.Done()
		// Rollouts under way outlive the run's context by the drain; a fatal error ends them at once.
		if ctx.Err() != nil {
			r.drain(playing)
		}
		abandon(context.Cause(admit))
	})
	defer func() {
		abandon(nil)
		stop(nil)
		drain.Wait()
	}()

	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(r.Options.Workers, len(todo)) {
		workers.Go(func() {
			for admit.Err() == nil {
				n := int(next.Add(1)) - 1
				if n >= len(todo) {
					return
				}
				i := todo[n]
				r.attempt(admit, playing, &r.outcomes[i], plan[i])
			}
		})
	}
	workers.Wait()
	r.unfinished.Add(int64(max(0, len(todo)-int(next.Load()))))
}

// drain waits for the rollouts under way, as long as they may take.
func (r *run) drain(playing context.Context) {
	t := time.NewTimer(r.Options.Drain)
	defer t.Stop()
	select {
	case <-t.C:
	case <-playing.Done():
	case <-r.Options.Abandon:
	}
}

// attempt plays one attempt to its end, tries and all.
func (r *run) attempt(admit, playing context.Context, out *Outcome, a Job) {
	r.tell(Event{Kind: Started, Job: a})
	start := time.Now()
	var waited atomic.Int64
	playing = context.WithValue(playing, waitKey{}, &waited)
	for try := 1; ; try++ {
		res, err := r.try(playing, a)
		interrupted := playing.Err() != nil && (err != nil || res.StopReason == agent.Interrupted)
		if interrupted {
			r.unfinished.Add(1)
			return
		}
		if fatal, ok := errors.AsType[*abortError](err); ok {
			r.unfinished.Add(1)
			r.die(fmt.Errorf("attempt %d at %s: %w", a.Index, a.Task, fatal.err))
			return
		}
		if err == nil || !r.again(admit, a, try, err) {
			if err != nil && admit.Err() != nil {
				// The retry was given up, not used up: a resumed run has all of them.
				r.unfinished.Add(1)
				return
			}
			res.Times.Queue = time.Duration(waited.Load()).Seconds()
			res.Times.Total = time.Since(start).Seconds()
			*out = Outcome{Job: a, Result: res, Tries: try}
			r.finish(out, err)
			return
		}
	}
}

// try calls the Runner once, under the deadline.
func (r *run) try(ctx context.Context, a Job) (res Result, err error) {
	if r.Options.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.Options.Deadline, ErrDeadline)
		defer cancel()
	}
	defer func() {
		if v := recover(); v != nil {
			res, err = Result{}, &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	res, err = r.Runner.Run(ctx, a)
	if err != nil && errors.Is(context.Cause(ctx), ErrDeadline) {
		err = fmt.Errorf("%w of %s: %w", ErrDeadline, r.Options.Deadline, err)
	}
	return res, err
}

// again decides about a retry and waits for it.
func (r *run) again(admit context.Context, a Job, try int, err error) bool {
	if _, panicked := errors.AsType[*PanicError](err); panicked || try > r.Options.Retries {
		return false
	}
	delay := r.Options.delay(a, try)
	r.Log.Warn("rollout failed, trying again", "task", a.Task, "attempt", a.Index, "try", try, "delay", delay, "error", err)
	r.tell(Event{Kind: Retrying, Job: a, Err: err, Delay: delay})
	return wait(admit, delay)
}

// finish writes the outcome down and then tells of it.
func (r *run) finish(out *Outcome, err error) {
	kind := Finished
	if err != nil {
		kind = Failed
		out.Err, out.Reward = err.Error(), nil
		if out.StopReason == "" {
			out.StopReason = stopReason(err)
		}
		attrs := []any{"task", out.Task, "attempt", out.Index, "tries", out.Tries, "error", err}
		if p, ok := errors.AsType[*PanicError](err); ok {
			attrs = append(attrs, "stack", string(p.Stack))
		}
		r.Log.Error("rollout failed", attrs...)
	}
	if r.Journal != nil {
		if jerr := r.Journal.Record(*out); jerr != nil {
			r.die(fmt.Errorf("record attempt %d at %s: %w", out.Index, out.Task, jerr))
			return
		}
	}
	r.mu.Lock()
	r.open[out.Group]--
	last := r.open[out.Group] == 0
	r.failures++
	if err == nil {
		r.failures = 0
	}
	failures := r.failures
	r.mu.Unlock()
	if r.Options.MaxFailures > 0 && failures >= r.Options.MaxFailures {
		r.die(fmt.Errorf("%d rollouts in a row failed, the last one: %w", failures, err))
	}
	r.tell(Event{Kind: kind, Job: out.Job, Outcome: out})
	if last {
		r.tell(Event{Kind: GroupDone, Job: out.Job})
	}
}

func stopReason(err error) agent.StopReason {
	if errors.Is(err, agent.ErrModelUnavailable) {
		return agent.ModelError
	}
	return agent.SandboxError
}

// die stops the run with the first fatal error.
func (r *run) die(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fatal == nil {
		r.fatal = err
		r.stop(err)
	}
}

func (r *run) tell(e Event) {
	if r.Options.Observe == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Options.Observe(e)
}

// wait sleeps and tells whether the whole time passed.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
