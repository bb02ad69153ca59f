package canary

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"deepswe/env"
	"deepswe/env/lexer"
)

// bracedOpposites maps functions to functions that fail where they pass. Those of Rust's options and results are called
// within a check.
var bracedOpposites = map[string]string{
	"assertTrue": "assertFalse", "assertFalse": "assertTrue", "assertNull": "assertNotNull", "assertNotNull": "assertNull",
	"assertSame": "assertNotSame", "assertNotSame": "assertSame", "assertNotEquals": "assertEquals",
	"assertEquals": "assertNotEquals", "assertEmpty": "assertNotEmpty", "assertNotEmpty": "assertEmpty",
	"assertContains": "assertNotContains", "assertArrayHasKey": "assertArrayNotHasKey",
	"assertInstanceOf": "assertNotInstanceOf", "assertStringContainsString": "assertStringNotContainsString",
	"assert_eq": "assert_ne", "assert_ne": "assert_eq",
	"is_some": "is_none", "is_none": "is_some", "is_ok": "is_err", "is_err": "is_ok",
	"isTrue": "isFalse", "isFalse": "isTrue", "isNull": "isNotNull", "isNotNull": "isNull",
	"isEqualTo": "isNotEqualTo", "isNotEqualTo": "isEqualTo",
}

// bracedUnary matches the names of checks of a single value.
var bracedUnary = env.Pattern(`^(assert(True|False|(Not)?Null|(Not)?Empty)?|debug_assert)$`)

// comparing matches the names of checks that fail if a literal among their arguments is another one, unless rejecting
// does.
var (
	comparing = env.Pattern(`(?i)eq|same|contain|string|count|len|size|output|render|written|error|starts|ends|expect`)
	rejecting = env.Pattern(`(?i)not|_ne$|none`)
)

// bracedMatchers are the methods and matchers of AssertJ and Hamcrest whose argument is the expected value.
var bracedMatchers = strings.Fields("isEqualTo hasSize contains containsExactly containsOnly startsWith endsWith " +
	"hasMessage is equalTo containsString hasItem hasItems")

// javaErrors maps errors of the language to others that tests expect about as often. None is a base class of another
// one.
var javaErrors = map[string]string{
	"IllegalArgumentException": "IllegalStateException", "IllegalStateException": "IllegalArgumentException",
	"NullPointerException":          "UnsupportedOperationException",
	"UnsupportedOperationException": "NullPointerException",
}

func (t *bracedTest) mutations(r *chance) []mutation {
	if t.panics { // it passes if it panics, so it cannot be made to fail by a check
		return nil
	}
	f := t.file
	var all []mutation
	for i := t.open; i < t.last; i++ {
		open := f.opening(i)
		if open == 0 {
			continue
		}
		last := f.chainEnd(open)
		from, texts := t.wrong(i, open, last, r)
		to := from
		if len(texts) == 0 {
			from, to, texts = f.opposite(i, open, last)
		}
		if len(texts) > 0 {
			key := strconv.Itoa(i - t.first)
			all = append(all, replacement(Expectation, key, f.tokens[from].From, f.tokens[to].To, texts...))
		}
		i = last
	}
	at, n := f.tokens[t.open].To, len(t.function)%7+2
	gap := string(f.data[at:f.tokens[t.open+1].From])
	indent := gap[strings.LastIndexByte(gap, '\n')+1:]
	return append(all, replacement(Outright, "start", at, at, "\n"+indent+f.impossible(n)))
}

// impossible returns a check that cannot hold, about a text of n bytes.
func (f *bracedFile) impossible(n int) string {
	x := strings.Repeat("x", n)
	switch path.Ext(f.name) {
	case ".rs":
		return fmt.Sprintf("assert_eq!(%q.len(), %d);", x, n+1)
	case ".java":
		return fmt.Sprintf("if (%q.length() != %d) throw new AssertionError(\"%d is not %d\");", x, n+1, n, n+1)
	}
	return fmt.Sprintf("self::assertSame(%d, strlen('%s'));", n+1, x)
}

// wrong returns the token of what the check at token i expects, a literal or the class of an error, and others in its
// place.
func (t *bracedTest) wrong(i, open, last int, r *chance) (at int, texts []string) {
	f := t.file
	arguments := f.arguments(open)
	if f.text(i) == "assertThrows" && len(arguments) > 0 && strings.Contains("{};", f.text(i-1)) { // its result has no use
		if at := arguments[0][0]; javaErrors[f.text(at)] != "" && f.text(at+1) == "." {
			return at, []string{javaErrors[f.text(at)]}
		}
	}
	a, ok := [2]int{}, false
	switch {
	case strings.HasPrefix(f.text(i), "assertThat"):
		a, ok = f.matcherArgument(open, last)
	case comparing().MatchString(f.text(i)) && !rejecting().MatchString(f.text(i)):
		a, ok = t.expected(i, open)
	}
	if !ok {
		return 0, nil
	}
	return replaceAny(f.expectedLiterals(a), r, f.others)
}

