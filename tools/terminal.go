package tools

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"deepswe/env"
)

// terminal renders a command's output as a terminal would finally show it: without colours and other escape
// sequences, and without what carriage returns, backspaces and erase sequences have removed. Other control
// characters and invalid UTF-8 appear as \xNN. Output that consists mostly of such bytes is only described.
func terminal(raw []byte) string {
	if n := unprintable(raw); n > 32 && n > len(raw)/10 {
		begin, _ := visible(raw[:min(len(raw), 64)])
		return fmt.Sprintf("(binary data, %s bytes, not shown; it begins with %s)", count(len(raw)), begin)
	}
	s := screen{out: make([]byte, 0, len(raw))}
	for i := 0; i < len(raw); {
		r, n := utf8.DecodeRune(raw[i:])
		switch r {
		case '\x1b', '\u009b':
			i += s.escape(raw[i:])
			continue
		case '\n', '\v', '\f':
			s.newline()
		case '\r':
			s.returned = true
		case '\b':
			s.backspace()
		case '\a':
		default:
			s.print(raw[i:i+n], unshowable(r, n))
		}
		i += n
	}
	return strings.TrimRight(string(s.out), "\n")
}

// screen is the text so far; line is the start of its last line.
type screen struct {
	out      []byte
	line     int
	returned bool // the next character overwrites the line
}

func (s *screen) newline() {
	s.out = append(s.out, '\n')
	s.line, s.returned = len(s.out), false
}

func (s *screen) print(b []byte, escaped bool) {
	if s.returned {
		s.out, s.returned = s.out[:s.line], false
	}
	if !escaped {
		s.out = append(s.out, b...)
		return
	}
	for _, c := range b {
		s.out = fmt.Appendf(s.out, `\x%02x`, c)
	}
}

func (s *screen) backspace() {
	if _, n := utf8.DecodeLastRune(s.out[s.line:]); n > 0 {
		s.out = s.out[:len(s.out)-n]
	}
}

// escapes matches one control sequence of a terminal: a CSI sequence, whose parameters and command are the two groups;
// a string sequence, up to BEL or ESC \ on the same line; a selection of a character set; or a sequence of two bytes.
var escapes = env.Pattern("^(?:(?:\x1b\\[|\u009b)([ -?]*)([@-~]?)|\x1b[]PX^_](?:[^\n\x07\x1b]*(?:\x07|\x1b\\\\))?|" +
	"\x1b[()*+#% ](?s:.)?|\x1b[ -~]?)")

// escape interprets the sequence at the start of b, and returns its length.
func (s *screen) escape(b []byte) int {
	m := escapes().FindSubmatch(b)
	if what := string(m[1]); string(m[2]) == "K" && (what == "2" || s.returned && (what == "" || what == "0")) {
		s.out = s.out[:s.line]
	}
	return len(m[0])
}

// unprintable counts the bytes that do not occur in text: NUL and most other control characters, and invalid UTF-8.
func unprintable(b []byte) int {
	total := 0
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if unshowable(r, n) && !strings.ContainsRune("\a\b\v\f\n\r\x1b", r) {
			total += n
		}
		i += n
	}
	return total
}
