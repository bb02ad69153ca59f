package cli

import (
	"context"
	"errors"
	"fmt"

	"deepswe/agent"
	"deepswe/env"
	"deepswe/env/disk"
)

// The exit codes of all commands. They are part of the command line's contract.
const (
	ExitDone        = 0   // done; for solve, the agent submitted a patch
	ExitInternal    = 1   // a bug in deepswe
	ExitUsage       = 2   // the command line or the input is wrong
	ExitUnsolved    = 3   // finished without a patch, or some tasks failed
	ExitLimit       = 4   // a limit was reached; the patch so far was saved
	ExitModel       = 5   // the model endpoint failed
	ExitSandbox     = 6   // the sandbox failed
	ExitInterrupted = 130 // stopped by the user
)

// ExitError is an error with an exit code. If Err is nil, there is nothing left to print.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Exit returns an error that ends the program with a code and prints nothing; nil for [ExitDone].
func Exit(code int) error {
	if code == ExitDone {
		return nil
	}
	return &ExitError{Code: code}
}

// Usage marks err as a usage error (exit code 2). It returns nil for nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{Code: ExitUsage, Err: err}
}

// Usagef returns a usage error with a formatted message.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// ExitCode returns the exit code for err: its own, if it has one, otherwise that of the first known cause.
func ExitCode(err error) int {
	if err == nil || errors.Is(err, ErrReaderGone) {
		return ExitDone
	}
	own, ok := errors.AsType[*ExitError](err)
	switch {
	case ok:
		return own.Code
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.Is(err, agent.ErrModelUnavailable), errors.Is(err, agent.ErrContextOverflow):
		return ExitModel
	case errors.Is(err, env.ErrInfrastructure):
		return ExitSandbox
	case errors.Is(err, disk.ErrDamaged):
		return ExitUsage
	default:
		return ExitInternal
	}
}

// Interrupted reports whether err results from the user's request to stop.
func Interrupted(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled)
}
