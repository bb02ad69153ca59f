package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"deepswe/agent"
	"deepswe/env"
)

// Engine plays jobs with a limited number of workers: all jobs of a plan with Run, or jobs as they come with
// Stream.
type Engine struct {
	Runner Runner
	// Journal remembers outcomes between runs; nil remembers nothing.
	Journal Journal
	Options Options
	// Log receives retries and failures; nil discards them.
	Log *slog.Logger
}

// Options configure an engine. A zero field means the default in brackets.
type Options struct {
	// Workers is the number of concurrent rollouts [16], not counting those that have called [Release].
	Workers int
	// Deadline ends a rollout [none]. It is a safeguard against one that hangs; limits of the task itself belong to
	// the Runner, which can end a rollout in an orderly way.
	Deadline time.Duration
	// Retries is how often an attempt is retried after an infrastructure failure [2]; negative means never.
	Retries int
	// Backoff is the wait before the first retry [1 s]; it doubles each time, up to a minute.
	Backoff time.Duration
	// MaxFailures is the number of consecutive failures, over all attempts, that stops the run [never], because
	// something is down and every other attempt would fail too.
	MaxFailures int
	// Drain is how long running rollouts may continue after the run's context has ended [not at all]. Closing
	// Abandon ends the drain early.
	Drain   time.Duration
	Abandon <-chan struct{}
	// Observe is called for every event, one at a time, on the goroutine in which it happened. It must not block.
	Observe func(Event)
}

func (o Options) withDefaults() Options {
	o.Workers, o.Retries, o.Backoff = cmp.Or(o.Workers, 16), cmp.Or(o.Retries, 2), cmp.Or(o.Backoff, time.Second)
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	return o
}

// EventKind is the kind of an Event.
type EventKind string

// The events of a run. Released is sent when an attempt gives its worker back before it ends; see [Release].
const (
	Started  EventKind = "started"
	Retrying EventKind = "retrying"
	Released EventKind = "released"
	Finished EventKind = "finished"
	Failed   EventKind = "failed"
)

// Event reports something about an attempt.
type Event struct {
	Kind EventKind
	Job  Job
	// Outcome belongs to Finished and Failed.
	Outcome *Outcome
	// Err and Delay belong to Retrying.
	Err   error
	Delay time.Duration
}

// Run plays the attempts and returns their outcomes in the plan's order. Attempts that are already in the journal are
// not played again. A failed attempt is an outcome, not an error of Run.
//
// An error means that the plan was not completed: ctx ended (the error wraps [ErrInterrupted] and the context's
// cause), a Runner returned an [Abort], or the journal could not be written. The outcomes so far are returned with
// it; those of unfinished attempts have Tries 0.
func (e *Engine) Run(ctx context.Context, plan []Job) ([]Outcome, error) {
	outcomes := make([]Outcome, len(plan))
	place := make(map[Job]int, len(plan))
	var jobs []Job // jobs that are not in the journal
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
	}
	left := len(jobs)
	for o, err := range e.Stream(ctx, slices.Values(jobs)) {
		switch {
		case err == nil:
			outcomes[place[key(o.Job)]] = o
			left--
		case left == 0 && errors.Is(err, ErrInterrupted): // ctx ended when there was nothing left to do
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

// Errors that decide how a run continues.
var (
	// ErrInterrupted reports that the run was stopped before its plan was done. Finished attempts are in the
	// journal.
	ErrInterrupted = errors.New("run interrupted")
	// ErrDeadline is the cause of a rollout's context that was ended by Options.Deadline.
	ErrDeadline = errors.New("rollout exceeded its deadline")
)

// Abort marks an error because of which every other attempt would fail too: a rejected API key, an unknown model, a
// full disk. It stops the whole run.
func Abort(err error) error {
	if err == nil {
		return nil
	}
	return &abortError{err}
}

type abortError struct{ err error }

func (e *abortError) Error() string { return e.err.Error() }
func (e *abortError) Unwrap() error { return e.err }

// PanicError is a recovered panic of a Runner. It is not retried, because the same code would probably panic again.
type PanicError struct {
	Value any
	Stack []byte
}

// Error returns the panic's value. The stack is for the log.
func (e *PanicError) Error() string { return fmt.Sprintf("rollout panicked: %v", e.Value) }

// delay returns the wait before a retry, counted from 1. It doubles each time, and is shortened by a random part of
// up to one half, so that attempts that failed together are not retried together.
func (o Options) delay(j Job, retry int) time.Duration {
	d := env.Backoff(retry, o.Backoff, time.Minute)
	half := uint64(d / 2)
	if half == 0 {
		return d
	}
	return d - time.Duration(uint64(j.Seed(0, retry))%half)
}

// attempt plays one attempt to its end, including retries.
func (r *run) attempt(playing context.Context, job Job) {
	r.observeEvent(Event{Kind: Started, Job: job})
	start := time.Now()
	var waited waits
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
			r.cutShort(nil) // the retry was abandoned: a resumed run has all retries again
			return
		}
		res.Times.settle(&waited, time.Since(start))
		r.finish(Outcome{Job: job, Result: res, Tries: try}, err)
		return
	}
}

// cutShort records that an attempt ended without an outcome, with the fatal error, if any.
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

// again reports whether to retry, after waiting until the retry is due.
func (r *run) again(j Job, try int, err error) bool {
	if _, panicked := errors.AsType[*PanicError](err); panicked || try > r.Options.Retries {
		return false
	}
	delay := r.Options.delay(j, try)
	r.Log.Warn("rollout failed, retrying",
		"task", j.Task, "attempt", j.Index, "try", try, "delay", delay, "error", err)
	r.observeEvent(Event{Kind: Retrying, Job: j, Err: err, Delay: delay})
	return env.Sleep(r.admit, delay) == nil
}

// finish records the outcome, reports it to the observer, and then passes it on.
func (r *run) finish(out Outcome, err error) {
	kind := Finished
	if err != nil {
		kind = Failed
		out.Err, out.Reward = err.Error(), nil
		out.StopReason = cmp.Or(out.StopReason, stopReason(err))
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
		r.end(fmt.Errorf("%d attempts in a row failed, the last one: %w", r.failures, err))
	}
	r.Options.Observe(Event{Kind: kind, Job: out.Job, Outcome: &out})
	r.handOut(out)
}

func stopReason(err error) agent.StopReason {
	if errors.Is(err, agent.ErrModelUnavailable) {
		return agent.ModelError
	}
	return agent.SandboxError
}
