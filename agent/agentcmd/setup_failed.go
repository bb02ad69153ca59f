package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/setup"
)

// setupFailed says why a set-up has failed and what to try next, as flags to copy. On a terminal, the user may go on
// without, for this run.
func (j *job) setupFailed(ctx context.Context, commands []string, failed *env.SetupError) error {
	reason, next := setup.Explain(failed)
	what, _, _ := strings.Cut(failed.Error(), "\n")
	text := what
	if reason != "" {
		text += "\n" + cli.Cut(cli.Plain(reason), 300)
	}
	fix := "--setup CMD runs another command"
	if i := failed.Step - 1; next != "" && i < len(commands) {
		other := slices.Clone(commands)
		other[i] = next
		fix = "--setup " + strings.Join(quoted(other), " --setup ")
	}
	text += "\nto fix: " + fix + "\nor: --setup none goes on without"
	log := j.d.CacheDir("setup-failed.log")
	r := failed.Result
	if disk.WriteFile(log, slices.Concat(r.Stdout.Head, r.Stdout.Tail, r.Stderr.Head, r.Stderr.Tail)) == nil {
		text += "\nall that it printed: " + log
	}
	err := &cli.ExitError{Code: cli.ExitSandbox, Err: errors.New(text)}
	if j.o.json || !interactive(j.d.World) {
		return err
	}
	j.watch.show(question{Failed: text})
	answer, qerr := j.questions.line(ctx)
	switch answer = strings.ToLower(answer); {
	case errors.Is(qerr, errNoAnswer), qerr == nil && answer != "y" && answer != "yes":
		return err
	case qerr != nil:
		return fmt.Errorf("ask whether to go on without the set-up: %w", qerr)
	}
	return nil
}

func quoted(words []string) []string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = env.ShellQuote(w)
	}
	return all
}
