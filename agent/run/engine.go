package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"deepswe/agent"
	"deepswe/env"
)

// Engine plays jobs with a bounded number of workers: all of a plan with Run, or as they come with Stream.
type Engine struct {
	Runner Runner
	// Journal remembers outcomes between runs; nil remembers nothing.
	Journal Journal
	Options Options
	// Log gets retries and failures; nil is silent.
	Log *slog.Logger
}

// Options of an engine. Every zero field takes the default in brackets.
type Options struct {
	// Workers is the number of rollouts at once [16], without those that have called [Release].
	Workers int
	// Deadline ends a rollout [none]. It guards against one that hangs: limits that are part of the task belong to the
	// Runner, which can end a rollout in an orderly way.
	Deadline time.Duration
	// Retries is how often an attempt is tried again after an infrastructure failure [2]; never when negative.
	Retries int
	// Backoff before the first retry [1 s], doubled up to a minute.
	Backoff time.Duration
	// MaxFailures in a row, over all attempts, stop the run: something is down, and every further attempt would fail
	// as well [off].
	MaxFailures int
	// Drain is how long rollouts under way may go on after the run's context ended [not at all]; Abandon, when closed,
	// ends the drain early.
	Drain   time.Duration
	Abandon <-chan struct{}
	// Observe is called for every event, one at a time, from the goroutine in which it happened. It must not block.
	Observe func(Event)
}

func (o Options) withDefaults() Options {
	o.Workers, o.Retries, o.Backoff = cmp.Or(o.Workers, 16), cmp.Or(o.Retries, 2), cmp.Or(o.Backoff, time.Second)
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	return o
}

// EventKind is what happened.
type EventKind string

// The events of a run. GroupDone comes after the last attempt of a group has ended; its Job is that one.
const (
	Started   EventKind = "started"
	Retrying  EventKind = "retrying"
	Finished  EventKind = "finished"
	Failed    EventKind = "failed"
	GroupDone EventKind = "group_done"
)

// Event is something that happened to an attempt, or to its group.
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
// An error means that the plan was not finished: one that wraps [ErrInterrupted] and the context's cause when ctx
// ended, what a Runner marked with [Abort], or a journal that cannot be written. The outcomes up to then come with it;
// those of attempts that did not end have Tries 0.
func (e *Engine) Run(ctx context.Context, plan []Job) ([]Outcome, error) {
	outcomes := make([]Outcome, len(plan))
	place, size := make(map[Job]int, len(plan)), map[string]int{}
	var jobs []Job // not in the journal
	for i, job := range plan {
		if _, ok := place[key(job)]; ok {
			return nil, twice(job)
		}
		place[key(job)] = i
		if o, ok := e.find(job); ok {
			outcomes[i] = o
			continue
		}
		outcomes[i].Job = job
		jobs = append(jobs, job)
		size[job.Group]++
	}
	left := len(jobs)
	for o, err := range e.stream(ctx, slices.Values(jobs), size) {
		switch {
		case err == nil:
			outcomes[place[key(o.Job)]] = o
			left--
		case left == 0 && errors.Is(err, ErrInterrupted): // the context ended, but nothing was left to do
		default:
			return outcomes, err
		}
	}
	return outcomes, nil
}

func twice(job Job) error {
	return fmt.Errorf("attempt %d of group %q is planned twice", job.Index, job.Group)
}

// find looks the job up in the journal.
func (e *Engine) find(job Job) (Outcome, bool) {
	if e.Journal == nil {
		return Outcome{}, false
	}
	o, ok := e.Journal.Find(job)
	o.Job, o.Replayed = job, true
	return o, ok
}

// Errors that decide how a run goes on.
var (
	// ErrInterrupted says that the run was stopped before its plan was done. What had ended is in the journal.
	ErrInterrupted = errors.New("run interrupted")
	// ErrDeadline is the cause of a rollout's context that ended at its own deadline.
	ErrDeadline = errors.New("rollout exceeded its deadline")
)

// Abort marks an error after which no other attempt can do better: a refused key, an unknown model, a full disk. The
// whole run stops.
func Abort(err error) error {
	if err == nil {
		return nil
	}
	return &abortError{err}
}

