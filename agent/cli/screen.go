package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// Terminal describes the device on which lines are shown.
type Terminal struct {
	// Live is set if lines can be redrawn.
	Live bool
	// Width returns the current number of columns, which changes when a window is resized; nil means always 80.
	Width func() int
}

const (
	narrow = 80
	// wipe clears the screen from the cursor's line downwards.
	wipe = "\r\x1b[J"
	// repaint is the interval at which live lines are redrawn.
	repaint = 100 * time.Millisecond
)

// IsTerminal reports whether lines on w can be redrawn.
func IsTerminal(w io.Writer) bool { return isTTY(w) && os.Getenv("TERM") != "dumb" }

// isTTY reports whether w is a terminal, even one on which nothing can be redrawn.
func isTTY(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

func terminalOf(w io.Writer) Terminal {
	f, ok := w.(*os.File)
	if !ok || !IsTerminal(w) {
		return Terminal{}
	}
	return Terminal{Live: true, Width: func() int {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n >= 20 {
			return n
		}
		return narrow
	}}
}

// Screen is standard error as the user sees it: permanent lines and, on a terminal, a few live lines below them
// that are redrawn. Everything written to it, for example by a logger, appears above the live lines. In a pipe,
// nothing is redrawn.
//
// Hold its lock to change the data that the live lines show. After a failed write, nothing more is written, and the
// work goes on.
type Screen struct {
	sync.Mutex
	out      io.Writer
	terminal Terminal

	draw  func(width int) []string
	shown int // number of live lines currently on the screen
	err   error

	stop chan struct{}
	done chan struct{}
}

// NewScreen returns a screen on w, which may be a terminal.
func NewScreen(w io.Writer) *Screen { return NewScreenOn(w, terminalOf(w)) }

// NewScreenOn returns a screen on w, which is a terminal with the given properties.
func NewScreenOn(w io.Writer, t Terminal) *Screen {
	if t.Width == nil {
		t.Width = func() int { return narrow }
	}
	return &Screen{out: w, terminal: t}
}

// ScreenOf returns w if it is a Screen, and otherwise a new one on w.
func ScreenOf(w io.Writer) *Screen {
	if s, ok := w.(*Screen); ok {
		return s
	}
	return NewScreen(w)
}

// Live reports whether lines are redrawn.
func (s *Screen) Live() bool { return s.terminal.Live }

// SeenWith reports whether people see what is written to out, because it is a terminal or ends up among the screen's
// own lines (2>&1), where no program can use it.
func (s *Screen) SeenWith(out io.Writer) bool {
	if isTTY(out) {
		return true
	}
	f, ok := out.(interface{ Stat() (os.FileInfo, error) })
	own, isFile := s.out.(*os.File)
	if !ok || !isFile {
		return false
	}
	one, err := f.Stat()
	other, oerr := own.Stat()
	return err == nil && oerr == nil && os.SameFile(one, other)
}

// Width returns the screen's current number of columns.
func (s *Screen) Width() int { return s.terminal.Width() }

// Renderer returns a renderer of styles with the screen's colours.
func (s *Screen) Renderer() *lipgloss.Renderer { return lipgloss.NewRenderer(s.out) }

// Show redraws live lines until [Screen.Close]. draw is called with the lock held. No line may be wider than
// width-1 columns, because some terminals wrap there.
func (s *Screen) Show(draw func(width int) []string) {
	if !s.terminal.Live {
		return
	}
	s.Lock()
	defer s.Unlock()
	s.draw, s.stop, s.done = draw, make(chan struct{}), make(chan struct{})
	go func(stop, done chan struct{}) {
		defer close(done)
		tick := time.NewTicker(repaint)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				s.Lock()
				s.Redraw()
				s.Unlock()
			}
		}
	}(s.stop, s.done)
}

// Close stops redrawing and clears the live lines or, with keep, leaves them as they are. It returns the first
// error of any write.
func (s *Screen) Close(keep bool) error {
	if s.stop != nil {
		close(s.stop)
		<-s.done
	}
	s.Lock()
	defer s.Unlock()
	if keep {
		s.Redraw()
		if s.shown > 0 {
			s.write("\n")
		}
	} else {
		s.write(s.wiped())
	}
	s.draw, s.shown, s.stop = nil, 0, nil
	return s.err
}

// Redraw redraws the live lines at once. The lock must be held.
func (s *Screen) Redraw() {
	if s.draw != nil {
		s.paint("")
	}
}

// Line prints a line above the live ones. The lock must be held.
func (s *Screen) Line(text string) { s.paint(text + "\n") }

