package canary

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// jsEqual are the methods that compare with an expected value: the last argument for methods of expect, the second for
// those of assert.
var jsEqual = map[string]int{
	"toBe": 0, "toEqual": 0, "toStrictEqual": 0, "eql": 0, "eq": 0, "toHaveLength": 0, "toContain": 0,
	"equal": 1, "strictEqual": 1, "deepEqual": 1, "deepStrictEqual": 1, "is": 1, "same": 1, "equals": 1,
	"toMatchObject": 0, "toHaveBeenCalledTimes": 0,
}

// jsOpposites maps methods without an expected value to methods that fail where they pass.
var jsOpposites = map[string]string{
	"toBeTruthy": "toBeFalsy", "toBeFalsy": "toBeTruthy", "toBeNull": "toBeUndefined", "toBeDefined": "toBeUndefined",
	"toBeUndefined": "toBeDefined", "toBeNaN": "toBeNull", "throws": "doesNotThrow", "doesNotThrow": "throws",
}

// jsThrows are the methods that expect an error, with the argument that is its class.
var jsThrows = map[string]int{"throws": 1, "rejects": 1, "toThrow": 0, "toThrowError": 0}

// jsErrors maps errors of the language to others that tests expect about as often. None is a base class of another
// one.
var jsErrors = map[string]string{
	"RangeError": "TypeError", "TypeError": "RangeError", "SyntaxError": "ReferenceError", "ReferenceError": "SyntaxError",
}

func (t *jsTest) mutations(r *chance) (all []mutation) {
	f := t.file
	var negations []mutation
	defer func() { // the keys of tests with the same title differ
		for i := range all {
			all[i].key = f.twins(t) + all[i].key
		}
	}()
	for i := t.last; i > t.title; i-- {
		if from, to, text := f.negation(i); text != "" {
			m := replacement(Expectation, strconv.Itoa(i-t.first), from, to, text)
			m.plain = strings.HasPrefix(text, "!(")
			negations = append(negations, m)
		}
		if f.tokens[i].Kind != 'w' || i+1 >= t.last || f.text(i+1) != "(" || f.text(i-1) != "." {
			continue
		}
		if from, to, texts := f.wrong(i, r); len(texts) > 0 {
			m := replacement(Expectation, strconv.Itoa(i-t.first), from, to, texts...)
			m.plain = strings.HasPrefix(texts[0], "[") && strings.HasSuffix(texts[0], ", 0]")
			all = append(all, m)
		}
	}
	// A wrong value leaves more to guess than a negation.
	all = append(all, slices.DeleteFunc(negations, func(negation mutation) bool {
		return slices.ContainsFunc(all, func(m mutation) bool { return m.key == negation.key })
	})...)
	if t.open == 0 {
		return all
	}
	at, n := f.tokens[t.open].To, len(t.called)%7+2
	return append(all, replacement(Outright, "start", at, at, "\n  "+t.impossible(n)))
}

// impossible returns a check that cannot hold, about a text of n bytes. If the test checks with methods of the
// callback's parameter, so does this: in Tape, a thrown error would end the whole run.
func (t *jsTest) impossible(n int) string {
	f, object, fails := t.file, t.parameter(), false
	for i := t.open; i < t.last && object != ""; i++ {
		if f.text(i) != object || f.text(i-1) == "." || f.text(i+1) != "." || f.text(i+3) != "(" {
			continue
		}
		method := f.text(i + 2)
		if jsEqual[method] == 1 {
			return fmt.Sprintf("%s.%s('x'.repeat(%d).length, %d);", object, method, n, n+1)
		}
		fails = fails || slices.Contains([]string{"end", "plan", "ok", "notOk"}, method)
	}
	if fails {
		return fmt.Sprintf("%s.fail('%d is not %d');", object, n, n+1)
	}
	return fmt.Sprintf("if ('x'.repeat(%d).length !== %d) throw new Error('%d is not %d');", n, n+1, n, n+1)
}

// parameter returns the first parameter of the callback; empty if it has none.
func (t *jsTest) parameter() string {
	f, at := t.file, t.open-1
	if f.text(at) == "=>" {
		at--
	}
	if open, ok := f.match[at]; ok && f.text(at) == ")" {
		at = open + 1
	}
	if f.kind(at) != 'w' {
		return ""
	}
	return f.text(at)
}

