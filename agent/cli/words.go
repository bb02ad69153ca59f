package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Plain replaces unprintable characters, because text from a model, a task or a repository must not control the
// terminal.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, s)
}

// WriteText writes text from a model or a repository. On a terminal, control characters are made visible, as in
// "cat -v"; a file or another program gets the bytes unchanged.
func WriteText(w io.Writer, data []byte) error {
	if isTTY(w) {
		data = Visible(data)
	}
	_, err := w.Write(data)
	return err
}

// Visible replaces all control characters but tabs and line feeds, characters that change the direction of text,
// and invalid UTF-8. It keeps a carriage return at the end of a line, which is harmless.
func Visible(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		switch c := data[i]; {
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, "<%02X>", c)
		case r == '\n', r == '\t', r == '\r' && i+1 < len(data) && data[i+1] == '\n':
			out = append(out, c)
		case r < ' ' || r == 0x7f:
			out = append(out, '^', c^0x40)
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co):
			out = fmt.Appendf(out, "<U+%04X>", r)
		default:
			out = append(out, data[i:i+n]...)
		}
		i += n
	}
	return out
}

// FirstLine returns the first non-blank line, without control characters and cut to n columns; 0 means no limit.
func FirstLine(s string, n int) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			return Cut(Plain(line), n)
		}
	}
	return ""
}

// LastLine returns the last non-blank line, without control characters.
func LastLine(s string) string {
	s = strings.TrimRight(s, "\r\n\t ")
	return Plain(strings.TrimSpace(s[strings.LastIndex(s, "\n")+1:]))
}

// Cut cuts a text to its first n columns on a terminal; 0 means no limit.
func Cut(s string, n int) string {
	if n < 1 {
		return s
	}
	return ansi.Truncate(s, n, "…")
}

// CutLeft cuts a text to its last n columns.
func CutLeft(s string, n int) string {
	over := ansi.StringWidth(s) - n
	if over <= 0 {
		return s
	}
	return ansi.TruncateLeft(s, over+1, "…")
}

// Wrap breaks a text into lines of at most width columns where it has spaces. A longer word stays whole, so that a
// path or an address can be copied.
func Wrap(text string, width int) []string {
	var lines []string
	current := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case current == "":
			current = word
		case ansi.StringWidth(current)+1+ansi.StringWidth(word) <= width:
			current += " " + word
		default:
			lines = append(lines, current)
			current = word
		}
	}
	return append(lines, current)
}

// Clock formats a duration like a clock: 1:30, or 1:02:05.
func Clock(d time.Duration) string {
	d = d.Round(time.Second)
	if d >= time.Hour {
		return fmt.Sprintf("%d:%02d:%02d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

// Count formats a large number in a few characters: 999, 1.2k, 3.4M.
func Count[N int | int64](n N) string {
	switch {
	case n >= 1_000_000:
		return fmt.Sprintf("%.1fM", float64(n)/1e6)
	case n >= 1000:
		return fmt.Sprintf("%.1fk", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}

// Plural returns a number with its noun: 1 step, 2 steps.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// SomeOf lists the first three names, and says how many of all are left out.
func SomeOf(names []string, all int) string {
	const most = 3
	text := strings.Join(names[:min(most, len(names))], ", ")
	if more := all - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
