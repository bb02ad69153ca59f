package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
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
	// Workers is the number of rollouts at once [16].
	Workers int
	// Deadline ends a rollout [none]. It guards against one that hangs: limits that are part of the task belong to the
	// Runner, which can end a rollout in an orderly way.
	Deadline time.Duration
	// Retries is how often an attempt is tried again after an infrastructure failure [2]; never when negative.
	Retries int
	// Backoff before the first retry [1 s], doubled up to MaxBackoff [1 min].
	Backoff    time.Duration
	MaxBackoff time.Duration
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
	outcomes, todo, err := e.replay(plan)
	if err != nil {
		return outcomes, err
	}
	jobs := make([]Job, 0, len(todo))
	place, size := make(map[Job]int, len(todo)), make(map[string]int)
	for _, i := range todo {
		jobs = append(jobs, plan[i])
		place[key(plan[i])] = i
		size[plan[i].Group]++
	}
	ended := 0
	for o, streamErr := range e.stream(ctx, slices.Values(jobs), size) {
		if streamErr != nil {
			err = streamErr
			break
		}
		outcomes[place[key(o.Job)]] = o
		ended++
	}
	if ended == len(todo) && errors.Is(err, ErrInterrupted) {
		return outcomes, nil // the context ended, but nothing was left to do
	}
	return outcomes, err
}

// replay takes what the journal knows of a plan and returns the places that are left.
func (e *Engine) replay(plan []Job) ([]Outcome, []int, error) {
	outcomes := make([]Outcome, len(plan))
	seen := make(map[Job]bool, len(plan))
	var todo []int
	for i, job := range plan {
		if seen[key(job)] {
			return nil, nil, twice(job)
		}
		seen[key(job)] = true
		outcomes[i].Job = job
		if o, ok := e.find(job); ok {
			outcomes[i] = o
			continue
		}
		todo = append(todo, i)
	}
	return outcomes, todo, nil
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
