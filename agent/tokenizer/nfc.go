package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// composed is Unicode's normalization form C. The library's own form limits the number of combining marks after a
// character (Unicode's Stream-Safe Text Format) by inserting characters, which other implementations do not do.
func composed(s string) string {
	at := strings.IndexFunc(s, isNewMark)
	if at < 0 {
		return composedPart(s)
	}
	var b strings.Builder
	for ; at >= 0; at = strings.IndexFunc(s, isNewMark) {
		_, n := utf8.DecodeRuneInString(s[at:])
		b.WriteString(composedPart(s[:at]))
		b.WriteString(s[at : at+n])
		s = s[at+n:]
	}
	b.WriteString(composedPart(s))
	return b.String()
}

// composedPart composes text without new marks. It works around a bug of the library, which confuses characters above
// U+FFFF before a mark with those that have the same lower 16 bits.
func composedPart(s string) string {
	marks, high := 0, false
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			marks = 0
			i++
			continue
		}
		p := norm.NFC.PropertiesString(s[i:])
		n := max(p.Size(), 1)
		if p.LeadCCC() == 0 {
			marks, high = 0, n == utf8.UTFMax
		}
		if marks++; marks > fewMarks || high && marks > 1 {
			return composedSlowly(s)
		}
		i += n
	}
	return norm.NFC.String(s)
}

// fewMarks is how many characters are sure to decompose into fewer than the 30 marks that the library accepts: each
// has 3 at most.
const fewMarks = 8

// composedSlowly is the algorithm of the standard (UAX 15, and section 3.11 of Unicode), on the library's tables.
func composedSlowly(s string) string {
	type char struct {
		r     rune
		class uint8
	}
	var chars []char
	for len(s) > 0 {
		p := norm.NFD.PropertiesString(s)
		n := max(p.Size(), 1)
		whole := p.Decomposition()
		if whole == nil {
			whole = []byte(s[:n])
		}
		for len(whole) > 0 {
			r, size := utf8.DecodeRune(whole)
			chars = append(chars, char{r, norm.NFD.Properties(whole[:size]).CCC()})
			whole = whole[size:]
		}
		s = s[n:]
	}
	for i := 0; i < len(chars); {
		end := i + 1
		if chars[i].class != 0 {
			for end < len(chars) && chars[end].class != 0 {
				end++
			}
			slices.SortStableFunc(chars[i:end], func(a, b char) int { return int(a.class) - int(b.class) })
		}
		i = end
	}
	out := make([]char, 0, len(chars))
	starter := -1 // in out
	for _, c := range chars {
		if starter >= 0 {
			last := out[len(out)-1]
			adjacent := len(out)-1 == starter
			if adjacent || last.class != 0 && last.class < c.class {
				if r, ok := composedPair(out[starter].r, c.r); ok {
					out[starter].r = r
					continue
				}
			}
		}
		if c.class == 0 {
			starter = len(out)
		}
		out = append(out, c)
	}
	text := make([]byte, 0, len(out)*2)
	for _, c := range out {
		text = utf8.AppendRune(text, c.r)
	}
	return string(text)
}

// composedPair returns the character that a character and the next one compose to.
func composedPair(a, b rune) (rune, bool) {
	pair := norm.NFC.String(string([]rune{a, b}))
	r, n := utf8.DecodeRuneInString(pair)
	return r, n == len(pair) && (a > 0xFFFF) == (r > 0xFFFF)
}
