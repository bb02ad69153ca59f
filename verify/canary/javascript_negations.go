package canary

import (
	"slices"
	"strings"
)

// jsInverse maps functions of assert to their negation.
var jsInverse = map[string]string{
	"isTrue": "isNotTrue", "isFalse": "isNotFalse", "isNull": "isNotNull", "isNotNull": "isNull", "isOk": "isNotOk",
	"isUndefined": "isDefined", "isDefined": "isUndefined", "exists": "notExists", "notExists": "exists",
	"include": "notInclude", "isArray": "isNotArray", "isObject": "isNotObject", "isString": "isNotString",
	"isNumber": "isNotNumber", "isFunction": "isNotFunction", "instanceOf": "notInstanceOf", "property": "notProperty",
	"notEqual": "equal", "notStrictEqual": "strictEqual", "notDeepEqual": "deepEqual", "isEmpty": "isNotEmpty",
	"isNotEmpty": "isEmpty", "rejects": "doesNotReject", "doesNotReject": "rejects",
}

// jsChecks are properties of Chai's expect and should that check something when they are read.
var jsChecks = []string{"true", "false", "null", "undefined", "ok", "exist", "empty", "NaN", "called", "calledOnce"}

// negation returns the replacement that makes the check at token i expect the opposite; no text if there is none.
func (f *jsFile) negation(i int) (from, to int, text string) {
	if f.tokens[i].Kind != 'w' || i+1 >= len(f.tokens) {
		return 0, 0, ""
	}
	word, called := f.text(i), f.text(i+1) == "("
	if i == 0 || f.text(i-1) != "." {
		if word == "assert" && called {
			return f.opposed(i + 1)
		}
		return 0, 0, ""
	}
	token := f.tokens[i]
	switch {
	case f.chained(i) && (called || slices.Contains(jsChecks, word)):
		if f.text(i-2) == "not" {
			return f.tokens[i-2].From, token.To, word
		}
		if f.negated(i) {
			return 0, 0, ""
		}
		return token.From, token.To, "not." + word
	case !called || i < 2 || f.tokens[i-2].Kind != 'w':
		return 0, 0, ""
	case (word == "ok" || word == "true") && f.text(i-2) != "should":
		return f.opposed(i + 1)
	case f.text(i-2) == "assert" && jsInverse[word] != "":
		return token.From, token.To, jsInverse[word]
	}
	return 0, 0, ""
}

// opposed negates the first argument of a call.
func (f *jsFile) opposed(open int) (from, to int, text string) {
	arguments := f.arguments(open)
	if len(arguments) == 0 {
		return 0, 0, ""
	}
	from, to = f.tokens[arguments[0][0]].From, f.tokens[arguments[0][1]-1].To
	return from, to, "!(" + string(f.data[from:to]) + ")"
}

// chained reports whether token i is the last check of a chain that begins with a call of expect, or contains should:
// expect(x).to.be.above(3).
func (f *jsFile) chained(i int) bool {
	after := i + 1
	if f.text(after) == "(" {
		after = f.match[after] + 1
	}
	if after < len(f.tokens) && f.text(after) == "." {
		return false
	}
	for j := i - 1; j > 0 && f.text(j) == "."; j-- {
		j--
		if f.text(j) == ")" {
			if j = f.match[j] - 1; j >= 0 && f.text(j) == "expect" {
				return true
			}
		}
		if j < 0 || f.tokens[j].Kind != 'w' {
			return false
		}
		if f.text(j) == "should" {
			return !strings.HasPrefix(f.text(i), "should")
		}
	}
	return false
}
