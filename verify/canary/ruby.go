package canary

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"deepswe/env"
)

// Ruby changes tests for Minitest, test-unit and RSpec.
type Ruby struct{}

var _ Writer = Ruby{}

// Holds reports whether a file with this name may contain tests.
func (Ruby) Holds(name string) bool { return path.Ext(name) == ".rb" }

// Address returns no file, and the name of a method. For RSpec there is none: its ids are the titles of a test and of
// what it is in.
func (Ruby) Address(id string) (file, word string) {
	if _, method, ok := strings.Cut(id, "#test"); ok {
		return "", strings.TrimPrefix("test"+method, "test: ")
	}
	return "", ""
}

// rubyFile is a parsed file.
type rubyFile struct{ tests []*rubyTest }

// rubyTest is a method whose name begins with test, or a block with a title, that ends with a line of the same
// indentation.
type rubyTest struct {
	called   string // the name, or the title
	class    string // around it; empty if there is none
	titled   bool
	from, to int // bytes of the file
	// body is the source between the first and the last line, which begins at this byte of the file. It has no tokens if
	// it cannot be lexed.
	body   *lexed
	begins int
}

// rubyOpening matches the first line of a test.
var rubyOpening = env.Pattern(`(?m)^([ \t]*)(?:def (test\w*[?!]?)|` +
	`(?:it|specify|example|test|should|scenario)[ (]+("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*').*\bdo)[ \t]*$\n`)

func (Ruby) parse(s Source) (suite, error) {
	f := &rubyFile{}
	classes, ends := rubyClass().FindAllSubmatchIndex(s.Data, -1), rubyEnd().FindAllSubmatchIndex(s.Data, -1)
	for _, m := range rubyOpening().FindAllSubmatchIndex(s.Data, -1) {
		indent := string(s.Data[m[2]:m[3]])
		end := slices.IndexFunc(ends, func(e []int) bool { return e[0] >= m[1] && string(s.Data[e[2]:e[3]]) == indent })
		if end < 0 {
			return nil, fmt.Errorf("%w: the test in %q does not end", errSyntax, s.Data[m[0]:m[1]])
		}
		t := &rubyTest{from: m[0], begins: m[1], to: ends[end][1], titled: m[6] >= 0}
		for _, c := range classes {
			if c[0] < m[0] && c[3]-c[2] < len(indent) {
				t.class = string(s.Data[c[4]:c[5]])
			}
		}
		if !t.titled {
			t.called = string(s.Data[m[4]:m[5]])
		} else if t.called, t.titled = jsText(string(s.Data[m[6]:m[7]])); !t.titled {
			continue
		}
		body := s.Data[m[1]:ends[end][0]]
		var err error
		if t.body, err = lex(Source{s.Name, body}); err != nil {
			t.body = &lexed{data: body}
		}
		f.tests = append(f.tests, t)
	}
	return f, nil
}

// The beginnings of classes, whose modules are left out of their names, and the ends of anything.
var (
	rubyClass = env.Pattern(`(?m)^([ \t]*)class (?:\w+::)*(\w+)`)
	rubyEnd   = env.Pattern(`(?m)^([ \t]*)end\b`)
)

func (f *rubyFile) find(id string) (test, bool) {
	_, word := Ruby{}.Address(id)
	class, _, _ := strings.Cut(id, "#")
	class = class[strings.LastIndexByte(class, ':')+1:]
	var best *rubyTest
	for _, t := range f.tests {
		is := word == "" && (id == t.called || t.titled && strings.HasSuffix(id, " "+t.called))
		if word != "" && class == t.class {
			inRails := "test_" + strings.Join(strings.Fields(t.called), "_")
			is = word == t.called || t.titled && word == inRails
		}
		if is && (best == nil || len(best.called) < len(t.called)) {
			best = t
		}
	}
	return best, best != nil
}

func (f *rubyFile) ids(string) (ids []string) {
	for _, t := range f.tests {
		if t.titled {
			ids = append(ids, t.called)
		} else {
			ids = append(ids, t.class+"#"+t.called)
		}
	}
	return ids
}

func (t *rubyTest) name() string { return t.called }

func (t *rubyTest) extent() (from, to int) { return t.from, t.to }

// rubyCheck matches the functions that check something, rubyMethod the methods that check what they are called on.
var (
	rubyCheck  = env.Pattern(`^(assert|refute|flunk)\w*$|^expect$`)
	rubyMethod = env.Pattern(`^(must|wont)_\w+$|^should(_not)?$`)
)

// checks returns the statements that can make the test fail. They may run more than once if they are indented more than
// the first line of the test's body.
func (t *rubyTest) checks() (all []check) {
	f := t.body
	indent := func(i int) int { return f.tokens[i].From - bytes.LastIndexByte(f.data[:f.tokens[i].From], '\n') }
	for i := 0; i < len(f.tokens); i++ {
		if to := t.statement(i); to > i {
			from := t.begins + f.tokens[i].From
			all = append(all, check{from: from, to: t.begins + f.tokens[to-1].To, repeats: indent(i) != indent(0)})
			i = to - 1
		}
	}
	return all
}

// statement returns the token after the check that begins with token i; 0 if that begins no check.
func (t *rubyTest) statement(i int) (to int) {
	f := t.body
	begins := i == 0 || f.endsLine(i-1) || f.text(i-1) == "{" || f.text(i-1) == "|" || f.text(i-1) == ";"
	if !begins || f.kind(i) != 'w' && f.text(i) != "(" {
		return 0
	}
	is := f.kind(i) == 'w' && rubyCheck().MatchString(f.text(i))
	for to = i; to < len(f.tokens); to++ {
		is = is || f.kind(to) == 'w' && rubyMethod().MatchString(f.text(to)) && f.text(to-1) == "."
		if end, ok := f.match[to]; ok && end > to {
			to = end
		} else if ok {
			break
		}
		if f.endsLine(to) && !strings.Contains(", . && || + =>", f.text(to)) && f.text(to+1) != "." {
			to++
			break
		}
	}
	if !is {
		return 0
	}
	return to
}
