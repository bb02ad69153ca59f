package run

import (
	"errors"
	"fmt"
	"time"
)

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

// Error tells the value; the stack is for the log.
func (e *PanicError) Error() string { return fmt.Sprintf("rollout panicked: %v", e.Value) }

// delay before the given retry, the first being 1: doubled each time, up to the limit, and then up to a half taken off by
// the attempt's own random number, so that what failed together does not come back together.
func (o Options) delay(a Job, retry int) time.Duration {
	d := o.MaxBackoff
	if shift := retry - 1; shift < 32 && o.Backoff<<shift > 0 {
		d = min(o.Backoff<<shift, o.MaxBackoff)
	}
	half := uint64(d / 2)
	if half == 0 {
		return d
	}
	return d - time.Duration(uint64(a.Seed(0, retry))%half)
}
