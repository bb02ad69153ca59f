package judge

import (
	"math"
	"regexp"
	"strings"

	"deepswe/agent/llm"
)

// The tags around an answer.
const (
	answerTag = "<judgement>"
	answerEnd = "</judgement>"
)

// The answers of a judge.
const (
	yes = "YES"
	no  = "NO"
)

// Label returns the word of the answer: YES for a candidate that solves its task, NO otherwise.
func Label(solved bool) string {
	if solved {
		return yes
	}
	return no
}

// Answer returns the complete right reply of a judge.
func Answer(solved bool) string { return answerTag + Label(solved) + answerEnd }

var (
	tagged = regexp.MustCompile(`(?i)<judgement>\s*["'*` + "`" + `]*(yes|no)(?:[^a-z]|$)`)
	first  = regexp.MustCompile(`(?i)^[\s"'*` + "`" + `]*(yes|no)(?:[^a-z]|$)`)
)

// find returns the offset of the answer and the answer: the word in the last judgement tag or, without one, the first
// word after any thoughts.
func find(text string) (at int, word string, ok bool) {
	if all := tagged.FindAllStringSubmatchIndex(text, -1); len(all) > 0 {
		m := all[len(all)-1]
		return m[2], strings.ToUpper(text[m[2]:m[3]]), true
	}
	from := 0
	if end := strings.LastIndex(text, "</think>"); end >= 0 {
		from = end + len("</think>")
	}
	if m := first.FindStringSubmatchIndex(text[from:]); m != nil {
		return from + m[2], strings.ToUpper(text[from+m[2] : from+m[3]]), true
	}
	return 0, "", false
}

// locate returns the token in which the answer begins, and whether the word continues in the next token.
func locate(tokens []llm.Token) (index int, inPieces, ok bool) {
	var text strings.Builder
	starts := make([]int, len(tokens))
	for i, t := range tokens {
		starts[i] = text.Len()
		text.WriteString(t.Text)
	}
	at, word, ok := find(text.String())
	if !ok {
		return 0, false, false
	}
	for i := len(tokens) - 1; i >= 0; i-- {
		if starts[i] <= at {
			return i, at+len(word) > starts[i]+len(tokens[i].Text), true
		}
	}
	return 0, false, false
}

// Mass is how probable the answers are at one place.
type Mass struct {
	Yes float64 `json:"yes"`
	No  float64 `json:"no"`
	// Rest is the probability of all tokens that the endpoint does not list.
	Rest float64 `json:"rest,omitempty"`
}

// weigh sums the probabilities of all spellings of YES and of NO at a token.
func weigh(t llm.Token, inPieces bool) Mass {
	all := t.Top
	listed := false
	for _, a := range all {
		listed = listed || a.Text == t.Text
	}
	if !listed {
		all = append([]llm.Alternative{t.Alternative}, all...)
	}
	m := Mass{Rest: 1}
	for _, a := range all {
		p := math.Exp(a.Logprob)
		if math.IsNaN(p) {
			continue
		}
		m.Rest -= p
		switch spelled(a.Text, inPieces) {
		case yes:
			m.Yes += p
		case no:
			m.No += p
		}
	}
	m.Rest = max(0, m.Rest)
	return m
}

// spelled returns the answer that a token spells, or begins to spell where answers come in pieces; empty for any other.
func spelled(token string, inPieces bool) string {
	// Some servers leave the tokenizer's own signs for a blank in front.
	word := strings.ToLower(strings.TrimLeft(token, " \t\r\n\"'*`>▁Ġ"))
	letters := word
	if end := strings.IndexFunc(word, func(r rune) bool { return r < 'a' || r > 'z' }); end >= 0 {
		letters = word[:end]
	}
	switch {
	case letters == "yes" || inPieces && (word == "y" || word == "ye"):
		return yes
	case letters == "no" || inPieces && word == "n":
		return no
	}
	return ""
}

// Bound says that a score is only known to be at one side of its value.
type Bound string

// How a score relates to P(YES) / (P(YES) + P(NO)).
const (
	Exact   Bound = ""
	AtLeast Bound = "at_least"
	AtMost  Bound = "at_most"
)

// score is P(YES) / (P(YES) + P(NO)). Where only one of the answers is listed, the other has at most the probability
// of all that is not listed: the score is then the lowest that it can be, or the highest. ok is false where neither is.
func (m Mass) score() (s float64, b Bound, ok bool) {
	switch {
	case m.Yes > 0 && m.No > 0:
		return m.Yes / (m.Yes + m.No), Exact, true
	case m.Yes > 0:
		return m.Yes / (m.Yes + m.Rest), AtLeast, true
	case m.No > 0:
		return m.Rest / (m.No + m.Rest), AtMost, true
	}
	return 0, Exact, false
}