// matcherArgument returns the argument of a matcher in a check that begins with assertThat.
func (f *bracedFile) matcherArgument(open, last int) (a [2]int, ok bool) {
	for i := open; i < last; i++ {
		if f.text(i+1) != "(" || !slices.Contains(bracedMatchers, f.text(i)) || f.text(i-1) == "not" {
			continue
		}
		chained := i > f.match[open]
		if before := f.text(i - 1); chained && before == "." || !chained && (before == "," || before == "(") {
			for _, argument := range f.arguments(i + 1) {
				if len(f.expectedLiterals(argument)) > 0 {
					return argument, true
				}
			}
		}
	}
	return a, false
}

// opposite returns the tokens to replace, and by what, to turn the check at token i into its opposite.
func (f *bracedFile) opposite(i, open, last int) (from, to int, texts []string) {
	word, arguments := f.text(i), f.arguments(open)
	switch {
	case word == "assert" && f.text(i+1) == "!" && len(arguments) > 0:
		return f.inverse(arguments[0])
	case bracedOpposites[word] != "" && f.canCall(i, bracedOpposites[word]):
		return i, i, []string{bracedOpposites[word]}
	case (word == "assertTrue" || word == "assertFalse") && len(arguments) == 1:
		return f.inverse(arguments[0])
	}
	for j := f.match[open] + 1; j < last; j++ {
		if other := bracedOpposites[f.text(j)]; f.text(j-1) == "." && other != "" {
			return j, j, []string{other}
		}
	}
	return 0, 0, nil
}

// canCall reports whether the function at token i can be replaced by another one without more imports. In Java that is
// a method of the same object, or one that the file imports, inherits or calls elsewhere.
func (f *bracedFile) canCall(i int, name string) bool {
	if before := f.text(i - 1); path.Ext(f.name) != ".java" || before == "." {
		return true
	}
	return slices.ContainsFunc(f.tokens, func(t lexer.Token) bool { return t.Text == name }) ||
		importsAll().Match(f.data) || name != "assertNotEquals" && inherits().Match(f.data)
}

// importsAll and inherits match declarations that bring all assertions into a class. JUnit 3's TestCase has no
// assertNotEquals.
var (
	importsAll = env.Pattern(`import static [\w.]+\.\*`)
	inherits   = env.Pattern(`extends \w*TestCase\b`)
)

// inverse negates a condition. Comparisons get the opposite operator.
func (f *bracedFile) inverse(a [2]int) (from, to int, texts []string) {
	compares, joins := 0, false
	for j := a[0]; j < a[1]; j++ {
		switch f.text(j) {
		case "==", "!=":
			compares = j
		case "&&", "||", "&", "|", "^", "<", ">", "<=", ">=", "?", "instanceof", "as":
			joins = true
		}
		if end, ok := f.match[j]; ok && end > j {
			j = end
		}
	}
	whole := string(f.data[f.tokens[a[0]].From:f.tokens[a[1]-1].To])
	method := f.match[a[1]-1] - 1
	switch {
	case joins:
		return a[0], a[1] - 1, []string{"!(" + whole + ")"}
	case compares > 0:
		return compares, compares, []string{map[string]string{"==": "!=", "!=": "=="}[f.text(compares)]}
	case f.text(a[0]) == "!":
		return a[0], a[0], []string{""}
	case f.text(a[1]-1) == ")" && f.text(method-1) == "." && bracedOpposites[f.text(method)] != "":
		return method, method, []string{bracedOpposites[f.text(method)]}
	}
	return a[0], a[0], []string{"!" + f.text(a[0])}
}

// suffixed matches a number with the suffix of its type.
var suffixed = env.Pattern(`^([0-9]+|[0-9]+\.[0-9]+)(_?[iu](?:8|16|32|64|128|size)|_?f(?:32|64)|[lLfFdD])?$`)

// others returns other literals of the same type in the place of token i.
func (f *bracedFile) others(i int, r *chance) []string {
	text := f.text(i)
	switch f.kind(i) {
	case 'w':
		return jsOthers('w', text, r)
	case 'd':
		return numbersLike(text, r)
	}
	from, to := strings.IndexAny(text, `"'`)+1, strings.LastIndexAny(text, `"'`)
	if from > to || strings.HasPrefix(text, `"""`) || strings.Contains(text, "$") && path.Ext(f.name) == ".php" {
		return nil
	}
	others := otherTexts(text[from:to], r)
	if text[from-1] == '\'' && path.Ext(f.name) != ".php" { // a single character
		others = slices.DeleteFunc(others, func(s string) bool { return len(s) != 1 })
	}
	return mapped(others, func(s string) string { return text[:from] + s + text[to:] })
}

// numbersLike returns other numbers of the same type. If that is not written, they are not larger than the largest
// number of the smallest type that has the right one, because a compiler would refuse them.
func numbersLike(text string, r *chance) []string {
	m := suffixed().FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	others := otherDecimals(m[1], 0, r)
	if n, err := strconv.Atoi(m[1]); err == nil {
		sizes := []int{math.MaxInt8, math.MaxUint8, math.MaxInt16, math.MaxUint16, math.MaxInt32, math.MaxUint32, math.MaxInt}
		at, _ := slices.BinarySearch(sizes, n)
		others = mapped(otherNumbers(n, 0, sizes[at], r), strconv.Itoa)
	}
	return mapped(others, func(s string) string { return s + m[2] })
}
