package canary

import (
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"

	"deepswe/env"
)

// Shell changes tests for runners in POSIX sh that call every function whose name begins with test, as shunit2
// does.
type Shell struct{}

var _ Writer = Shell{}

// Holds reports whether a file with this name may contain tests.
func (Shell) Holds(name string) bool { return path.Ext(name) == ".sh" }

// Address returns no file, and the id, which is the function's name.
func (Shell) Address(id string) (file, word string) { return "", strings.TrimSpace(id) }

// shellFile is a parsed shell script.
type shellFile struct {
	data  []byte
	tests []*shellTest
}

// shellTest is a function whose first and last lines are not indented, and contain only its head and its closing
// brace.
type shellTest struct {
	file     *shellFile
	function string
	from, to int // including the closing line
	body     int // the offset of the second line
}

var (
	shellOpening = env.Pattern(`(?m)^(test\w*)[ \t]*\(\)[ \t]*\{[ \t]*$\n`)
	shellClosing = env.Pattern(`(?m)^\}[ \t]*$\n?`)
	// shellAssertion matches a call of an assertion whose first argument is a word without expansions.
	shellAssertion = env.Pattern(`(?m)^[ \t]*(equals?|is|assertEquals|assertSame|assert_equals?)[ \t]+` +
		`('[^'\n]*'|"[^"$` + "`" + `\\\n]*"|[\w.:-]+)[ \t]`)
)

func (Shell) parse(s Source) (suite, error) {
	f := &shellFile{data: s.Data}
	for _, m := range shellOpening().FindAllSubmatchIndex(s.Data, -1) {
		end := shellClosing().FindIndex(s.Data[m[1]:])
		if end == nil {
			return nil, fmt.Errorf("%w: the function %s has no end", errSyntax, s.Data[m[2]:m[3]])
		}
		f.tests = append(f.tests, &shellTest{f, string(s.Data[m[2]:m[3]]), m[0], m[1] + end[1], m[1]})
	}
	return f, nil
}

func (f *shellFile) find(id string) (test, bool) {
	_, name := Shell{}.Address(id)
	for _, t := range f.tests {
		if t.function == name {
			return t, true
		}
	}
	return nil, false
}

func (f *shellFile) ids(string) (ids []string) {
	for _, t := range f.tests {
		ids = append(ids, t.function)
	}
	return ids
}

func (t *shellTest) name() string { return t.function }

func (t *shellTest) extent() (from, to int) { return t.from, t.to }

func (t *shellTest) mutations(r *chance) []mutation {
	var all []mutation
	asserts := ""
	for _, m := range shellAssertion().FindAllSubmatchIndex(t.file.data[t.body:t.to], -1) {
		from, to := t.body+m[4], t.body+m[5]
		asserts = string(t.file.data[t.body+m[2] : t.body+m[3]])
		others := shellOthers(string(t.file.data[from:to]), r)
		all = append(all, replacement(Expectation, strconv.Itoa(from-t.from), from, to, others...))
	}
	if asserts == "" {
		return nil
	}
	n := len(t.function)%7 + 2
	text := fmt.Sprintf("\t%s %d %d\n", asserts, n, n+1)
	return append(all, replacement(Outright, "start", t.body, t.body, text))
}

func (t *shellTest) checks() (all []check) {
	for _, m := range shellAssertion().FindAllIndex(t.file.data[t.body:t.to], -1) {
		all = append(all, check{from: t.body + m[0], to: t.body + m[1]})
	}
	return all
}

// shellOthers returns other words with the same quotes.
func shellOthers(word string, r *chance) []string {
	quote := ""
	if strings.HasPrefix(word, "'") || strings.HasPrefix(word, `"`) {
		quote = word[:1]
	}
	value := strings.TrimPrefix(strings.TrimSuffix(word, quote), quote)
	others := otherTexts(value, r)
	if n, err := strconv.Atoi(value); err == nil {
		others = mapped(otherNumbers(n, 0, math.MaxInt, r), strconv.Itoa)
	}
	return mapped(others, func(s string) string { return quote + s + quote })
}

// either changes tests in several languages, chosen by the names of files.
type either []Writer

// Holds reports whether a file with this name may contain tests.
func (e either) Holds(name string) bool { return e.of(name) != nil }

// Address is the first writer's.
func (e either) Address(id string) (file, word string) { return e[0].Address(id) }

func (e either) parse(s Source) (suite, error) { return e.of(s.Name).parse(s) }

// of returns the writer for a file; nil if there is none.
func (e either) of(name string) Writer {
	for _, w := range e {
		if w.Holds(name) {
			return w
		}
	}
	return nil
}
