package env

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// PrepareTimeout limits each command of Spec.Prepare.
const PrepareTimeout = 30 * time.Minute

// RunPrepare runs the command lines of Spec.Prepare as the guest's own user. Errors are as those of [RunLines].
func (s *GuestSandbox) RunPrepare(ctx context.Context, lines []string) error {
	return RunLines(ctx, lines, s.Prepare)
}

// RunLines runs the command lines of Spec.Prepare. It stops at the first that fails, with a *PrepareError.
func RunLines(ctx context.Context, lines []string, run func(context.Context, Command) (Result, error)) error {
	for i, line := range lines {
		result, err := run(ctx, Command{Line: line, Timeout: PrepareTimeout})
		if err != nil {
			return err
		}
		if result.ExitCode != 0 || result.TimedOut {
			return &PrepareError{Step: i + 1, Steps: len(lines), Line: line, Result: result}
		}
	}
	return nil
}

// PrepareCopy runs the spec's Prepare commands on a repository that was copied in. The command user must be able to
// change the files that the guest's user created, so it gets all of them, but no folder that is only shown there.
func (s *GuestSandbox) PrepareCopy(ctx context.Context, spec Spec) error {
	h := s.Hello()
	if err := s.RunPrepare(ctx, spec.Prepare); err != nil || len(spec.Prepare) == 0 || h.CommandUID == h.UID {
		return err
	}
	literal := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`) // in a pattern
	line := "find " + ShellQuote(spec.Dir)
	for _, f := range spec.Shown {
		line += " -path " + ShellQuote(literal.Replace(f.Path)) + " -prune -o"
	}
	result, err := s.Prepare(ctx, Command{
		Line: fmt.Sprintf("%s -exec chown -h %d:%d {} +", line, h.CommandUID, h.CommandGID), Timeout: PrepareTimeout,
	})
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("give %s to the command user: exit code %d: %s", spec.Dir, result.ExitCode, result.Stderr.Head)
	}
	return err
}

// PrepareError reports that one of a spec's Prepare commands failed. The task is at fault, so retrying does not
// help.
type PrepareError struct {
	Step, Steps int
	Line        string
	Result      Result
}

func (e *PrepareError) Error() string { return e.describe("prepare") }

// describe describes the failure of one command of several.
func (e *PrepareError) describe(what string) string {
	how := fmt.Sprintf("exit code %d", e.Result.ExitCode)
	if e.Result.TimedOut {
		how = fmt.Sprintf("no end after %v", PrepareTimeout)
	}
	// Some package managers print their errors to one of them, and warnings to the other.
	said := append(lastLines(e.Result.Stdout), lastLines(e.Result.Stderr)...)
	return fmt.Sprintf("%s command %d of %d failed with %s: %s\n%s", what, e.Step, e.Steps, how, e.Line, said)
}

// lastLines returns the end of what a command has printed, whole lines if possible.
func lastLines(o Output) []byte {
	const most = 1500
	said := slices.Concat(o.Head, o.Tail)
	if len(said) > most {
		said = said[len(said)-most:]
		if _, rest, ok := bytes.Cut(said, []byte("\n")); ok && len(rest) > 0 {
			said = rest
		}
	}
	if len(said) > 0 && said[len(said)-1] != '\n' {
		said = append(said, '\n')
	}
	return said
}
