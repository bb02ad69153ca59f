package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// splitter returns the length of the first word of a text that is not empty. Merges never cross the end of a word.
type splitter func(text string) int

// The patterns that are known, word for word as files have them. Each was written for a regular-expression engine with
// lookahead; a scanner does the same in one pass.
const (
	patternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternQwen = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|` +
		`\s*[\r\n]+|\s+(?!\S)|\s+`
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` +
		`\s*[\r\n]+|\s+(?!\S)|\s+`
)

// splitterFor returns the scanner of a pattern, and false for one that is not known.
func splitterFor(pattern string) (splitter, bool) {
	switch pattern {
	case patternGPT2:
		return splitGPT2, true
	case patternQwen:
		return func(s string) int { return splitModern(s, 1) }, true
	case patternLlama3:
		return func(s string) int { return splitModern(s, 3) }, true
	}
	return nil, false
}

// class is a class of characters that the patterns distinguish.
type class uint8

const (
	other class = iota
	letter
	number
	space
)

func classOf(r rune) class {
	switch {
	case r < utf8.RuneSelf:
		return ascii[r]
	case isLetter(r):
		return letter
	case isNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

// ascii are the classes of the first characters.
var ascii = func() (c [utf8.RuneSelf]class) {
	for r := range rune(utf8.RuneSelf) {
		switch {
		case unicode.IsLetter(r):
			c[r] = letter
		case unicode.IsDigit(r):
			c[r] = number
		case unicode.IsSpace(r):
			c[r] = space
		}
	}
	return c
}()

// first is the first character of a text, its length in bytes and its class; the length is 0 at the end.
func first(s string) (rune, int, class) {
	if s == "" {
		return 0, 0, other
	}
	if c := s[0]; c < utf8.RuneSelf {
		return rune(c), 1, ascii[c]
	}
	r, n := utf8.DecodeRuneInString(s)
	return r, n, classOf(r)
}

// run returns the length of the longest prefix of a text with characters of one class, at most limit of them; 0 means
// no limit.
func run(s string, c class, limit int) int {
	at := 0
	for n := 0; at < len(s) && (limit == 0 || n < limit); n++ {
		_, size, is := first(s[at:])
		if is != c {
			break
		}
		at += size
	}
	return at
}

// splitGPT2 is [patternGPT2].
func splitGPT2(s string) int {
	if n := contraction(s, false); n > 0 {
		return n
	}
	blank := 0
	if s[0] == ' ' {
		blank = 1
	}
	if _, n, c := first(s[blank:]); n > 0 && c != space {
		return blank + run(s[blank:], c, 0)
	}
	return spaces(s)
}

// splitModern is [patternQwen] with 1 digit to a word, and [patternLlama3] with 3.
func splitModern(s string, digits int) int {
	if n := contraction(s, true); n > 0 {
		return n
	}
	r, n, c := first(s)
	if c == letter {
		return run(s, letter, 0)
	}
	if c == number {
		return run(s, number, digits)
	}
	if r != '\r' && r != '\n' {
		if letters := run(s[n:], letter, 0); letters > 0 {
			return n + letters
		}
	}
	at := 0
	if r == ' ' {
		at = 1
	}
	if others := run(s[at:], other, 0); others > 0 {
		at += others
		for at < len(s) && (s[at] == '\r' || s[at] == '\n') {
			at++
		}
		return at
	}
	all := run(s, space, 0)
	for end := all; end > 0; end-- {
		if s[end-1] == '\r' || s[end-1] == '\n' {
			return end
		}
	}
	return spaces(s)
}

// spaces is the white space that a text begins with, without its last character where a word follows it: that one
// belongs to the word.
func spaces(s string) int {
	all := run(s, space, 0)
	if all == len(s) {
		return all
	}
	_, last := utf8.DecodeLastRuneInString(s[:all])
	if all > last {
		return all - last
	}
	return all
}

// contraction is the length of an English contraction ('s, 't, 're, 've, 'm, 'll, 'd) at the beginning; 0 is none. In
// either case where fold is set: then the long s is an s.
func contraction(s string, fold bool) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	if fold && len(s) > 2 && s[1:3] == "ſ" {
		return 3
	}
	a := lower(s[1], fold)
	switch a {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(s) < 3 {
		return 0
	}
	if b := lower(s[2], fold); (a == 'r' || a == 'v') && b == 'e' || a == 'l' && b == 'l' {
		return 3
	}
	return 0
}

func lower(c byte, fold bool) byte {
	if fold && c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
