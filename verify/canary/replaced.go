package canary

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"deepswe/env"
	"deepswe/verify/literal"
)

// replaced returns the value that an edit takes out of a test and the one that it puts there, both as they are written.
// They are empty if they cannot be told from the text around them. If instead has an entry for the first, with is an
// edit that puts the value of that entry there; otherwise it is e.
func replaced(data []byte, e edit, instead map[string]string) (with edit, value, other string) {
	value, other, head, tail := changed(data, e)
	if known, ok := instead[value]; ok {
		e.text, other = e.text[:head]+known+e.text[len(e.text)-tail:], known
	}
	if value == "" || other == "" || !utf8.ValidString(value) || strings.ContainsAny(value+other, "\n\r") {
		return e, "", ""
	}
	return e, value, other
}

// valued returns the value that an edit takes out of a test, as text has it. partial is set if text is not a whole
// literal, but a part of one or a name.
func valued(text string) (v literal.Value, partial, ok bool) {
	if text == "" {
		return v, false, false
	}
	v, err := literal.Parse(text)
	if partial = err != nil; partial {
		v, err = literal.Parse(strconv.Quote(text))
	}
	return v, partial, err == nil
}

// tells reports whether the test still reveals what an edit replaces: a title, which no edit changes, contains it, or
// it is a name that the file imports for no other use.
func tells(data []byte, way []edit, titles literal.Text, imported map[string]bool) bool {
	if len(way) != 1 {
		return false
	}
	_, text, _ := replaced(data, way[0], nil)
	if imported[text] {
		return true
	}
	// A title says which error is expected without saying that it is one: test_missing_key.
	words, err := literal.Parse(strconv.Quote(kindOfError().ReplaceAllString(text, "")))
	return err == nil && text != "" && words.In(titles)
}

// odd reports whether a mutation that can be made in only one way gives itself away. It does if it only adds to what
// was expected, because few people would write [0] for [], "s" for "", or "done.s" for "done."; if it replaces a word
// such as None by 0, because no mutation does the reverse; if it negates a check, because only about one check in six
// is negated; and if it inverts a check, and a title or a name in the check says which side is right: what is
// rejected is not allowed.
func odd(data []byte, m mutation, titles literal.Text) bool {
	if len(m.ways) != 1 || len(m.ways[0]) != 1 {
		return false
	}
	before, after, _, _ := changed(data, m.ways[0][0])
	inverted := inverts().MatchString(before + after)
	negated := negates().MatchString(after) && !negates().MatchString(before)
	if before == "" && !inverted || after == "0" && before > "9" || negated {
		return true
	}
	named := applied().ReplaceAllString(inverts().ReplaceAllString(lineAt(data, m.ways[0][0].at), " "), " ")
	return (inverted || before != "" && before[0] > '9') && slices.ContainsFunc(titles, sided().MatchString) ||
		inverted && slices.ContainsFunc(literal.Read(named), sided().MatchString)
}

// measures reports whether a mutation makes a length wrong in a test that checks something else as well: the elements
// that the test names there reveal the right length.
func measures(data []byte, m mutation, t test) bool {
	line := lineAt(data, m.ways[0][0].at)
	return measured().MatchString(line) && len(t.checks()) > 1
}

// disagrees reports whether another check of the test has the value that a mutation replaces. Where all other checks
// expect that value, the altered one stands out.
func disagrees(data []byte, m mutation, t test) bool {
	at := m.ways[0][0].at
	_, value, _ := replaced(data, m.ways[0][0], nil)
	return value != "" && slices.ContainsFunc(t.checks(), func(c check) bool {
		return (at < c.from || c.to <= at) && countWords(data[c.from:c.to])[value] > 0
	})
}

// measured matches comparisons with a length.
var measured = env.Pattern(`\b[lL]en\(|\.length\b|\b(toHaveLength|lengthOf)\b`)

// changed returns what an edit takes out and puts in, in whole words, and how many bytes before and after that stay
// the same.
func changed(data []byte, e edit) (before, after string, head, tail int) {
	before, after = string(data[e.at:e.end]), e.text
	head, tail = common(before, after)
	return before[head : len(before)-tail], after[head : len(after)-tail], head, tail
}

// kindOfError matches the end of an error's name, which does not say what the error is about.
var kindOfError = env.Pattern(`(Error|Exception|Warning)$`)

var (
	// inverts matches what turns a check into its opposite.
	inverts = env.Pattern(`(?i)not|true|false|!`)
	// negates matches what negates a check.
	negates = env.Pattern(`(?i)not|!`)
	// applied matches what a check calls, and words of the language.
	applied = env.Pattern(`[\w.]+\(|\b(is|None|null|undefined|empty)\b`)
	// sided matches words of titles that say whether something holds, in the form of package literal.
	sided = env.Pattern(` (no|not|non|never|without|none|nothing|lack|missing|absent|empty|in?valid|bad|wrong|true|` +
		`false|fail\w*|refus\w*|reject\w*|den(y|ie\w*)|forbid\w*|disallow\w*|disabled?|ignor\w*|skip\w*|exclud\w*|omit\w*|` +
		`drop\w*|un(known|able|set|safe|supported|defined|equal|changed)|is|are|ha|have|can|accept\w*|allow\w*|permit\w*|` +
		`exist\w*|contain\w*|include|including|support\w*|equal\w*|differ\w*) `)
)

// onlyExpected returns the names that a file imports and uses only once, or only where an error is expected.
func onlyExpected(data []byte) map[string]bool {
	uses, others, imports := map[string]int{}, map[string]int{}, map[string]bool{}
	for line := range bytes.Lines(data) {
		importing, expecting := importing().Match(line), expecting().Match(line)
		for _, name := range names().FindAllString(string(line), -1) {
			if importing {
				imports[name] = true
				continue
			}
			uses[name]++
			if !expecting {
				others[name]++
			}
		}
	}
	maps.DeleteFunc(imports, func(name string, _ bool) bool {
		return uses[name] == 0 || uses[name] > 1 && others[name] > 0
	})
	return imports
}

var (
	importing = env.Pattern(`\b(import|require)\b`)
	// expecting matches checks of errors.
	expecting = env.Pattern(`(?i)raises|throws?\b|rejects|\bErrorIs|\berrors\.(Is|As)\b`)
)

// common returns how many bytes two texts share at either end, without splitting a word.
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
