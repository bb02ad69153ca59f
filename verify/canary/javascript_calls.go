package canary

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"deepswe/env"
)

// jsFile is a parsed JavaScript or TypeScript file.
type jsFile struct {
	*lexed
	tests  []*jsTest
	suites []*jsTest // calls that group tests, such as describe('sums', () => { ... })
}

// jsTest is a call that defines a test, such as it('adds', () => { ... }).
type jsTest struct {
	file *jsFile
	// called is the title, or the longest part of it that all cases share.
	called string
	// cases matches the titles of the cases; nil if the title is a literal.
	cases *regexp.Regexp
	// computed is set if the title is an expression of which nothing is known.
	computed bool
	// known is the number of bytes of a title with placeholders that are known.
	known       int
	first, last int // tokens of the statement
	title       int // the token that called is in
	open        int // the first brace of the callback's body; 0 if it has none
}

// jsCallees are the functions that define tests, jsGroups those that define suites. jsVariants are the members that may
// follow, as in it.only and it.each([1, 2]).
var (
	jsCallees  = []string{"it", "test", "specify"}
	jsGroups   = []string{"describe", "suite", "context"}
	jsVariants = []string{"concurrent", "each", "for", "only", "runIf", "sequential", "skipIf"}
)

func (JavaScript) parse(s Source) (suite, error) {
	source, err := lex(s)
	if err != nil {
		return nil, err
	}
	f := &jsFile{lexed: source}
	for i := range f.tokens {
		if f.text(i) != "(" {
			continue
		}
		if first, each, ok := f.callee(i-1, jsCallees); ok {
			if t := f.test(i, each); t != nil && f.statement(first, t) {
				f.tests = append(f.tests, t)
			}
		} else if first, each, ok := f.callee(i-1, jsGroups); ok {
			if t := f.test(i, each); t != nil {
				t.first = first
				f.suites = append(f.suites, t)
			}
		}
	}
	return f, nil
}

// callee returns the first token of the function that is called, if it is one of those with the names: it, test.only,
// t.test, it.each<number>([1, 2]). each is set if the title contains placeholders for the values of a case.
func (f *jsFile) callee(last int, names []string) (first int, each, ok bool) {
	for last = f.beforeTypes(last); ; {
		member := last
		if f.text(last) == ")" {
			member = f.beforeTypes(f.match[last] - 1)
		} else if f.kind(last) == 't' {
			member = f.beforeTypes(last - 1)
		}
		if f.text(member-1) != "." || !slices.Contains(jsVariants, f.text(member)) {
			break
		}
		each = each || member < last && (f.text(member) == "each" || f.text(member) == "for")
		last = member - 2
	}
	if !slices.Contains(names, f.text(last)) {
		return 0, false, false
	}
	if last == 0 || f.text(last-1) != "." {
		return last, each, last == 0 || f.text(last-1) != "function"
	}
	// A subtest, which is defined with the parameter of the outer test.
	ok = last > 1 && f.tokens[last-2].Kind == 'w' && (last == 2 || f.text(last-3) != ".")
	return last - 2, each, ok
}

// beforeTypes returns the token before the type arguments that end at a token: the function in each<[string, number]>.
// If none end there, it is the token itself.
func (f *jsFile) beforeTypes(last int) int {
	depth := 0
	for i := last; i > 0; i-- {
		text := f.text(i)
		switch closing := strings.Trim(text, ">") == ""; {
		case closing:
			depth += len(text)
		case depth == 0 || text == ";":
			return last
		case text == "<":
			depth--
		case f.match[i] > 0 && f.match[i] < i:
			i = f.match[i]
		}
		if depth == 0 {
			return i - 1
		}
	}
	return last
}

