package tools

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"deepswe/env"
)

//go:embed execute_bash.md
var bashDescription string

//go:embed execute_bash.json
var bashSchema string

// bash runs a command line in a fresh shell.
type bash struct{ timeout time.Duration }

func (b bash) run(ctx context.Context, sb Sandbox, c Call) (Result, error) {
	line, err := commandLine(c)
	if err != nil {
		return Result{}, err
	}
	r, err := command(ctx, sb, env.Command{Line: line, Timeout: b.timeout})
	switch {
	case err == nil:
		return b.result(r), nil
	case env.IsInfrastructure(ctx, err):
		return Result{}, err
	}
	return Result{}, tell("The command could not be run: %s.", err.Error())
}

// command runs a command in the sandbox. One that was cancelled has no result, whatever it printed until then.
func command(ctx context.Context, sb Sandbox, c env.Command) (env.Result, error) {
	r, err := sb.Run(ctx, c)
	if err == nil && r.Cancelled {
		err = cmp.Or(context.Cause(ctx), context.Canceled)
	}
	return r, err
}

// commandLine reads the command line. command, its name in other agents, is accepted for cmd.
func commandLine(c Call) (string, error) {
	p, err := newParams("execute_bash", c.Args, "cmd", "command")
	if err != nil {
		return "", err
	}
	line, ok := p.optional("cmd")
	alias, aliased := p.optional("command")
	switch {
	case ok && aliased && line != alias:
		return "", tell("cmd and command are the same parameter and have different values. Use cmd only. Nothing was run.")
	case !ok && !aliased:
		return "", tell("Missing required parameter cmd: the command line to run.")
	case !ok:
		line = alias
	}
	switch {
	case strings.TrimSpace(line) == "":
		return "", tell("cmd is empty. Every call runs in its own shell, which has exited when you see its output: " +
			"there is nothing to wait for.")
	case strings.ContainsRune(line, 0):
		return "", tell("cmd contains a NUL byte, which shells do not accept. Nothing was run.")
	}
	return line, nil
}

// result formats a command's result as the reference does, because models were trained on it: the exit code, then both
// streams.
func (b bash) result(r env.Result) Result {
	stdout, stderr := newStream(r.Stdout), newStream(r.Stderr)
	outLines, errLines := share(stdout.lines(), stderr.lines(), maxLines)
	outChars, errChars := share(stdout.chars(), stderr.chars(), maxChars)
	var out strings.Builder
	if r.TimedOut {
		out.WriteString("Exit code: -1 (the command was killed)\n")
	} else {
		fmt.Fprintf(&out, "Exit code: %d\n", r.ExitCode)
	}
	text := section("[STDOUT]", stdout.clip(outLines, outChars)) + "\n" +
		section("[STDERR]", stderr.clip(errLines, errChars))
	out.WriteString(strings.TrimSuffix(text, "\n"))
	for _, n := range b.notes(r) {
		out.WriteString("\nNOTE: " + n)
	}
	return Result{
		Output:      out.String(),
		Failed:      r.TimedOut || r.ExitCode != 0,
		ExitCode:    &r.ExitCode,
		TimedOut:    r.TimedOut,
		OutOfMemory: r.OutOfMemory,
		OutOfDisk:   r.OutOfDisk,
	}
}

func section(title, text string) string {
	if text == "" {
		return title + "\n"
	}
	return title + "\n\n" + text + "\n"
}

// notes explains what the exit code alone does not.
func (b bash) notes(r env.Result) []string {
	var notes []string
	switch {
	case r.TimedOut:
		notes = append(notes, fmt.Sprintf("the command timed out after %g seconds and was killed, with all processes that "+
			"it had started. Its output until then is above. Do less at once (one test, a smaller input), make sure that no "+
			"program waits for input, or run it in the background with its output in a file: "+
			"`COMMAND > /tmp/out.txt 2>&1 &`.", b.timeout.Seconds()))
	case r.Signal != "":
		notes = append(notes, fmt.Sprintf("the shell was terminated by %s.", r.Signal))
	}
	if r.OutOfMemory {
		notes = append(notes, "a process was killed because it ran out of memory. Use less data at once, or fewer processes.")
	}
	if r.OutOfDisk {
		notes = append(notes, "all processes were ended because the files that were written exceed the disk limit. Delete "+
			"what is not needed (`rm -rf PATH`) before you write anything else, and write less.")
	}
	if r.Background > 0 {
		notes = append(notes, plural(r.Background, "process")+" still running in the background. Further output is lost "+
			"unless it goes to a file.")
	}
	return notes
}

// share divides a limit between two needs: what one does not need, the other may have.
func share(a, b, most int) (int, int) {
	half := most / 2
	return most - min(b, half), most - min(a, half)
}
