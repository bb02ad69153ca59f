package embedded

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"deepswe/agent"
)

// Lexicon holds the tokens of a policy with attention: words, numbers, operators, tags and white space. Any other
// word is read as a slot, which says where else in the conversation the same word occurs, and nothing more.
type Lexicon struct {
	// Spoken are the tokens that it can write. A token may be a phrase of several words.
	Spoken []string
	// Read are further tokens that it can only read.
	Read []string
}

const (
	// mostNumber is the largest number that is a token. Short files have fewer lines.
	mostNumber = 99
	// leastShare is the smallest share of the conversations in which a word must occur to become a token. The policy
	// would recognise single conversations by rarer words.
	leastShare = 1.0 / 10
	// slots is how many other words of a conversation have a token of their own there.
	slots = 24
)

// LexiconOf makes the lexicon of demonstrations. The policy can write what the assistant writes in them and all small
// numbers, and it can read the words that many of them contain. Words that follow each other wherever the assistant
// writes one of them become one phrase.
func LexiconOf(all []Demonstration) *Lexicon {
	said := [][]string{}   // what the assistant says, in words
	in := map[string]int{} // the number of conversations with a word
	for _, d := range all {
		words := map[string]bool{}
		for _, m := range d.Messages {
			switch m.Role {
			case agent.RoleSystem: // the same in all of them
			case agent.RoleAssistant:
				said = append(said, split(m.Content))
			default:
				for _, w := range split(m.Content) {
					words[w] = true
				}
			}
		}
		for w := range words {
			in[w]++
		}
	}
	l := &Lexicon{}
	spoken := map[string]bool{}
	for _, words := range slices.Concat(said, phrases(slices.Clone(said))) {
		for _, w := range words {
			spoken[w] = true
		}
	}
	for n := range mostNumber {
		spoken[strconv.Itoa(n+1)] = true
	}
	l.Spoken = slices.Sorted(maps.Keys(spoken))
	for _, w := range slices.Sorted(maps.Keys(in)) {
		if float64(in[w]) >= leastShare*float64(len(all)) && !spoken[w] {
			l.Read = append(l.Read, w)
		}
	}
	return l
}

// leastPhrases is how often two words must follow each other to become a phrase.
const leastPhrases = 3

// phrases joins neighbours of which one never occurs without the other, until there are none. Numbers are not joined.
func phrases(texts [][]string) [][]string {
	for {
		after, before, pairs := map[string]map[string]bool{}, map[string]map[string]bool{}, map[[2]string]int{}
		note := func(m map[string]map[string]bool, a, b string) {
			if m[a] == nil {
				m[a] = map[string]bool{}
			}
			m[a][b] = true
		}
		for _, t := range texts {
			last := "" // no word
			for _, w := range append(slices.Clip(t), "") {
				note(after, last, w)
				note(before, w, last)
				pairs[[2]string{last, w}]++
				last = w
			}
		}
		joined := false
		for i, t := range texts {
			var out []string
			for _, w := range t {
				// A phrase of this round is not in the maps, so it grows in the next one at the earliest.
				n := len(out) - 1
				if n >= 0 && !isNumber(out[n]) && !isNumber(w) && pairs[[2]string{out[n], w}] >= leastPhrases &&
					(len(after[out[n]]) == 1 || len(before[w]) == 1) {
					out[n], joined = out[n]+w, true
					continue
				}
				out = append(out, w)
			}
			texts[i] = out
		}
		if !joined {
			return texts
		}
	}
}

func isNumber(w string) bool { return w != "" && '0' <= w[0] && w[0] <= '9' }

// words divides a text into the words and phrases of a lexicon. Where several phrases fit, the longest is taken.
type words struct {
	ids map[string]int32
	// starts lists, for a word, the phrases that begin with it, the longest first.
	starts map[string][]phrase
}

type phrase struct {
	words []string
	id    int32
}

func newWords(l *Lexicon) *tokenizer {
	w := &words{ids: map[string]int32{}, starts: map[string][]phrase{}}
	t := newTokenizer(w, l.Spoken, l.Read, slots)
	for i := range t.read() {
		id := int32(i)
		if parts := split(t.text(id)); len(parts) > 1 {
			w.starts[parts[0]] = append(w.starts[parts[0]], phrase{parts, id})
		} else if len(parts) == 1 {
			w.ids[parts[0]] = id
		}
	}
	for _, all := range w.starts {
		slices.SortStableFunc(all, func(a, b phrase) int { return len(b.words) - len(a.words) })
	}
	return t
}

func (w *words) encode(ids []int32, text string, outside func(string) int32) []int32 {
	parts := split(text)
	for i := 0; i < len(parts); {
		id, n := w.longest(parts[i:])
		if n == 0 {
			id, n = outside(parts[i]), 1
		}
		ids, i = append(ids, id), i+n
	}
	return ids
}

// longest returns the token that matches the most of the first words, and their number; 0 if none matches.
func (w *words) longest(parts []string) (id int32, n int) {
	for _, p := range w.starts[parts[0]] {
		if len(p.words) <= len(parts) && slices.Equal(p.words, parts[:len(p.words)]) {
			return p.id, len(p.words)
		}
	}
	if id, ok := w.ids[parts[0]]; ok {
		return id, 1
	}
	return 0, 0
}

// split cuts a text into words. Together they are the text.
func split(text string) []string {
	out := make([]string, 0, len(text)/3)
	for at := 0; at < len(text); {
		n := wordLength(text[at:])
		out, at = append(out, text[at:at+n]), at+n
	}
	return out
}

// operators are the characters of operators. An operator of several characters is one word.
const operators = "<>=!&|+-*%;"

// wordLength returns the length of the first word: a tag, letters, digits, an option, an operator, a line break with
// the indentation after it, spaces, or a single character.
func wordLength(s string) int {
	c := s[0]
	switch {
	case c == '<':
		if n := tagLength(s); n > 0 {
			return n
		}
	case isLetter(c):
		return span(s, isLetter)
	case c >= '0' && c <= '9':
		return span(s, func(c byte) bool { return c >= '0' && c <= '9' })
	case c == '-' && len(s) > 1 && isLetter(s[1]):
		return span(s, isLetter)
	case c == '\n':
		return span(s, func(c byte) bool { return c == ' ' || c == '\t' })
	case c == ' ' || c == '\t':
		return span(s, func(c byte) bool { return c == ' ' || c == '\t' })
	}
	if strings.IndexByte(operators, c) >= 0 {
		return span(s, func(next byte) bool { return next != '-' && strings.IndexByte(operators, next) >= 0 })
	}
	n := 1
	for c >= 0x80 && n < len(s) && s[n]&0xc0 == 0x80 { // the rest of a rune
		n++
	}
	return n
}

// tagLength returns the length of a tag at the beginning, 0 if there is none.
func tagLength(s string) int {
	const longest = 40
	end := strings.IndexByte(s[:min(len(s), longest)], '>')
	for i := 1; i < end; i++ {
		if c := s[i]; !isLetter(c) && c != '/' && c != '=' && c != '_' {
			return 0
		}
	}
	if end < 2 {
		return 0
	}
	return end + 1
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// span returns the length of the first byte together with the bytes after it that are in a class.
func span(s string, in func(byte) bool) int {
	n := 1
	for n < len(s) && in(s[n]) {
		n++
	}
	return n
}
