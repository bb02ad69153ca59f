package agentcmd

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"deepswe/agent/cli"
	"deepswe/tools"
)

// questions asks the user on standard input.
type questions struct {
	in    io.Reader
	lines *bufio.Reader
}

var errNoAnswer = errors.New("standard input has ended: no answer")

// awaitInput waits for input, or for the end of ctx. A terminal is polled, because a read that has begun cannot be
// cancelled.
func (q *questions) awaitInput(ctx context.Context) error {
	if q.lines == nil {
		q.lines = bufio.NewReader(q.in)
	}
	f, ok := q.in.(*os.File)
	for ok && q.lines.Buffered() == 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		ready := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
		if n, err := unix.Poll(ready, 100); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return nil
}

// readLine waits for a line of the user, or for the end of ctx.
func (q *questions) readLine(ctx context.Context) (string, error) {
	if err := q.awaitInput(ctx); err != nil {
		return "", err
	}
	text, err := q.lines.ReadString('\n')
	if err != nil && text == "" {
		return "", errNoAnswer
	}
	return strings.TrimSpace(text), nil
}

// readSecret reads a line without echoing it. ask prints the question.
func (q *questions) readSecret(ctx context.Context, ask func()) (string, error) {
	var text []byte
	err := q.readKeys(ctx, ask, func(b byte) (more bool) {
		switch b {
		case '\r', '\n':
			return false
		case 0x7f, '\b':
			text = text[:max(0, len(text)-1)]
		default:
			text = append(text, b)
		}
		return true
	})
	return strings.TrimSpace(string(text)), err
}

// readKey waits for one of the keys in some, without Enter. ask prints the question.
func (q *questions) readKey(ctx context.Context, ask func(), some string) (byte, error) {
	var pressed byte
	err := q.readKeys(ctx, ask, func(b byte) (more bool) {
		pressed = b
		return !strings.ContainsRune(some, rune(b))
	})
	return pressed, err
}

// readKeys passes the keys that are pressed to take, as long as it wants more. Ctrl-C and Ctrl-D end the input. ask
// prints the question after the terminal has stopped echoing; its lines must end with \r\n.
func (q *questions) readKeys(ctx context.Context, ask func(), take func(b byte) (more bool)) error {
	if f, ok := q.in.(*os.File); ok {
		state, err := term.MakeRaw(int(f.Fd()))
		if err != nil {
			return err
		}
		defer func() { _ = term.Restore(int(f.Fd()), state) }()
	}
	ask()
	for {
		if err := q.awaitInput(ctx); err != nil {
			return err
		}
		const ctrlC, ctrlD = 3, 4
		b, err := q.lines.ReadByte()
		if err != nil || b == ctrlC || b == ctrlD {
			return errNoAnswer
		}
		if !take(b) {
			return nil
		}
	}
}

// interactive reports whether questions can be asked: standard input and standard error must be terminals.
func interactive(w cli.World) bool {
	f, ok := w.In.(*os.File)
	return ok && cli.IsTerminal(f) && cli.ScreenOf(w.Err).Live()
}

// confirmCall asks the user before a command or an edit: an empty line or y runs it, n refuses it, and any other text
// is sent to the model instead of a result.
func (s *solving) confirmCall(ctx context.Context, c tools.Call) (instead string, err error) {
	if c.Name != "execute_bash" && (c.Name != "file_editor" || c.Args["command"] == "view") {
		return "", nil
	}
	s.watch.show(question{Call: &c})
	answer, err := s.questions.readLine(ctx)
	if err != nil {
		return "", err
	}
	switch strings.ToLower(answer) {
	case "", "y", "yes":
		return "", nil
	case "n", "no":
		return "The user does not want this call to run. Choose another way.", nil
	}
	return answer, nil
}

// agrees asks the user a question, and reports whether the answer is yes.
func (s *solving) agrees(ctx context.Context, q question) (bool, error) {
	s.watch.show(q)
	answer, err := s.questions.readLine(ctx)
	answer = strings.ToLower(answer)
	return err == nil && (answer == "y" || answer == "yes"), err
}
