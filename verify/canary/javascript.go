package canary

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// JavaScript writes tests for Jest, Vitest, Mocha and node's own runner, in JavaScript and TypeScript.
type JavaScript struct{}

var _ Writer = JavaScript{}

// Holds reports whether a file of that name may hold tests.
func (JavaScript) Holds(name string) bool {
	switch path.Ext(name) {
	case ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx":
		return true
	}
	return false
}

// Address splits the id of a test: its title, in some reports behind those of its suites.
func (JavaScript) Address(id string) (file, word string) {
	id = strings.TrimPrefix(strings.TrimSpace(id), "- ")
	for _, separator := range []string{" > ", " › ", " - ", ": "} {
		if i := strings.LastIndex(id, separator); i >= 0 {
			id = id[i+len(separator):]
		}
	}
	return "", id
}

func (JavaScript) rename(reported, from, to string) (string, bool) {
	before, ok := strings.CutSuffix(reported, from)
	if !ok || before != "" && wordByte(before[len(before)-1]) {
		return reported, false
	}
	return before + to, true
}

// jsFile is a file of JavaScript.
type jsFile struct {
	data   []byte
	tokens []jsToken
	match  map[int]int // the closing bracket of each opening one, by tokens
	tests  []*jsTest
}

// jsTest is a call such as it('adds', () => { ... }).
type jsTest struct {
	file        *jsFile
	called      string
	around      int // the token of the bracket that the call is directly inside of, -1 at the top
	first, last int // tokens of the call, its last one the closing bracket
	title       int // the title's token
	open, close int // of the callback's block; 0 where it has none
}

var jsCallees = []string{"it", "test", "specify"}

func (JavaScript) parse(s Source) (suite, error) {
	tokens, err := jsLex(s.Data)
	if err != nil {
		return nil, err
	}
	f := &jsFile{data: s.Data, tokens: tokens, match: map[int]int{}}
	if err := f.brackets(); err != nil {
		return nil, err
	}
	return f, nil
}

// brackets matches the brackets, and finds the tests on the way.
func (f *jsFile) brackets() error {
	open := []int{-1}
	type call struct{ callee, open, around int }
	var calls []call
	for i, t := range f.tokens {
		if t.kind != 'p' {
			continue
		}
		switch c := f.data[t.from]; c {
		case '(', '[', '{':
			if c == '(' && i > 0 && f.callee(i-1) {
				calls = append(calls, call{i - 1, i, open[len(open)-1]})
			}
			open = append(open, i)
		case ')', ']', '}':
			at := open[len(open)-1]
			if at < 0 || !strings.Contains("() [] {}", string(f.data[f.tokens[at].from])+string(c)) {
				return fmt.Errorf("%w: the brackets do not match", errSyntax)
			}
			f.match[at] = i
			open = open[:len(open)-1]
		}
	}
	if len(open) > 1 {
		return fmt.Errorf("%w: a bracket is not closed", errSyntax)
	}
	for _, c := range calls {
		if t := f.test(c.callee, c.open, c.around); t != nil {
			f.tests = append(f.tests, t)
		}
	}
	return nil
}

// callee reports whether a token is the name of a function that defines a test.
func (f *jsFile) callee(i int) bool {
	return slices.Contains(jsCallees, f.text(i)) && (i == 0 || f.text(i-1) != "." && f.text(i-1) != "function")
}

func (f *jsFile) text(i int) string { return string(f.data[f.tokens[i].from:f.tokens[i].to]) }

// test reads a call; nil where it is no test with a plain title.
func (f *jsFile) test(callee, open, around int) *jsTest {
	end, ok := f.match[open]
	title := open + 1
	if !ok || title+1 >= end || f.tokens[title].kind != 's' && f.tokens[title].kind != 't' || f.text(title+1) != "," {
		return nil
	}
	called, ok := jsText(f.text(title))
	if !ok {
		return nil
	}
	t := &jsTest{file: f, called: called, around: around, first: callee, last: end, title: title}
	if callee > 0 && f.text(callee-1) == "await" {
		t.first--
	}
	// The callback is the last argument with a block, and not inside of another bracket.
	for i := title; i < end; i++ {
		if to, ok := f.match[i]; ok {
			before := f.text(i - 1)
			if f.text(i) == "{" && (before == ">" || before == ")") {
				t.open, t.close = i, to
			}
			i = to
		}
	}
	return t
}

