package canary

import (
	"path"
	"slices"
	"strings"

	"deepswe/env"
)

// The names of functions that can make a test fail: in all languages, in Java and PHP, and those of Rust's macros.
var (
	asserting       = env.Pattern(`^(\w+_)?assert\w*$`)
	bracedExpecting = env.Pattern(`^(fail|verify|expect\w*)$`)
	aborting        = env.Pattern(`^(panic|unreachable|todo|unimplemented)$`)
)

// opening returns the bracket of the call of the check at token i; 0 if there is none.
func (f *bracedFile) opening(i int) int {
	if f.kind(i) != 'w' {
		return 0
	}
	rust := path.Ext(f.name) == ".rs"
	open := i + 1
	if rust && f.text(open) == "!" {
		open++
	}
	if !strings.Contains("([{", f.text(open)) || f.text(open) == "" || open == i+1 && f.text(open) != "(" {
		return 0
	}
	switch word := f.text(i); {
	case asserting().MatchString(word), !rust && bracedExpecting().MatchString(word),
		rust && open > i+1 && aborting().MatchString(word):
		return open
	}
	return 0
}

// chain returns the last token of a check, with the methods that are called on its result.
func (f *bracedFile) chain(open int) int {
	last := f.match[open]
	for {
		next := last + 1
		if f.text(next) == "-" && f.text(next+1) == ">" {
			next++
		}
		if f.text(next) != "." && f.text(next) != "->" && f.text(next) != ">" || f.text(next+2) != "(" {
			return last
		}
		last = f.match[next+2]
	}
}

func (t *bracedTest) checks() (all []check) {
	f, depth := t.file, 0
	for i := t.open; i < t.last; i++ {
		if to, ok := f.match[i]; ok && to > i {
			depth++
		} else if ok {
			depth--
		}
		if open := f.opening(i); open > 0 {
			last := f.chain(open)
			headed := f.text(i-1) == ")" // the only statement of a loop or a condition
			all = append(all, check{from: f.tokens[i].From, to: f.tokens[last].To, repeats: depth != 1 || headed})
			i = last
		}
	}
	return all
}

// pureCalls are the functions that make a value of others, by the language's custom. Constructors of types are, too.
var pureCalls = strings.Fields(
	"new from of vec array asList valueOf to_string to_owned to_vec into format from_secs from_millis")

// pureWords are words that may be part of a literal's type.
var pureWords = strings.Fields("as b new mut byte short int long float double boolean char " +
	"u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 str true false null None")

// literals returns the tokens of the literals in an expression that consists of nothing else, apart from what makes
// collections and objects of them; none if the expression has anything else.
func (f *bracedFile) literals(a [2]int) (found []int) {
	for i := a[0]; i < a[1]; i++ {
		text, next := f.text(i), f.text(i+1)
		capital := text[0] >= 'A' && text[0] <= 'Z'
		switch f.kind(i) {
		case 's', 'd':
			if f.text(i-1) != "." && f.text(i-1) != ";" { // the member of a tuple, and the length of an array
				found = append(found, i)
			}
		case 'w':
			call := (next == "(" || next == "!") && slices.Contains(pureCalls, text)
			field := next == ":" && f.text(i+2) != ":" && f.text(i-1) != ":"
			if !capital && !field && !call && !slices.Contains(pureWords, text) {
				return nil
			}
			if text == "true" || text == "false" {
				found = append(found, i)
			}
		default:
			if !strings.Contains("( ) [ ] { } , & - . : ! * => + ; <  >", text) {
				return nil
			}
		}
	}
	return found
}

// bracedEqual are the checks that compare two values.
var bracedEqual = strings.Fields("assertEquals assertSame assertNotEquals assertNotSame assertArrayEquals " +
	"assertCount assert_eq assert_ne debug_assert_eq debug_assert_ne")

// expected returns the argument of a check that is the value it expects: the one that consists of literals. known is
// set if the check is known to compare its first two arguments. ok is false if there is no such value, or if it may be
// any of several.
func (t *bracedTest) expected(arguments [][2]int, known bool) (a [2]int, ok bool) {
	f := t.file
	text := func(a [2]int) bool { return a[1] == a[0]+1 && f.kind(a[0]) == 's' }
	if known && len(arguments) == 3 && text(arguments[0]) && !text(arguments[2]) && !f.numeric(arguments[2]) {
		arguments = arguments[1:] // JUnit 4 has its message first
	}
	if known {
		arguments = arguments[:min(len(arguments), 2)]
	}
	values := make([][2]int, len(arguments))
	for i, a := range arguments {
		values[i] = f.given(a, t)
	}
	arguments = slices.DeleteFunc(values, func(a [2]int) bool { return len(f.literals(a)) == 0 })
	if len(arguments) == 0 || !known && len(arguments) > 1 {
		return a, false
	}
	return arguments[len(arguments)-1], true
}

// given returns the value of a variable, which an expression is, in the test around it; the expression itself if it is
// none, or if the variable may have other values or uses.
func (f *bracedFile) given(a [2]int, t *bracedTest) [2]int {
	if a[1] != a[0]+1 || f.kind(a[0]) != 'w' {
		return a
	}
	at, uses := 0, 0
	for i := t.open; i < t.last; i++ {
		if f.text(i) == f.text(a[0]) && f.kind(i) == 'w' && f.text(i-1) != "." {
			uses++
			if f.text(i+1) == "=" {
				at = i + 2
			}
		}
	}
	if at == 0 || uses != 2 {
		return a
	}
	end := at
	for ; end < t.last && f.text(end) != ";"; end++ {
		if to, ok := f.match[end]; ok && to > end {
			end = to
		}
	}
	return [2]int{at, end}
}

// numeric reports whether an argument is a single number, such as a tolerance.
func (f *bracedFile) numeric(a [2]int) bool { return a[1] == a[0]+1 && f.kind(a[0]) == 'd' }

// messages returns the strings that only say why a check failed.
func (f *bracedFile) messages() (found []int) {
	for i := range f.tokens {
		open := f.opening(i)
		if open == 0 {
			continue
		}
		word, arguments, values := f.text(i), f.arguments(open), 0
		switch {
		case bracedUnary().MatchString(word):
			values = 1
		case slices.Contains(bracedEqual, word), word == "assertThrows":
			values = 2
		case word != "fail" && !aborting().MatchString(word):
			continue
		}
		text := func(a [2]int) bool { return a[1] == a[0]+1 && f.kind(a[0]) == 's' }
		switch {
		case len(arguments) <= values:
		case text(arguments[values]):
			found = append(found, arguments[values][0])
		case f.text(open-1) != "!" && len(arguments) == values+1 && text(arguments[0]) && !f.numeric(arguments[values]):
			found = append(found, arguments[0][0]) // of JUnit 4
		}
	}
	return found
}

// hushBraced blanks the messages of a source that [Braced] reads, in data, which is a copy of it. In Rust, tests are
// among the code that they test, whose own messages they may expect: only theirs are blanked.
func hushBraced(s Source, data []byte) {
	if !(Braced{}).Holds(s.Name) {
		return
	}
	found, err := Braced{}.parse(s)
	if err != nil {
		return
	}
	f := found.(*bracedFile)
	for _, i := range f.messages() {
		within := func(t *bracedTest) bool { return t.marked && t.open < i && i < t.last }
		if path.Ext(s.Name) != ".rs" || slices.ContainsFunc(f.tests, within) {
			hush(data[f.tokens[i].From:f.tokens[i].To], placeholder)
		}
	}
}