// Write prints text, which should end with a line break, above the live lines.
func (s *Screen) Write(p []byte) (int, error) {
	s.Lock()
	defer s.Unlock()
	if s.paint(string(p)); s.err != nil {
		return 0, s.err
	}
	return len(p), nil
}

// paint replaces the live lines by text with the live lines below it, in one write, to avoid flicker.
func (s *Screen) paint(text string) {
	text = s.wiped() + text
	if s.draw != nil {
		lines := s.draw(s.Width())
		s.shown = len(lines)
		text += strings.Join(lines, "\n")
	}
	s.write(text)
}

// wiped returns the control sequence that clears the live lines.
func (s *Screen) wiped() string {
	n := s.shown
	s.shown = 0
	switch n {
	case 0:
		return ""
	case 1:
		return wipe
	}
	return fmt.Sprintf("\x1b[%dA", n-1) + wipe
}

func (s *Screen) write(text string) {
	if s.err == nil && text != "" {
		_, s.err = io.WriteString(s.out, text)
	}
}

// Say prints a message to the user. Control characters that a model, an endpoint or a repository may have put into
// it are replaced.
func Say(w io.Writer, text string) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, l := range lines {
		lines[i] = Plain(l)
	}
	fmt.Fprintln(w, Fit(w, "deepswe: "+strings.Join(lines, "\n")))
}

// Fit breaks the lines of a message that are too long for w, if that is a screen on a terminal. Lines with something to
// copy stay whole: those that begin with a space or "to fix: ".
func Fit(w io.Writer, text string) string {
	s, ok := w.(*Screen)
	if !ok || !s.Live() {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if ansi.StringWidth(l) >= s.Width() && !strings.HasPrefix(l, " ") && !strings.HasPrefix(l, "to fix: ") {
			lines[i] = strings.Join(Wrap(l, s.Width()-1), "\n")
		}
	}
	return strings.Join(lines, "\n")
}

// NewLog returns a logger for the user, with one line per record, in the form of a command's other messages.
func NewLog(w io.Writer) *slog.Logger {
	return slog.New(&lineHandler{w: w, mu: new(sync.Mutex)})
}

type lineHandler struct {
	w      io.Writer
	mu     *sync.Mutex
	prefix string // the attributes set by WithAttrs
}

// Enabled implements slog.Handler. Only warnings and errors are shown to the user.
func (h *lineHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements slog.Handler.
func (h *lineHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(h.prefix)
	r.Attrs(func(a slog.Attr) bool {
		appendAttr(&b, a)
		return true
	})
	detail := ""
	if b.Len() > 0 {
		detail = " (" + strings.TrimPrefix(b.String(), ", ") + ")"
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := fmt.Fprintln(h.w, Fit(h.w, fmt.Sprintf("deepswe: %s: %s%s", word(r.Level), Plain(r.Message), Plain(detail))))
	return err
}

// WithAttrs implements slog.Handler.
func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var b strings.Builder
	b.WriteString(h.prefix)
	for _, a := range attrs {
		appendAttr(&b, a)
	}
	return &lineHandler{w: h.w, mu: h.mu, prefix: b.String()}
}

// WithGroup implements slog.Handler. Groups are ignored.
func (h *lineHandler) WithGroup(string) slog.Handler { return h }

// appendAttr appends an attribute unless it is empty. It omits a status of 0 and rounds durations.
func appendAttr(b *strings.Builder, a slog.Attr) {
	switch v := a.Value.Resolve(); {
	case v.Equal(slog.Int64Value(0)) || v.Equal(slog.StringValue("")) || v.Kind() == slog.KindAny && v.Any() == nil:
	case v.Kind() == slog.KindDuration:
		fmt.Fprintf(b, ", %s %s", a.Key, v.Duration().Round(10*time.Millisecond))
	default:
		fmt.Fprintf(b, ", %s %v", a.Key, v)
	}
}

func word(l slog.Level) string {
	if l >= slog.LevelError {
		return "error"
	}
	return "warning"
}

// Transfer shows how far files are transferred, until done is called.
func Transfer(out io.Writer) (progress func(path string, have, size int64), done func()) {
	screen := ScreenOf(out)
	line := ""
	screen.Show(func(width int) []string { return []string{Cut(line, width-1)} })
	return func(path string, have, size int64) {
		screen.Lock()
		defer screen.Unlock()
		line = fmt.Sprintf("%s: %s of %s bytes", filepath.Base(path), Count(have), Count(size))
	}, func() { _ = screen.Close(false) }
}