// jsText is the value of a plain string.
func jsText(literal string) (string, bool) {
	quote, body := literal[:1], literal[1:max(1, len(literal)-1)]
	if quote == "`" && strings.Contains(body, "${") {
		return "", false
	}
	if !strings.Contains(body, `\`) {
		return body, true
	}
	if quote == "'" {
		body = strings.ReplaceAll(strings.ReplaceAll(body, `\'`, `'`), `"`, `\"`)
	}
	text, err := strconv.Unquote(`"` + body + `"`)
	return text, err == nil
}

func (f *jsFile) find(id string) (test, bool) {
	_, word := JavaScript{}.Address(id)
	best := -1
	for i, t := range f.tests {
		title := strings.TrimSpace(t.called)
		if title == "" || title != word && id != title && !strings.HasSuffix(id, title) {
			continue
		}
		if best < 0 || len(t.called) > len(f.tests[best].called) {
			best = i
		}
	}
	if best < 0 {
		return nil, false
	}
	return f.tests[best], true
}

func (f *jsFile) ids(string) (ids []string) {
	for _, t := range f.tests {
		ids = append(ids, t.called)
	}
	return ids
}

func (t *jsTest) name() string { return t.called }

// end is behind the statement.
func (t *jsTest) end() int {
	if t.last+1 < len(t.file.tokens) && t.file.text(t.last+1) == ";" {
		return t.file.tokens[t.last+1].to
	}
	return t.file.tokens[t.last].to
}

// places are before the test, and behind it or a later one beside it.
func (t *jsTest) places() []int {
	places := []int{t.file.tokens[t.first].from}
	for _, other := range t.file.tests {
		if other.around == t.around && other.first >= t.first {
			places = append(places, other.end())
		}
	}
	return places
}

// render is the test with another title, and with a part replaced.
func (t *jsTest) render(name string, from, to int, text string) string {
	data := t.file.data
	start, title := t.file.tokens[t.first].from, t.file.tokens[t.title]
	quoted := t.quoted(name)
	end := t.file.tokens[t.last].to
	line := start
	for line > 0 && (data[line-1] == ' ' || data[line-1] == '\t') {
		line--
	}
	return "\n" + string(data[line:title.from]) + quoted + string(data[title.to:from]) +
		text + string(data[to:end]) + ";\n"
}

