package canary

import (
	"slices"
	"strings"

	"deepswe/env"
)

// pyErrors are errors that tests often expect. Those of a row are about equally frequent, because a rare one in place
// of a frequent one would stand out, and none is a base class of another.
var pyErrors = [][]string{
	{"ValueError", "TypeError"},
	{"AttributeError", "IndexError", "KeyError", "NotImplementedError", "RuntimeError"},
	{
		"AssertionError", "FileNotFoundError", "ImportError", "OverflowError", "PermissionError", "StopIteration",
		"TimeoutError", "UnicodeDecodeError", "UnicodeEncodeError", "ZeroDivisionError",
	},
}

// pyOtherErrors returns errors that may be expected instead of one: the others in its row or, if it is in no row,
// errors in no row that the test's file expects elsewhere.
func (t *pyFunction) pyOtherErrors(name string) (others []string) {
	row := func(name string) int {
		return slices.IndexFunc(pyErrors, func(all []string) bool { return slices.Contains(all, name) })
	}
	if at := row(name); at >= 0 {
		others = slices.Clone(pyErrors[at])
	}
	for _, found := range pyExpected().FindAllSubmatch(t.file.data, -1) {
		other := string(found[1])
		if row(name) < 0 && row(other) < 0 && other != "Exception" && other != "BaseException" {
			others = append(others, other)
		}
	}
	slices.Sort(others)
	return slices.DeleteFunc(slices.Compact(others), func(other string) bool { return other == name })
}

var (
	// pyExpected matches the exception that a test expects.
	pyExpected = env.Pattern(`(?:\braises|\bassertRaises(?:Regex|Message)?)\(\s*([\w.]*[A-Z]\w*)`)
)

var (
	pyOperator = env.Pattern(`==|!=|<=|>=|<|>|\bnot\s+in\b|\bin\b|\bis\s+not\b|\bis\b`)
	pyCompound = env.Pattern(`\b(and|or|if|else|lambda|for|await|yield)\b|:=`)
	// pyReversed maps comparisons to their negation.
	pyReversed = map[string]string{
		"==": "!=", "!=": "==", "<=": ">", ">=": "<", "<": ">=", ">": "<=", "not in": "in", "in": "not in",
		"is not": "is", "is": "is not",
	}
)

// pyAsserted returns what follows the keyword of an assert statement.
func pyAsserted(code string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(code, "assert")
	return rest, ok && rest != "" && strings.IndexByte(" \t(\\", rest[0]) >= 0
}

// pyEqual returns the two sides of an expression that is a comparison with ==; nil if it is anything else.
func pyEqual(expr string) []string {
	mask := maskTop(expr)
	at := strings.Index(mask, "==")
	if at < 0 || strings.ContainsAny(mask[:at]+mask[at+2:], "<>!=") || pyWords().MatchString(mask) {
		return nil
	}
	return []string{expr[:at], expr[at+2:]}
}

// pyCalled returns the match of pyCall, and the arguments, of a statement that is nothing but a call.
func pyCalled(code string) (match, arguments []string) {
	m := pyCall().FindStringSubmatch(code)
	if m == nil || !strings.HasSuffix(code, ")") || strings.TrimSpace(maskTop(code)[len(m[1]+m[2]):]) != "" {
		return nil, nil
	}
	return m, splitTop(code[len(m[0]):len(code)-1], ",")
}

// pyNegation returns an assert statement of the opposite, as a person would write it if possible.
func pyNegation(expr, message string) pyWrong {
	mask := maskTop(expr)
	found := pyOperator().FindAllStringIndex(mask, -1)
	isNot, compound := strings.HasPrefix(expr, "not "), pyCompound().MatchString(mask)
	switch {
	case isNot && !compound && len(found) == 0:
		return pyText("assert " + strings.TrimSpace(expr[4:]) + message)
	case !isNot && !compound && len(found) == 0 && !strings.ContainsAny(mask, "+-*/%|&^~"):
		return pyText("assert not " + expr + message)
	case !isNot && !compound && len(found) == 1:
		from, to := found[0][0], found[0][1]
		text := "assert " + expr[:from] + pyReversed[strings.Join(strings.Fields(mask[from:to]), " ")] + expr[to:] + message
		// Nobody would replace == by !=, or assert a negated bound such as len(x) <= 0.
		return pyWrong{texts: []string{text}, plain: mask[from:to] == "==" || strings.ContainsAny(mask[from:to], "<>")}
	}
	return pyPlain("assert not (" + expr + ")" + message)
}

var (
	pyObject = env.Pattern(`^\s*(?:\w+\.)*(?:[A-Z]\w*|dict|set|frozenset|list|tuple|bytes|array|` +
		`approx|date|datetime|time|timedelta|int|float|str)\(`)
	pyScalar = env.Pattern(`"[^"\\\n]*"|'[^'\\\n]*'|\b\d+(?:\.\d+)?\b`)
)

// pyOtherObjects changes the last literal in the arguments of an object that is created for a comparison or, for
// pytest's approx, whose other arguments only say how to compare, the first one.
func pyOtherObjects(expr string, r *chance) []string {
	mask := maskTop(expr)
	if !pyObject().MatchString(expr) || pyOperator().MatchString(mask) || pyCompound().MatchString(mask) ||
		strings.Contains(expr, `"""`) || strings.Contains(expr, "'''") {
		return nil
	}
	found := pyScalar().FindAllStringIndex(expr, -1)
	if len(found) == 0 {
		return nil
	}
	at := found[len(found)-1]
	if strings.Contains(expr, "approx(") {
		at = found[0]
	}
	return mapped(pyOtherScalars(expr[at[0]:at[1]], r), func(s string) string { return expr[:at[0]] + s + expr[at[1]:] })
}
