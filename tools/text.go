package tools

import (
	"bytes"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"unicode/utf8"
)

// text is a file's content as lines, counted from 1. A line ends with a line feed, which is not part of it; the
// last line feed does not start another line. There is no index of lines, because for a file of line feeds it would
// be many times larger than the file.
type text struct {
	data  []byte
	lines int // how many there are
}

func newText(data []byte) text {
	t := text{data: data, lines: bytes.Count(data, []byte("\n"))}
	if t.unfinished() {
		t.lines++
	}
	return t
}

// from yields the lines from line n on, with their numbers and without line feeds.
func (t text) from(n int) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for rest := t.data[t.offset(n):]; len(rest) > 0; n++ {
			line, after, _ := bytes.Cut(rest, []byte("\n"))
			if !yield(n, line) {
				return
			}
			rest = after
		}
	}
}

// offset returns the start of line n, or the end of the text if there is no such line.
func (t text) offset(n int) int {
	at := 0
	for range n - 1 {
		i := bytes.IndexByte(t.data[at:], '\n')
		if i < 0 {
			return len(t.data)
		}
		at += i + 1
	}
	return at
}

// lineAt returns the number of the line that contains the byte at the offset; the last line for the end of the
// text.
func (t text) lineAt(offset int) int {
	return max(1, min(t.lines, bytes.Count(t.data[:offset], []byte("\n"))+1))
}

// unfinished reports whether the last line has no line feed.
func (t text) unfinished() bool { return len(t.data) > 0 && t.data[len(t.data)-1] != '\n' }

// crlf reports whether every line feed follows a carriage return.
func crlf(data []byte) bool {
	n := bytes.Count(data, []byte("\r\n"))
	return n > 0 && n == bytes.Count(data, []byte("\n"))
}

// toCRLF converts every line break to CRLF.
func toCRLF(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}

// binary reports whether a file is binary: its first 8 KiB contain a NUL byte, which is also the rule of the
// sandbox's search.
func binary(data []byte) bool {
	return bytes.IndexByte(data[:min(len(data), 8<<10)], 0) >= 0
}

// byteOrderMark is written before UTF-8 by some editors.
const byteOrderMark = "\uFEFF"

// visible returns text that is safe to show: invalid UTF-8 and control characters other than tabs appear as \xNN, a
// carriage return as \r. The second result reports whether anything was replaced.
func visible(b []byte) (string, bool) {
	clean := 0
	for clean < len(b) {
		if c := b[clean]; c >= ' ' && c < 0x7f {
			clean++ // the common case, so it has its own branch
			continue
		}
		r, n := utf8.DecodeRune(b[clean:])
		if unshowable(r, n) {
			break
		}
		clean += n
	}
	if clean == len(b) {
		return string(b), false
	}
	var out strings.Builder
	out.Write(b[:clean])
	for i := clean; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		switch {
		case r == '\r':
			out.WriteString(`\r`)
		case unshowable(r, n):
			for _, c := range b[i : i+n] {
				fmt.Fprintf(&out, `\x%02x`, c)
			}
		default:
			out.Write(b[i : i+n])
		}
		i += n
	}
	return out.String(), true
}

// unshowable reports whether a decoded rune is invalid UTF-8, or a control character (C0, DEL, C1) other than a
// tab.
func unshowable(r rune, size int) bool {
	return r == utf8.RuneError && size <= 1 || r < 0x20 && r != '\t' || r >= 0x7f && r <= 0x9f
}

// maxLine is how many bytes of one line are shown.
const maxLine = 2_000

// shorten cuts a line between two characters and says how much is missing.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	kept := wholeRunes(s[:most])
	return fmt.Sprintf("%s… [%s more characters on this line]", kept, count(len(s)-len(kept)))
}

// wholeRunes removes an incomplete character at the end.
func wholeRunes(s string) string {
	for i := 1; i <= utf8.UTFMax && i <= len(s); i++ {
		if c := s[len(s)-i]; utf8.RuneStart(c) {
			if !utf8.FullRuneInString(s[len(s)-i:]) {
				return s[:len(s)-i]
			}
			break
		}
	}
	return s
}

// quote formats a model's value for a sentence: on one line, escaped and shortened.
func quote(s string) string {
	const most = 200
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return fmt.Sprintf("%q… (%s characters)", wholeRunes(s[:most]), count(len(s)))
}

// name formats a path: as it is if that is safe, otherwise escaped and quoted.
func name(path string) string {
	if len(path) > 1_000 {
		return quote(path)
	}
	_, changed := visible([]byte(path))
	if changed || strings.TrimSpace(path) != path || strings.ContainsAny(path, "\t\u2028\u2029") {
		return strconv.Quote(path)
	}
	return path
}

// count formats a number with thousands separators: 1,234,567.
func count[N int | int64](n N) string {
	s := fmt.Sprintf("%d", n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural returns "1 line", "2 lines".
func plural[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "ch") || strings.HasSuffix(noun, "s") {
		return count(n) + " " + noun + "es"
	}
	return count(n) + " " + noun + "s"
}

// clipEnd enforces a limit on the size of an output.
func clipEnd(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const mark = "\n[clipped]"
	return wholeRunes(s[:max(0, most-len(mark))]) + mark
}
