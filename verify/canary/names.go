package canary

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"unicode"
)

// names makes names for twins that look like those of the tests around them.
type names struct {
	rand  *rand.Rand
	taken strings.Builder // a new name must not occur in this text
}

func newNames(o Options) *names {
	n := &names{rand: o.Rand}
	for _, s := range o.Sources {
		n.taken.Write(s.Data)
		n.taken.WriteByte('\n')
	}
	for _, id := range o.Tests {
		n.taken.WriteString(id + "\n")
	}
	return n
}

// endings are the words that names are varied with. They are typical of the names of tests.
var endings = []string{
	"again", "alone", "ascending", "at end", "at start", "before", "between", "both", "bytes", "by default", "by key",
	"by name", "cached", "chained", "combined", "copy", "deep", "descending", "direct", "duplicate", "each", "edge",
	"empty", "every", "existing", "extended", "first", "from list", "full", "implicit", "in order", "indirect", "inner",
	"inverse", "keeps type", "large", "last", "lazy", "limits", "long", "many", "mixed", "more", "multiple", "negative",
	"nested", "none", "nothing", "once", "one", "optional", "order", "other", "outer", "pair", "partial", "plain",
	"positive", "repeated", "reversed", "same", "second", "several", "shallow", "short", "simple", "single", "small",
	"sorted", "split", "strict", "swapped", "symmetric", "text", "third", "together", "twice", "two", "unchanged",
	"unicode", "unique", "upper", "values", "whole", "with args", "with defaults", "with keys", "with spaces",
	"without args", "without key", "zero",
}

// like returns a new name that resembles a test's.
func (n *names) like(name string) string {
	for try := 0; ; try++ {
		candidate := n.vary(name)
		for range try / 20 {
			candidate = n.vary(candidate)
		}
		if !hasWord(n.taken.String(), candidate) {
			n.taken.WriteString(candidate + "\n")
			return candidate
		}
	}
}

// vary changes one word of a name, in the style of the name: "test_merge_twice", "TestMergeTwice" or "merges twice".
func (n *names) vary(name string) string {
	words := strings.Fields(endings[n.rand.IntN(len(endings))])
	switch {
	case strings.ContainsAny(name, " "):
		return n.join(strings.Split(name, " "), words, " ")
	case strings.Contains(name, "_") || strings.ToLower(name) == name && strings.HasPrefix(name, "test"):
		return n.join(strings.Split(name, "_"), words, "_")
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }):
		return name + " " + strings.Join(words, " ")
	case strings.ToLower(name) == name:
		return name + " " + strings.Join(words, " ")
	}
	for _, w := range words {
		name += strings.ToUpper(w[:1]) + w[1:]
	}
	return name
}

// join replaces the last word of a long name, or appends to a short one.
func (n *names) join(parts, words []string, separator string) string {
	const long = 4
	if len(parts) >= long && n.rand.IntN(2) == 0 {
		parts = parts[:len(parts)-1]
	}
	return strings.Join(append(append([]string{}, parts...), words...), separator)
}

// Of two similar tests, the expected values must not show which one is the twin: it may have the smaller or the larger
// number, the shorter or the longer text.

// versions is the number of texts that an expectation may have, with the right one.
const versions = 8

// otherNumbers returns the other numbers of a range of [versions] that contains n anywhere, in random order. The range
// stays between least and most, if n does.
func otherNumbers(n, least, most int, r *rand.Rand) []int {
	from := max(n-r.IntN(versions), min(n, least))
	from = min(from, max(n, most)-(versions-1))
	var others []int
	for i := range versions {
		if from+i != n {
			others = append(others, from+i)
		}
	}
	r.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return others
}

// otherDecimals returns other numbers with the same decimals, or none if the text is not a decimal number. Integers
// are not below least, unless the number is.
func otherDecimals(text string, least int, r *rand.Rand) []string {
	if n, err := strconv.Atoi(text); err == nil {
		return mapped(otherNumbers(n, least, math.MaxInt, r), strconv.Itoa)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil
	}
	return mapped(otherNumbers(0, -versions, versions, r), func(by int) string {
		return strconv.FormatFloat(f+float64(by), 'f', -1, 64)
	})
}

// otherTexts returns other texts, if possible of the same length with another last character. The text may contain
// escapes.
func otherTexts(text string, r *rand.Rand) []string {
	const letters, digits = "abcdeghiklmnoprstuvwxyz", "0123456789"
	if text == "" || strings.Contains(text, `\`) {
		return []string{text + "s"} // of several, the shortest would be the right one
	}
	last := text[len(text)-1]
	var choice string
	switch {
	case 'a' <= last && last <= 'z':
		choice = letters
	case 'A' <= last && last <= 'Z':
		choice = strings.ToUpper(letters)
	case '0' <= last && last <= '9':
		choice = digits
	default:
		return []string{text + "s"}
	}
	choice = strings.Replace(choice, string(last), "", 1)
	var others []string
	for _, i := range r.Perm(len(choice))[:versions-1] {
		others = append(others, text[:len(text)-1]+choice[i:i+1])
	}
	return others
}

// mapped applies a function to each element.
func mapped[T any](all []T, text func(T) string) []string {
	texts := make([]string, len(all))
	for i, v := range all {
		texts[i] = text(v)
	}
	return texts
}
