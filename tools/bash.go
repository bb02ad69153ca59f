package tools

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"deepswe/env"
)

//go:embed execute_bash.md
var bashDescription string

//go:embed execute_bash.json
var bashSchema string

// bash runs a command line in a fresh shell.
type bash struct {
	timeout time.Duration
	native  bool
	// kept counts the outputs that were written to files.
	kept atomic.Int32
}

// keptEnd is how many bytes are kept of each end of a stream in a native set, where the output is also written to a
// file.
const keptEnd = 4 << 20

func (b *bash) run(ctx context.Context, sb Sandbox, c Call) (Result, error) {
	line, err := commandLine(c)
	if err != nil {
		return Result{}, err
	}
	ask := env.Command{Line: line, Timeout: b.timeout}
	if b.native {
		ask.Head, ask.Tail = keptEnd, keptEnd
	}
	r, err := command(ctx, sb, ask)
	switch {
	case err == nil:
		result, cut := b.result(r)
		if cut && b.native {
			result.Output += b.keep(ctx, sb, r)
		}
		if first, _, _ := strings.Cut(strings.TrimSpace(ask.Line), " "); r.ExitCode == 127 && Instead(first) != "" {
			result.Output += "\nNOTE: " + first + " is not installed." + Instead(first)
		}
		return result, nil
	case env.IsInfrastructure(ctx, err):
		return Result{}, err
	}
	return Result{}, tell("The command could not be run: %s.", err.Error())
}

// command runs a command in the sandbox. A cancelled command returns an error and no partial result.
func command(ctx context.Context, sb Sandbox, c env.Command) (env.Result, error) {
	r, err := sb.Run(ctx, c)
	if err == nil && r.Cancelled {
		err = cmp.Or(context.Cause(ctx), context.Canceled)
	}
	return r, err
}

// commandLine returns the command line. It accepts "command", the name that other agents use, in place of cmd.
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
	if words, ok := commandWords(line); ok {
		line = words
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

// commandWords converts a command written as a JSON list of words to a line. The list may be the words of a
// command, the invocation of a shell with a script (["bash", "-lc", "make test"]), or a single line.
func commandWords(line string) (string, bool) {
	var words []string
	if !strings.HasPrefix(strings.TrimSpace(line), "[") || json.Unmarshal([]byte(line), &words) != nil || len(words) == 0 {
		return "", false
	}
	shell := path.Base(words[0])
	switch {
	case len(words) == 1:
		return words[0], true
	case len(words) == 3 && (shell == "bash" || shell == "sh") && shellScript.MatchString(words[1]):
		return words[2], true
	}
	return env.ShellQuote(words...), true
}

var shellScript = regexp.MustCompile(`^-[a-z]*c$`)

// keep writes all of a command's output to a file, and returns a note that names it.
func (b *bash) keep(ctx context.Context, sb Sandbox, r env.Result) string {
	file := fmt.Sprintf("/tmp/output-%d.txt", b.kept.Add(1))
	var text bytes.Buffer
	whole := true
	for _, s := range []env.Output{r.Stdout, r.Stderr} {
		text.Write(s.Head)
		if lost := s.Size - int64(len(s.Head)+len(s.Tail)); lost > 0 {
			fmt.Fprintf(&text, "\n[%s bytes are missing here]\n", count(lost))
			whole = false
		}
		text.Write(s.Tail)
	}
	if _, err := sb.Write(ctx, file, text.Bytes(), env.WriteOptions{Parents: true}); err != nil {
		return "" // /tmp may be full or read-only: the observation has to suffice
	}
	what := "all of the output"
	if !whole {
		what = "the first and last " + count(keptEnd) + " bytes of each stream"
	}
	return fmt.Sprintf("\nNOTE: %s is in %s.", what, file)
}

// result formats a command's result like the reference agent, because models were trained on its format: the exit
// code, then both streams. It reports whether output was left out.
func (b *bash) result(r env.Result) (Result, bool) {
	stdout, stderr := newStream(r.Stdout), newStream(r.Stderr)
	most := maxLines
	if b.native {
		most = maxChars // no limit: there cannot be more lines
	}
	outLines, errLines := share(stdout.lines(), stderr.lines(), most)
	outChars, errChars := share(stdout.chars(), stderr.chars(), maxChars)
	var out strings.Builder
	if r.TimedOut {
		out.WriteString("Exit code: -1 (the command was killed)\n")
	} else {
		fmt.Fprintf(&out, "Exit code: %d\n", r.ExitCode)
	}
	shownOut, shownErr := stdout.clip(outLines, outChars), stderr.clip(errLines, errChars)
	cut := stdout.lost+stderr.lost > 0 || shownOut != stdout.head || shownErr != stderr.head
	text := section("[STDOUT]", shownOut) + "\n" + section("[STDERR]", shownErr)
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
	}, cut
}

func section(title, text string) string {
	if text == "" {
		return title + "\n"
	}
	return title + "\n\n" + text + "\n"
}

// notes explains what the exit code alone does not.
func (b *bash) notes(r env.Result) []string {
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

// share divides a limit between a and b: what one does not need is available to the other.
func share(a, b, most int) (int, int) {
	half := most / 2
	return most - min(b, half), most - min(a, half)
}
