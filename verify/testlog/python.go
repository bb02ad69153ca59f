package testlog

import (
	"bytes"
	"iter"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"deepswe/env"
)

// Decode converts a log to text like the harness: as UTF-8, where each maximal part of an ill-formed sequence
// becomes one U+FFFD (Unicode 15, section 3.9), and with every "\r\n" or single "\r" converted to "\n".
func Decode(log []byte) string {
	if bytes.IndexByte(log, '\r') < 0 && utf8.Valid(log) {
		return string(log)
	}
	log = bytes.ReplaceAll(bytes.ReplaceAll(log, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	var b strings.Builder
	b.Grow(len(log))
	for !utf8.Valid(log) {
		n := bytes.IndexRune(log, utf8.RuneError)
		b.Write(log[:n])
		b.WriteRune(utf8.RuneError)
		log = log[n+illFormed(log[n:]):]
	}
	b.Write(log)
	return b.String()
}

// illFormed returns the length of what is replaced by one U+FFFD at the start of b: a well-formed U+FFFD itself,
// the longest existing start of a well-formed sequence, or one byte.
func illFormed(b []byte) int {
	if r, n := utf8.DecodeRune(b); r != utf8.RuneError || n > 1 {
		return n
	}
	n := 1
	for n < len(b) && !utf8.FullRune(b[:n+1]) {
		n++
	}
	return n
}

// lines yields the lines between line feeds. For a text that ends with a line feed, the last line is empty.
func lines(s string) iter.Seq[string] { return strings.SplitSeq(s, "\n") }

// isSpace reports whether Python considers a character white space; unicode.IsSpace lacks four separators.
func isSpace(r rune) bool {
	if r < utf8.RuneSelf {
		return asciiSpace[r]
	}
	return unicode.IsSpace(r)
}

var asciiSpace = [utf8.RuneSelf]bool{
	'\t': true, '\n': true, '\v': true, '\f': true, '\r': true, 0x1c: true, 0x1d: true, 0x1e: true, 0x1f: true, ' ': true,
}

// isDigit reports whether \d matches a character in Python.
func isDigit(r rune) bool { return unicode.Is(unicode.Nd, r) }

// strip, lstrip and rstrip are Python's methods of these names without arguments.
func strip(s string) string { return strings.TrimFunc(s, isSpace) }

func lstrip(s string) string { return strings.TrimLeftFunc(s, isSpace) }

func rstrip(s string) string { return strings.TrimRightFunc(s, isSpace) }

// fields is Python's split without arguments.
func fields(s string) []string { return strings.FieldsFunc(s, isSpace) }

// word splits off the first field; both results are empty if there is none.
func word(s string) (first, rest string) {
	s = lstrip(s)
	for i, r := range s {
		if isSpace(r) {
			return s[:i], s[i:]
		}
	}
	return s, ""
}

// indent returns how many characters of white space the line starts with.
func indent(line string) int {
	return utf8.RuneCountInString(line) - utf8.RuneCountInString(lstrip(line))
}

// anyPrefix returns the first of the prefixes that s starts with, or "".
func anyPrefix(s string, prefixes ...string) string {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return p
		}
	}
	return ""
}

// lastPart returns what follows the last separator, or all of s.
func lastPart(s, sep string) string {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[i+len(sep):]
	}
	return s
}

// untilLast returns what precedes the last separator, or all of s.
func untilLast(s, sep string) string {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i]
	}
	return s
}

// afterFirsts returns the parts of s after each separator, up to the next one.
func afterFirsts(s, sep string) []string { return strings.Split(s, sep)[1:] }

// collapse replaces runs of white space by one space and trims.
func collapse(s string) string {
	s = strip(s)
	blank := false
	for _, r := range s {
		if isSpace(r) && (blank || r != ' ') {
			return strings.Join(fields(s), " ")
		}
		blank = r == ' '
	}
	return s
}

// escape matches a terminal's escape sequence, with or without parameters.
var escape = env.Pattern(`\x1B(?:[@-Z\\-_]|\[[0-?]*[ -/]*[@-~])`)

// stripEscapes removes escape sequences.
func stripEscapes(s string) string {
	if strings.IndexByte(s, 0x1B) < 0 {
		return s
	}
	return escape().ReplaceAllLiteralString(s, "")
}

// Expression is a regular expression that is compiled at its first use, so that programs do not compile at their
// start what they may not need.
type Expression func() *regexp.Regexp

// Pattern returns an Expression in which \s \S \d \w have Python's meaning: Unicode classes rather than ASCII. \b
// is not converted and must not be used. Go's tables determine what digits and letters are; those of a particular
// Python may be of another Unicode version.
func Pattern(expr string) Expression {
	const space = `\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}`
	return sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(strings.NewReplacer(
			`\\`, `\\`,
			`\s`, `[`+space+`]`,
			`\S`, `[^`+space+`]`,
			`\d`, `\p{Nd}`,
			`\w`, `[\p{L}\p{N}_]`,
		).Replace(expr))
	})
}
