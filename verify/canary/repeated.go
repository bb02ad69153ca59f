package canary

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A wrong value must not contradict what a test says about itself in words: its message, comments, documentation.

// shortestWord is the least length of a value that is searched for elsewhere.
const shortestWord = 2

// commented matches what is left of a line from a comment on, in any of the languages.
var commented = regexp.MustCompile(`(?m)(?:^|[ \t])(?:#|//).*$|"""[^"]*"""`)

// repeated returns the edits that make a test, which is the range of the file, expect another value: the edit, and the
// same change where a message after the value, a comment or documentation repeats it.
func repeated(data []byte, from, to int, e edit) []edit {
	before, after := string(data[e.at:e.end]), e.text
	head, tail := common(before, after)
	value, other := before[head:len(before)-tail], after[head:len(after)-tail]
	if len(value) < shortestWord || !utf8.ValidString(value) || other == "" || strings.ContainsAny(value+other, "\n\r") {
		return []edit{e}
	}
	word := regexp.MustCompile(`\b` + regexp.QuoteMeta(value) + `\b`)
	e.text = after[:len(after)-tail] + word.ReplaceAllLiteralString(after[len(after)-tail:], other)
	edits := []edit{e}
	for _, m := range commented.FindAllIndex(data[from:to], -1) {
		for _, w := range word.FindAllIndex(data[from+m[0]:from+m[1]], -1) {
			at, end := from+m[0]+w[0], from+m[0]+w[1]
			if end <= e.at || at >= e.end {
				edits = append(edits, edit{at, end, other})
			}
		}
	}
	return edits
}

// anyWord matches a word of at least shortestWord characters.
var anyWord = regexp.MustCompile(`\w\w+`)

// unsaid adds edits that take words out of comments and documentation which the edits take out of the test.
func unsaid(data []byte, from, to int, edits []edit) []edit {
	gone := map[string]bool{}
	for _, e := range edits {
		for _, word := range anyWord.FindAllString(string(data[e.at:e.end]), -1) {
			if !strings.Contains(e.text, word) {
				gone[word] = true
			}
		}
	}
	out := slices.Clone(edits)
	for _, m := range commented.FindAllIndex(data[from:to], -1) {
		for _, w := range anyWord.FindAllIndex(data[from+m[0]:from+m[1]], -1) {
			at, end := from+m[0]+w[0], from+m[0]+w[1]
			inside := slices.ContainsFunc(edits, func(e edit) bool { return e.at < end && at < e.end })
			if gone[string(data[at:end])] && !inside {
				out = append(out, edit{at, end, "it"})
			}
		}
	}
	return out
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