func (t *jsTest) checks() (all []check) {
	f, depth := t.file, 0 // how many brackets are open; what is deeper in the test may run more than once
	for i := t.title; i < t.last; i++ {
		from, to, given, wanted, ok := f.compared(i)
		switch {
		case f.tokens[i].Kind == 'o' && f.match[i] > i:
			depth++
		case f.tokens[i].Kind == 'o' && f.match[i] > 0:
			depth--
		case !ok && f.checks(i):
			given = ""
			for from, to = i, i; to+1 < t.last && (f.text(to+1) == "." || f.text(to+1) == "(" || f.text(to) == "."); {
				to = max(to+1, f.match[to+1])
			}
			ok = true
		}
		if ok {
			repeats := t.cases != nil || depth != min(t.open, 1) || f.headed(i)
			all = append(all, check{f.tokens[from].From, f.tokens[to].To, repeats, given, wanted})
			i = to
		}
	}
	return all
}

// headed reports whether a statement belongs to the head of another one: for (...) expect(...).
func (f *jsFile) headed(i int) bool {
	return f.text(i-1) == ")" && slices.Contains(jsHeads, f.text(f.match[i-1]-1))
}

// wrong returns the replacements that make the check with the method at token i expect something else.
func (f *jsFile) wrong(i int, r *chance) (from, to int, texts []string) {
	method, open := f.text(i), i+1
	if at, ok := jsThrows[method]; ok && !f.negated(i) {
		arguments := f.arguments(open)
		if at < len(arguments) && arguments[at][1]-arguments[at][0] == 1 {
			if other := jsErrors[f.text(arguments[at][0])]; other != "" {
				class := f.tokens[arguments[at][0]]
				return class.From, class.To, []string{other}
			}
		}
	}
	if other := jsOpposites[method]; other != "" && !f.negated(i) {
		return f.tokens[i].From, f.tokens[i].To, []string{other}
	}
	at, known := jsEqual[method]
	if !known || f.negated(i) {
		return 0, 0, nil
	}
	arguments := f.arguments(open)
	if len(arguments) == 1 {
		at = 0 // chai's expect(x).to.equal(1)
	}
	if at >= len(arguments) {
		return 0, 0, nil
	}
	a := arguments[at]
	plain := a[1]-a[0] == 1 || strings.Contains("[{", f.text(a[0])) && f.match[a[0]] == a[1]-1
	for _, k := range r.Perm(a[1] - a[0]) {
		j := a[0] + k
		isKey := j+1 < a[1] && f.text(j+1) == ":"
		if !plain || isKey {
			continue
		}
		if others := jsOthers(f.tokens[j].Kind, f.text(j), r); len(others) > 0 {
			return f.tokens[j].From, f.tokens[j].To, others
		}
	}
	from, to = f.tokens[a[0]].From, f.tokens[a[1]-1].To
	return from, to, []string{"[" + string(f.data[from:to]) + ", 0]"}
}

// negated reports whether the chain of methods before the token contains "not".
func (f *jsFile) negated(i int) bool {
	for j := i - 1; j > 0 && f.text(j) == "."; j -= 2 {
		if f.text(j-1) == "not" || strings.HasPrefix(f.text(j-1), "not") {
			return true
		}
		if f.tokens[j-1].Kind != 'w' {
			break
		}
	}
	return false
}

// jsOthers returns other literals of the same kind. It also serves Ruby's words and strings, and the words of Rust,
// Java and PHP.
func jsOthers(kind byte, text string, r *chance) []string {
	switch {
	case kind == 's' || kind == 't' && !strings.Contains(text, "${"):
		others := otherTexts(text[1:max(1, len(text)-1)], r)
		return mapped(others, func(s string) string { return text[:1] + s + text[len(text)-1:] })
	case kind == 'd':
		return otherDecimals(text, 0, r)
	case text == "true":
		return []string{"false"}
	case text == "false":
		return []string{"true"}
	case text == "null":
		return []string{"undefined"}
	case text == "undefined":
		return []string{"null"}
	}
	return nil
}
