package canary

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"deepswe/env"
	"deepswe/verify/literal"
)

// What a test says about itself in words must not contradict a wrong value, nor repeat one that is withheld: messages,
// comments and documentation, wherever they are in its file.

// told matches comments and documentation in any of the languages, and calls of Go that take a message.
var told = env.Pattern(`(?m)(?:^|[ \t])(?:#|//).*$|/\*(?s:.*?)\*/|^[ \t]*[rRuU]?(?:"""[^"]*"""|'''[^']*''')|` +
	`\.(?:Error|Fatal|Log|Skip)(?:f|ln)?\(.*$`)

// asserted matches a line up to the value that a call compares with, behind which there may be a message.
var asserted = env.Pattern(`\bassert\b.*$`)

// repeated returns an edit that makes a test expect another value with the same change in a message that the edit or
// its line ends with, and what the value is, and becomes: what is in instead, if it is known there. There is none if it
// cannot be told from other words.
func repeated(data []byte, e edit, instead map[string]string) (edits []edit, value, other string) {
	before, after := string(data[e.at:e.end]), e.text
	head, tail := common(before, after)
	value, other = before[head:len(before)-tail], after[head:len(after)-tail]
	if known, ok := instead[value]; ok {
		after, other = after[:head]+known+after[len(after)-tail:], known
		e.text = after
	}
	if value == "" || other == "" || !utf8.ValidString(value) || strings.ContainsAny(value+other, "\n\r") {
		return []edit{e}, "", ""
	}
	says := map[string]string{value: other}
	rest := after[len(after)-tail:]
	e.text = after[:len(after)-tail] + string(apply([]byte(rest), retell([]byte(rest), says)))
	edits = []edit{e}
	line := data[bytes.LastIndexByte(data[:e.at], '\n')+1 : e.at]
	if message, _, _ := bytes.Cut(data[e.end:], []byte("\n")); asserted().Match(line) {
		for _, one := range retell(message, says) {
			edits = append(edits, edit{e.end + one.at, e.end + one.end, one.text})
		}
	}
	return edits, value, other
}

// entitled reports whether the title of a test says which value an edit replaces. The title stays as it is.
func entitled(data []byte, way []edit, title string) bool {
	if len(way) != 1 {
		return false
	}
	_, value, _ := repeated(data, way[0], nil)
	v, err := literal.Parse(strconv.Quote(value))
	if number, err := literal.Parse(value); err == nil && number.Spelled(title) {
		return true
	}
	return err == nil && value != "" && v.In(title)
}

// retell returns the edits of a text that replace words.
func retell(text []byte, says map[string]string) (edits []edit) {
	var quoted []string
	for _, word := range slices.Backward(slices.Sorted(maps.Keys(says))) { // longer ones first
		quoted = append(quoted, regexp.QuoteMeta(word))
	}
	for _, at := range regexp.MustCompile(`\b(?:`+strings.Join(quoted, "|")+`)\b`).FindAllIndex(text, -1) {
		edits = append(edits, edit{at[0], at[1], says[string(text[at[0]:at[1]])]})
	}
	return edits
}

// retold returns the edits that replace words wherever a file says something, except where other edits are. In calls
// that take a message, names are left alone.
func retold(data []byte, others []edit, says map[string]string) []edit {
	if len(says) == 0 {
		return nil
	}
	regions := told().FindAllIndex(data, -1)
	return slices.DeleteFunc(retell(data, says), func(e edit) bool {
		i := slices.IndexFunc(regions, func(m []int) bool { return m[0] <= e.at && e.end <= m[1] })
		if i < 0 || slices.ContainsFunc(others, func(o edit) bool { return o.at < e.end && e.at < o.end }) {
			return true
		}
		called := data[regions[i][0]] == '.' && data[e.at] > '9'
		return called && bytes.Count(data[regions[i][0]:e.at], []byte(`"`))%2 == 0
	})
}

// gone returns the words and numbers of literals that edits take out of a source, and what is said in their place.
func gone(data []byte, edits []edit) map[string]string {
	says := map[string]string{}
	for _, e := range edits {
		left := wordsOf([]byte(e.text))
		for word := range wordsOf(data[e.at:e.end]) {
			if says[word] = "it"; word[0] <= '9' {
				says[word] = "0"
			}
			if left[word] > 0 {
				delete(says, word)
			}
		}
	}
	return says
}

// common returns how many bytes two texts share at both ends, without parting a word.
func common(a, b string) (head, tail int) {
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	for head > 0 && wordByte(a[head-1]) {
		head--
	}
	for tail > 0 && wordByte(a[len(a)-tail]) {
		tail--
	}
	return head, tail
}
