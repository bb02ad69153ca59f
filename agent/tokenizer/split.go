package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// splitter returns the length of the first word of a text that is not empty. Merges never cross the end of a word.
type splitter func(text string) int

// matcher returns the length of a pattern's match at the beginning of a text that is not empty; 0 is none.
type matcher func(text string) int

// isolated cuts a text into matches and what is between them.
func isolated(match matcher) splitter {
	return func(text string) int {
		if n := match(text); n > 0 {
			return n
		}
		_, at, _ := first(text)
		for at < len(text) && match(text[at:]) == 0 {
			_, n, _ := first(text[at:])
			at += n
		}
		return at
	}
}

// The patterns that are known, word for word as files have them. Each was written for a regular-expression engine with
// lookahead; a scanner does the same in one pass.
const (
	contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	blanks       = `|\s*[\r\n]+|\s+(?!\S)|\s+`
	capitals     = `\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}`
	smalls       = `\p{Ll}\p{Lm}\p{Lo}\p{M}`

	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternQwen   = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*` + blanks
	patternQwen35 = contractions +
		`|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*` + blanks
	patternLlama3 = contractions +
		`|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*` + blanks
	patternO200k = `[^\r\n\p{L}\p{N}]?[` + capitals + `]*[` + smalls + `]+` + contractions +
		`?|[^\r\n\p{L}\p{N}]?[` + capitals + `]+[` + smalls + `]*` + contractions +
		`?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + blanks
	patternTekken = `[^\r\n\p{L}\p{N}]?[` + capitals + `]*[` + smalls +
		`]+|[^\r\n\p{L}\p{N}]?[` + capitals + `]+[` + smalls + `]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + blanks
	patternNumbers  = `\p{N}{1,3}`
	patternEastern  = `[一-龥぀-ゟ゠-ヿ]+`
	patternDeepSeek = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" +
		`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*` + blanks
)

// matcherFor returns the scanner of a pattern, and false for one that is not known.
func matcherFor(pattern string) (matcher, bool) {
	pattern = strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(pattern)
	m, ok := map[string]matcher{
		patternGPT2:     splitGPT2,
		patternQwen:     modern{letters: letter, digits: 1}.match,
		patternQwen35:   modern{letters: letter | mark, digits: 1}.match,
		patternLlama3:   modern{letters: letter, digits: 3}.match,
		patternO200k:    cased{contracted: true, digits: 3, ends: "\r\n/"}.match,
		patternTekken:   cased{digits: 1, ends: "\r\n/"}.match,
		patternNumbers:  func(s string) int { return run(s, number, 3) },
		patternEastern:  eastern,
		patternDeepSeek: deepSeek,
	}[pattern]
	return m, ok
}

// class is a set of classes of characters that the patterns distinguish.
type class uint16

const (
	upper    class = 1 << iota // and title case
	lower                      // letters
	caseless                   // letters
	mark
	number
	space
	punctuation // and symbols
	other
	han // is a class in addition to another one

	letter = upper | lower | caseless
)

func classOf(r rune) class {
	c := other
	switch {
	case r < utf8.RuneSelf:
		return ascii[r]
	case unicode.In(r, unicode.Lu, unicode.Lt, newUpper):
		c = upper
	case unicode.In(r, unicode.Ll, newLower):
		c = lower
	case unicode.In(r, unicode.Lm, unicode.Lo, newCaseless):
		c = caseless
	case unicode.In(r, unicode.M, newMark):
		c = mark
	case isNumber(r):
		c = number
	case unicode.IsSpace(r):
		return space
	case unicode.In(r, unicode.P, unicode.S, newPunctuation):
		c = punctuation
	}
	if unicode.In(r, unicode.Han, newHan) {
		c |= han
	}
	return c
}

// ascii are the classes of the ASCII characters.
var ascii = func() (c [utf8.RuneSelf]class) {
	for r := range rune(utf8.RuneSelf) {
		c[r] = other
		switch {
		case unicode.IsUpper(r):
			c[r] = upper
		case unicode.IsLower(r):
			c[r] = lower
		case unicode.IsDigit(r):
			c[r] = number
		case unicode.IsSpace(r):
			c[r] = space
		case unicode.In(r, unicode.P, unicode.S):
			c[r] = punctuation
		}
	}
	return c
}()

// first returns the first character of a text, its length in bytes and its class; the length is 0 for an empty text.
func first(s string) (rune, int, class) {
	if s == "" {
		return 0, 0, 0
	}
	if c := s[0]; c < utf8.RuneSelf {
		return rune(c), 1, ascii[c]
	}
	r, n := utf8.DecodeRuneInString(s)
	return r, n, classOf(r)
}

// run returns the length in bytes of the longest prefix of a text that has only characters of the classes in c, at
// most limit of them; a limit of 0 means none.
func run(s string, c class, limit int) int { return runBut(s, c, 0, limit) }

// runBut is run, except that it also stops at characters of a class in but.
func runBut(s string, c, but class, limit int) int {
	at := 0
	for n := 0; at < len(s) && (limit == 0 || n < limit); n++ {
		_, size, is := first(s[at:])
		if is&c == 0 || is&but != 0 {
			break
		}
		at += size
	}
	return at
}

// digits is run for the numbers of the pre-tokenizer Digits, which knows newer ones than the patterns.
func digits(s string, limit int) int {
	at := 0
	for n := 0; at < len(s) && (limit == 0 || n < limit); n++ {
		r, size, c := first(s[at:])
		if c&number == 0 && !unicode.Is(newestNumbers, r) {
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
	at := 0
	if s[0] == ' ' {
		at = 1
	}
	for _, c := range []class{letter, number, mark | punctuation | other} {
		if n := run(s[at:], c, 0); n > 0 {
			return at + n
		}
	}
	return spaces(s)
}

// modern matches the patterns of Qwen and Llama 3.
type modern struct {
	letters class
	digits  int
}

func (m modern) match(s string) int {
	if n := contraction(s, true); n > 0 {
		return n
	}
	if n := prefixed(s, m.letters, letter|number); n > 0 {
		return n
	}
	if n := run(s, number, m.digits); n > 0 {
		return n
	}
	return tail(s, (mark|punctuation|other)&^m.letters, "\r\n")
}

// prefixed returns the length of a run of the classes in c, with at most one character in front of it, which is
// neither a line break nor of a class in but.
func prefixed(s string, c, but class) int {
	if r, n, is := first(s); is&but == 0 && r != '\r' && r != '\n' {
		if more := run(s[n:], c, 0); more > 0 {
			return n + more
		}
	}
	return run(s, c, 0)
}

// tail matches the last alternatives of patterns: characters of other classes, after at most one blank and before any
// of the bytes in ends; or spaces.
func tail(s string, others class, ends string) int {
	at := 0
	if s[0] == ' ' {
		at = 1
	}
	if n := run(s[at:], others, 0); n > 0 {
		at += n
		for at < len(s) && strings.IndexByte(ends, s[at]) >= 0 {
			at++
		}
		return at
	}
	for end := run(s, space, 0); end > 0; end-- {
		if s[end-1] == '\r' || s[end-1] == '\n' {
			return end
		}
	}
	return spaces(s)
}

// cased matches the patterns of o200k, Tekken and Kimi, which split words where upper case follows lower case.
type cased struct {
	// han says that Han characters are words of their own.
	han        bool
	contracted bool
	digits     int
	ends       string
}

func (c cased) match(s string) int {
	if n := run(s, han, 0); n > 0 && c.han {
		return n
	}
	r, skip, is := first(s)
	if is&(letter|number) != 0 || r == '\r' || r == '\n' {
		skip = 0
	}
	// First a word with small letters, then one without. A character may precede either.
	for _, word := range []func(string) int{c.small, c.capital} {
		for _, from := range []int{skip, 0} {
			n := word(s[from:])
			if n == 0 {
				continue
			}
			if n += from; c.contracted {
				n += contraction(s[n:], true)
			}
			return n
		}
	}
	if n := run(s, number, c.digits); n > 0 {
		return n
	}
	return tail(s, mark|punctuation|other, c.ends)
}

func (c cased) runs(s string) (capitals, all int) {
	but := class(0)
	if c.han {
		but = han
	}
	capitals = runBut(s, upper|caseless|mark, but, 0)
	return capitals, capitals + runBut(s[capitals:], lower|caseless|mark, but, 0)
}

// small matches capital letters followed by at least one small one. Caseless letters and marks count as both.
func (c cased) small(s string) int {
	capitals, all := c.runs(s)
	if all > capitals {
		return all
	}
	for at := capitals; at > 0; {
		r, n := utf8.DecodeLastRuneInString(s[:at])
		if classOf(r)&(caseless|mark) != 0 {
			return at
		}
		at -= n
	}
	return 0
}

func (c cased) capital(s string) int {
	if capitals, all := c.runs(s); capitals > 0 {
		return all
	}
	return 0
}

// eastern is [patternEastern].
func eastern(s string) int {
	at := 0
	for at < len(s) {
		r, n, _ := first(s[at:])
		if (r < 0x4E00 || r > 0x9FA5) && (r < 0x3040 || r > 0x30FF) {
			break
		}
		at += n
	}
	return at
}

// deepSeek is [patternDeepSeek].
func deepSeek(s string) int {
	if r, n, c := first(s); r < utf8.RuneSelf && c == punctuation {
		for n < len(s) && s[n] < utf8.RuneSelf && ascii[s[n]]&letter != 0 {
			n++
		}
		if n > 1 {
			return n
		}
	}
	if n := prefixed(s, letter|mark, letter|punctuation); n > 0 {
		return n
	}
	return tail(s, punctuation, "\r\n")
}

// spaces returns the length of the white space that a text begins with. If a word follows, the last of several
// characters belongs to the word and is left out.
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

// contraction returns the length of an English contraction ('s, 't, 're, 've, 'm, 'll, 'd) at the beginning; 0 is
// none. If fold is set, case is ignored, and the long s is an s.
func contraction(s string, fold bool) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	if fold && len(s) > 2 && s[1:3] == "ſ" {
		return 3
	}
	a := folded(s[1], fold)
	switch a {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(s) < 3 {
		return 0
	}
	if b := folded(s[2], fold); (a == 'r' || a == 'v') && b == 'e' || a == 'l' && b == 'l' {
		return 3
	}
	return 0
}

func folded(c byte, fold bool) byte {
	if fold && c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
