package env

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// PrepareTimeout limits each command of Spec.Prepare.
const PrepareTimeout = 30 * time.Minute

// RunPrepare runs the command lines of Spec.Prepare as the guest's own user. It stops at the first that fails, with
// a *PrepareError.
func (s *GuestSandbox) RunPrepare(ctx context.Context, lines []string) error {
	for i, line := range lines {
		result, err := s.Prepare(ctx, Command{Line: line, Timeout: PrepareTimeout})
		if err != nil {
			return err
		}
		if result.ExitCode != 0 || result.TimedOut {
			return &PrepareError{Step: i + 1, Steps: len(lines), Line: line, Result: result}
		}
	}
	return nil
}

// PrepareError reports that one of a spec's Prepare commands failed. The task is at fault, so retrying does not
// help.
type PrepareError struct {
	Step, Steps int
	Line        string
	Result      Result
}

func (e *PrepareError) Error() string {
	return failedStep("prepare", e.Step, e.Steps, e.Line, e.Result)
}

// failedStep describes the failure of one command of several.
func failedStep(what string, step, steps int, line string, r Result) string {
	how := fmt.Sprintf("exit code %d", r.ExitCode)
	if r.TimedOut {
		how = fmt.Sprintf("no end after %v", PrepareTimeout)
	}
	said := slices.Concat(r.Stderr.Head, r.Stderr.Tail)
	if len(said) == 0 {
		said = slices.Concat(r.Stdout.Head, r.Stdout.Tail)
	}
	said = said[max(0, len(said)-500):]
	return fmt.Sprintf("%s command %d of %d failed with %s: %s\n%s", what, step, steps, how, line, said)
}