type abortError struct{ err error }

func (e *abortError) Error() string { return e.err.Error() }
func (e *abortError) Unwrap() error { return e.err }

// PanicError is a panic of a Runner, recovered. It is not retried: the same code is likely to do the same again.
type PanicError struct {
	Value any
	Stack []byte
}

// Error names the value; the stack is for the log.
func (e *PanicError) Error() string { return fmt.Sprintf("rollout panicked: %v", e.Value) }

// delay returns the wait before a retry, the first being 1: doubled each time, then shortened at random by up to a
// half, so that attempts that failed together do not come back together.
func (o Options) delay(j Job, retry int) time.Duration {
	d := env.Backoff(retry, o.Backoff, time.Minute)
	half := uint64(d / 2)
	if half == 0 {
		return d
	}
	return d - time.Duration(uint64(j.Seed(0, retry))%half)
}

// attempt plays one attempt to its end, retries included.
func (r *run) attempt(playing context.Context, job Job) {
	r.observe(Event{Kind: Started, Job: job})
	start := time.Now()
	var waited atomic.Int64
	playing = context.WithValue(playing, waitKey{}, &waited)
	for try := 1; ; try++ {
		res, err := r.try(playing, job)
		if playing.Err() != nil && (err != nil || res.StopReason == agent.Interrupted) {
			r.cutShort(nil)
			return
		}
		if fatal, ok := errors.AsType[*abortError](err); ok {
			r.cutShort(fmt.Errorf("attempt %d at %s: %w", job.Index, job.Task, fatal.err))
			return
		}
		if err != nil && r.again(job, try, err) {
			continue
		}
		if err != nil && r.admit.Err() != nil {
			r.cutShort(nil) // the retry was given up, not used up: a resumed run has all of them
			return
		}
		res.Times.Queue = time.Duration(waited.Load()).Seconds()
		res.Times.Total = time.Since(start).Seconds()
		r.finish(Outcome{Job: job, Result: res, Tries: try}, err)
		return
	}
}

// cutShort notes an attempt that ends without an outcome, and the fatal error that ended it, if any.
func (r *run) cutShort(fatal error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
	if fatal != nil {
		r.end(fatal)
	}
}

// try calls the Runner once, under the deadline.
func (r *run) try(ctx context.Context, j Job) (res Result, err error) {
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
	res, err = r.Runner.Run(ctx, j)
	if err != nil && errors.Is(context.Cause(ctx), ErrDeadline) {
		err = fmt.Errorf("%w of %s: %w", ErrDeadline, r.Options.Deadline, err)
	}
	return res, err
}

// again decides whether there is a retry, and waits until it is due.
func (r *run) again(j Job, try int, err error) bool {
	if _, panicked := errors.AsType[*PanicError](err); panicked || try > r.Options.Retries {
		return false
	}
	delay := r.Options.delay(j, try)
	r.Log.Warn("rollout failed, trying again",
		"task", j.Task, "attempt", j.Index, "try", try, "delay", delay, "error", err)
	r.observe(Event{Kind: Retrying, Job: j, Err: err, Delay: delay})
	return env.Sleep(r.admit, delay) == nil
}

// finish records the outcome, then reports it to the observer, then hands it out.
func (r *run) finish(out Outcome, err error) {
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
		if jerr := r.Journal.Record(out); jerr != nil {
			r.cutShort(fmt.Errorf("record attempt %d at %s: %w", out.Index, out.Task, jerr))
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures++
	if err == nil {
		r.failures = 0
	}
	if r.Options.MaxFailures > 0 && r.failures >= r.Options.MaxFailures {
		r.end(fmt.Errorf("%d rollouts in a row failed, the last one: %w", r.failures, err))
	}
	r.Options.Observe(Event{Kind: kind, Job: out.Job, Outcome: &out})
	r.groupDone(r.groups.end(out.Job))
	r.handOut(out)
}

func stopReason(err error) agent.StopReason {
	if errors.Is(err, agent.ErrModelUnavailable) {
		return agent.ModelError
	}
	return agent.SandboxError
}