// quoted writes a title as the test's own is written.
func (t *jsTest) quoted(name string) string {
	if t.file.text(t.title)[0] == '"' {
		return strconv.Quote(name)
	}
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`).Replace(name) + "'"
}

// jsNamed finds what may make a test depend on its own name.
var jsNamed = regexp.MustCompile(`[Ss]napshot|currentTestName|fullTitle|\.title\b|\bt\.name\b|golden`)

func (t *jsTest) titled(name string) (from, to int, text string, ok bool) {
	f := t.file
	title := f.tokens[t.title]
	return title.from, title.to, t.quoted(name), !jsNamed.Match(f.data[f.tokens[t.first].from:f.tokens[t.last].to])
}

// jsEqual are the methods that compare with what is expected: the last argument of expect's, the second of assert's.
var jsEqual = map[string]int{
	"toBe": 0, "toEqual": 0, "toStrictEqual": 0, "eql": 0, "eq": 0, "toHaveLength": 0, "toContain": 0,
	"equal": 1, "strictEqual": 1, "deepEqual": 1, "deepStrictEqual": 1, "is": 1, "same": 1, "equals": 1,
	"toMatchObject": 0, "toHaveBeenCalledTimes": 0,
}

// jsOpposites are methods without an expected value, and what they become.
var jsOpposites = map[string]string{
	"toBeTruthy": "toBeFalsy", "toBeFalsy": "toBeTruthy", "toBeNull": "toBeUndefined", "toBeDefined": "toBeUndefined",
	"toBeUndefined": "toBeDefined", "toBeNaN": "toBeNull", "throws": "doesNotThrow", "doesNotThrow": "throws",
}

func (t *jsTest) sites() []site {
	f := t.file
	var all []site
	for i := t.last; i > t.title; i-- {
		if f.tokens[i].kind != 'n' || i+1 >= t.last || f.text(i+1) != "(" || f.text(i-1) != "." {
			continue
		}
		from, to, text, ok := f.wrong(i)
		if !ok {
			continue
		}
		key := strconv.Itoa(i - t.first)
		all = append(all, site{Expectation, key, func(name string) string { return t.render(name, from, to, text) }})
	}
	if t.open == 0 {
		return all
	}
	at, n := f.tokens[t.open].to, len(t.called)%7+2
	text := fmt.Sprintf("\n  if ('x'.repeat(%d).length !== %d) throw new Error('%d is not %d');", n, n+1, n, n+1)
	return append(all, site{Outright, "start", func(name string) string { return t.render(name, at, at, text) }})
}

// wrong makes the check by the method at a token expect something else.
func (f *jsFile) wrong(i int) (from, to int, text string, ok bool) {
	method, open := f.text(i), i+1
	end := f.match[open]
	if other := jsOpposites[method]; other != "" && !f.negated(i) {
		return f.tokens[i].from, f.tokens[i].to, other, true
	}
	at, known := jsEqual[method]
	if !known || f.negated(i) {
		return 0, 0, "", false
	}
	arguments := [][2]int{}
	first := open + 1
	for j := open + 1; j <= end; j++ {
		if to, ok := f.match[j]; ok && j != end {
			j = to
			continue
		}
		if j == end || f.text(j) == "," {
			if j > first {
				arguments = append(arguments, [2]int{first, j})
			}
			first = j + 1
		}
	}
	if len(arguments) == 1 {
		at = 0 // chai's expect(x).to.equal(1)
	}
	if at >= len(arguments) {
		return 0, 0, "", false
	}
	a := arguments[at]
	for j := a[1] - 1; j >= a[0]; j-- {
		plain := a[1]-a[0] == 1 || strings.Contains("[{", f.text(a[0])) && f.match[a[0]] == a[1]-1
		if !plain {
			break
		}
		if j+1 < a[1] && f.text(j+1) == ":" {
			continue // a key
		}
		if other, ok := jsOther(f.tokens[j].kind, f.text(j)); ok {
			return f.tokens[j].from, f.tokens[j].to, other, true
		}
	}
	from, to = f.tokens[a[0]].from, f.tokens[a[1]-1].to
	return from, to, "[" + string(f.data[from:to]) + ", 0]", true
}

// negated reports whether a chain of methods says "not" before a token.
func (f *jsFile) negated(i int) bool {
	for j := i - 1; j > 0 && f.text(j) == "."; j -= 2 {
		if f.text(j-1) == "not" || strings.HasPrefix(f.text(j-1), "not") {
			return true
		}
		if f.tokens[j-1].kind != 'n' {
			break
		}
	}
	return false
}

// jsOther is another literal of the same kind.
func jsOther(kind byte, text string) (string, bool) {
	switch {
	case kind == 's' || kind == 't' && !strings.Contains(text, "${"):
		return text[:len(text)-1] + "s" + text[len(text)-1:], true
	case kind == 'd':
		if n, err := strconv.Atoi(text); err == nil {
			return strconv.Itoa(n + 1), true
		}
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return strconv.FormatFloat(n+1, 'f', -1, 64), true
		}
	case text == "true":
		return "false", true
	case text == "false":
		return "true", true
	case text == "null" || text == "undefined":
		return "0", true
	}
	return "", false
}
