package canary

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"deepswe/env"
)

// rubyOpposites maps checks to checks that fail where they pass.
var rubyOpposites = map[string]string{
	"assert": "refute", "refute": "assert", "assert_nil": "refute_nil", "refute_nil": "assert_nil",
	"assert_not_nil": "assert_nil", "assert_true": "assert_false", "assert_false": "assert_true",
	"assert_empty": "refute_empty", "refute_empty": "assert_empty", "assert_includes": "refute_includes",
	"refute_includes": "assert_includes", "assert_predicate": "refute_predicate", "refute_predicate": "assert_predicate",
	"assert_match": "refute_match", "refute_match": "assert_match", "assert_equal": "refute_equal",
	"assert_kind_of": "refute_kind_of", "assert_instance_of": "refute_instance_of",
	"refute_equal": "assert_equal", "assert_same": "refute_same", "refute_same": "assert_same",
	"must_be_nil": "wont_be_nil", "wont_be_nil": "must_be_nil", "must_equal": "wont_equal", "wont_equal": "must_equal",
	"must_be_empty": "wont_be_empty", "wont_be_empty": "must_be_empty", "to": "not_to", "not_to": "to", "to_not": "to",
}

// rubyMatchers are the matchers of RSpec, and the methods of Minitest, that are given the expected value.
var rubyMatchers = strings.Fields("eq eql equal be match_array contain_exactly include start_with end_with " +
	"raise_error have_attributes must_equal must_include must_be_same_as")

// rubyEqual are the checks of two values, of which the first should be the expected one.
var rubyEqual = strings.Fields("assert_equal assert_same assert_includes assert_in_delta assert_raise_with_message")

// rubyErrors maps errors of the language to others that tests expect about as often. None is a base class of another
// one.
var rubyErrors = map[string]string{
	"ArgumentError": "TypeError", "TypeError": "ArgumentError", "KeyError": "NameError", "NameError": "KeyError",
	"RuntimeError": "ArgumentError",
}

// rubyRaises matches the words after which the class of an expected error follows.
var rubyRaises = env.Pattern(`^(assert_raises?|raise_error)$`)

func (t *rubyTest) mutations(r *chance) []mutation {
	f := t.body
	var all []mutation
	for i := 0; i < len(f.tokens); i++ {
		to := t.statement(i)
		if to <= i {
			continue
		}
		at, texts := t.wrong(i, to, r)
		if len(texts) == 0 {
			at, texts = t.opposite(i, to)
		}
		if len(texts) > 0 {
			from, to := t.begins+f.tokens[at].From, t.begins+f.tokens[at].To
			all = append(all, replacement(Expectation, strconv.Itoa(at), from, to, texts...))
		}
		i = to - 1
	}
	n := len(t.called)%7 + 2
	indent := f.data[:len(f.data)-len(bytes.TrimLeft(f.data, " \t"))]
	text := fmt.Sprintf("%sraise '%d is not %d' unless '%s'.length == %d\n", indent, n, n+1, strings.Repeat("x", n), n+1)
	return append(all, replacement(Outright, "start", t.begins, t.begins, text))
}

// opposite returns the token to replace, and by what, to turn a check into its opposite.
func (t *rubyTest) opposite(from, to int) (at int, texts []string) {
	f := t.body
	for i := from; i < to; i++ {
		other := rubyOpposites[f.text(i)]
		if other != "" && f.kind(i) == 'w' && (i == from || f.text(i-1) == ".") {
			return i, []string{other}
		}
	}
	return 0, nil
}

// wrong returns the token of what a check expects, a literal or the class of an error, and others in its place.
func (t *rubyTest) wrong(from, to int, r *chance) (at int, texts []string) {
	f := t.body
	for i := from; i < to; i++ {
		word := f.text(i)
		switch {
		case f.kind(i) != 'w' || i > from && f.text(i-1) == "." && !strings.HasPrefix(word, "must_"):
			continue
		case i > from && (f.text(i-1) == "not_to" || f.text(i-1) == "to_not"):
			return 0, nil
		case rubyRaises().MatchString(word):
			next := i + 1
			if f.text(next) == "(" {
				next++
			}
			if other := rubyErrors[f.text(next)]; other != "" {
				return next, []string{other}
			}
		case !slices.Contains(rubyEqual, word) && !slices.Contains(rubyMatchers, word):
			continue
		}
		arguments := t.operands(i, to)
		if slices.Contains(rubyEqual, word) {
			arguments = arguments[:min(len(arguments), 2)]
		}
		for _, a := range arguments {
			if at, texts := replaceAny(t.expectedLiterals(a), r, t.others); len(texts) > 0 {
				return at, texts
			}
		}
	}
	return 0, nil
}

// operands returns the arguments of the call at token i, which may have no brackets around them.
func (t *rubyTest) operands(i, to int) (all [][2]int) {
	f := t.body
	if f.text(i+1) == "(" && f.tokens[i].To == f.tokens[i+1].From {
		return f.arguments(i + 1)
	}
	first := i + 1
	for j := first; j <= to; j++ {
		text := f.text(j)
		if j == to || text == "," || text == "do" || text == "{" {
			if j > first {
				all = append(all, [2]int{first, j})
			}
			if text != "," {
				break
			}
			first = j + 1
		} else if end, ok := f.match[j]; ok && end > j {
			j = end
		}
	}
	return all
}

// expectedLiterals returns the tokens of the literals in an expression that consists of nothing else, apart from what
// makes arrays, hashes and objects of them; none if the expression has anything else.
func (t *rubyTest) expectedLiterals(a [2]int) []int {
	f := t.body
	return f.literals(a, "( ) [ ] { } , => : - .", func(i int) bool {
		symbol := i > 0 && f.text(i-1) == ":" || f.text(i+1) == ":" && f.text(i+2) != ":"
		return symbol || slices.Contains([]string{"new", "true", "false", "nil"}, f.text(i))
	})
}

// others returns other literals of the same type in the place of token i; none for a string that contains code.
func (t *rubyTest) others(i int, r *chance) []string {
	text := t.body.text(i)
	if strings.Contains(text, "#{") {
		return nil
	}
	return jsOthers(t.body.kind(i), text, r)
}
