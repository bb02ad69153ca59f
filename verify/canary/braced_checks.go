package canary

import (
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/lexer"
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
	open := i + 1
	if f.rust && f.text(open) == "!" {
		open++
	}
	if !strings.Contains("([{", f.text(open)) || f.text(open) == "" || open == i+1 && f.text(open) != "(" {
		return 0
	}
	switch word := f.text(i); {
	case asserting().MatchString(word), !f.rust && bracedExpecting().MatchString(word),
		f.rust && open > i+1 && aborting().MatchString(word):
		return open
	}
	return 0
}

// chainEnd returns the last token of a check, given its bracket: that of the last method called on its result.
func (f *bracedFile) chainEnd(open int) int {
	last := f.match[open]
	for (f.text(last+1) == "." || f.text(last+1) == "->") && f.text(last+3) == "(" {
		last = f.match[last+3]
	}
	return last
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
			last := f.chainEnd(open)
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

// expectedLiterals returns the tokens of the literals in an expression that consists of nothing else, apart from what
// makes collections and objects of them; none if the expression has anything else.
func (f *bracedFile) expectedLiterals(a [2]int) []int {
	maySurround := func(i int) bool {
		text, next := f.text(i), f.text(i+1)
		call := (next == "(" || next == "!") && slices.Contains(pureCalls, text)
		field := next == ":" && f.text(i+2) != ":" && f.text(i-1) != ":"
		return call || field || slices.Contains(pureWords, text)
	}
	found := f.literals(a, "( ) [ ] { } , & - . : ! * => + ; <  >", maySurround)
	return slices.DeleteFunc(found, func(i int) bool { // the member of a tuple, and the length of an array
		return f.kind(i) != 'w' && (f.text(i-1) == "." || f.text(i-1) == ";")
	})
}

// bracedEqual are the checks that compare two values.
var bracedEqual = strings.Fields("assertEquals assertSame assertNotEquals assertNotSame assertArrayEquals " +
	"assertCount assert_eq assert_ne debug_assert_eq debug_assert_ne")

// expected returns the argument of the check at token i that is the value it expects: the one that consists of
// literals. ok is false if there is no such value, or if it may be any of several.
func (t *bracedTest) expected(i, open int) (a [2]int, ok bool) {
	f := t.file
	arguments, known := f.arguments(open), slices.Contains(bracedEqual, f.text(i))
	if known {
		if f.message(i, open) == 0 {
			arguments = arguments[1:]
		}
		arguments = arguments[:min(len(arguments), 2)]
	}
	var values [][2]int
	for _, a := range arguments {
		if value := t.variableValue(a); len(f.expectedLiterals(value)) > 0 {
			values = append(values, value)
		}
	}
	if len(values) == 0 || !known && len(values) > 1 {
		return a, false
	}
	return values[len(values)-1], true
}

// variableValue returns the expression that is assigned to a variable, if an argument is one. It returns the argument
// itself if it is none, or if the test uses the variable for anything else.
func (t *bracedTest) variableValue(a [2]int) [2]int {
	f := t.file
	if !f.single(a, 'w') {
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

// message returns which argument of the check at token i is a string that only says why it failed: the one after the
// values or, in JUnit 4, the first. It returns -1 if there is none.
func (f *bracedFile) message(i, open int) int {
	word, arguments, values := f.text(i), f.arguments(open), 0
	switch {
	case bracedUnary().MatchString(word):
		values = 1
	case slices.Contains(bracedEqual, word), word == "assertThrows":
		values = 2
	case word != "fail" && !aborting().MatchString(word):
		return -1
	}
	switch {
	case len(arguments) <= values:
		return -1
	case f.single(arguments[values], 's'):
		return values
	}
	tolerance := f.single(arguments[values], 'd')
	if f.text(open-1) != "!" && len(arguments) == values+1 && f.single(arguments[0], 's') && !tolerance {
		return 0
	}
	return -1
}

// hushBraced blanks the messages of a source that [Braced] reads, given its tokens. In Rust, tests are in the same file
// as the code under test, whose own messages they may expect: only theirs are blanked.
func hushBraced(name string, data []byte, tokens []lexer.Token) {
	source, err := matchBrackets(data, tokens)
	if err != nil || !(Braced{}).Holds(name) {
		return
	}
	f := readBraced(name, source)
	for i := range tokens {
		open := f.opening(i)
		if open == 0 || f.message(i, open) < 0 {
			continue
		}
		within := func(t *bracedTest) bool { return t.marked && t.open < i && i < t.last }
		if !f.rust || slices.ContainsFunc(f.tests, within) {
			message := tokens[f.arguments(open)[f.message(i, open)][0]]
			hush(data[message.From:message.To], placeholder)
		}
	}
}