// statement finds the first and last token of the test's statement. It returns false if the call is only a part of a
// statement.
func (f *jsFile) statement(first int, t *jsTest) bool {
	if first > 0 && f.text(first-1) == "await" {
		first--
	}
	for t.last+3 < len(f.tokens) && f.text(t.last+1) == "." && f.text(t.last+3) == "(" { // it(...).timeout(100)
		t.last = f.match[t.last+3]
	}
	t.first = first
	if first == 0 {
		return true
	}
	before := f.tokens[first-1]
	newLine := strings.Contains(string(f.data[before.To:f.tokens[first].From]), "\n")
	switch text := f.text(first - 1); {
	case strings.Contains("{};", text):
		return true
	case text == "=>" || text == ")" && f.headed(first): // cases.forEach((c) => it(c.title, ...))
		return true
	case before.Kind == 'o':
		return text == ")" && newLine
	default:
		return newLine && text != "return" && text != "await"
	}
}

// test parses the arguments of a call. It returns nil if they do not define a test with a title.
func (f *jsFile) test(open int, each bool) *jsTest {
	end, arguments := f.match[open], f.arguments(open)
	if len(arguments) < 2 {
		return nil
	}
	comma := arguments[0][1]
	t := &jsTest{file: f, last: end}
	if !t.entitle(open+1, comma, each) {
		return nil
	}
	// The callback is the last argument with a block that is not inside another bracket.
	for i := comma; i < end; i++ {
		if to, ok := f.match[i]; ok {
			before := f.text(i - 1)
			if f.text(i) == "{" && (before == "=>" || before == ")") {
				t.open = i
			}
			i = to
		}
	}
	return t
}

// jsHole matches placeholders for values in a template, jsEachHole those in the title of a test with cases.
var (
	jsHole     = env.Pattern(`\$\{[^{}]*\}`)
	jsEachHole = env.Pattern(`\$\{[^{}]*\}|%[sdifjoOp#%$]|\$#?[A-Za-z_][\w.]*`)
)

// shortest is the minimum number of letters of a part of a title that identifies a test.
const shortest = 3

// entitle parses a title. It returns false if there is none.
func (t *jsTest) entitle(from, to int, each bool) bool {
	f, hole := t.file, jsHole()
	if each {
		hole = jsEachHole()
	}
	first := f.tokens[from]
	literal := first.Kind == 's' || first.Kind == 't' && !strings.Contains(f.text(from), "${")
	if to == from+1 && literal && !hole.MatchString(f.text(from)) {
		called, ok := jsText(f.text(from))
		t.called, t.title = called, from
		return ok
	}
	cases := ""
	for i := from; i < to; i++ {
		if end, ok := f.match[i]; ok {
			i = end
			cases += ".*"
			continue
		}
		token := f.tokens[i]
		if token.Kind != 's' && token.Kind != 't' {
			cases += ".*"
			continue
		}
		for n, part := range hole.Split(string(f.data[token.From+1:token.To-1]), -1) {
			if plain := strings.TrimSpace(part); len(plain) > len(t.called) && !strings.ContainsAny(plain, "\\$`") {
				t.called, t.title = plain, i
			}
			if n > 0 {
				cases += ".*"
			}
			cases += regexp.QuoteMeta(part)
			t.known += len(part)
		}
	}
	if len(jsLetters().FindAllString(t.called, -1)) < shortest {
		t.computed, t.called, t.title = true, "", from
	}
	var err error
	t.cases, err = regexp.Compile(`(?s)(^|\W)` + cases + `$`)
	return to > from && err == nil
}

var jsLetters = env.Pattern(`\pL`)

// jsText returns the value of a plain string literal.
func jsText(literal string) (string, bool) {
	quote, body := literal[:1], literal[1:max(1, len(literal)-1)]
	if !strings.Contains(body, `\`) {
		return body, true
	}
	if quote == "'" {
		body = strings.ReplaceAll(strings.ReplaceAll(body, `\'`, `'`), `"`, `\"`)
	}
	text, err := strconv.Unquote(`"` + body + `"`)
	return text, err == nil
}
