package canary

import (
	"slices"
	"strconv"
	"strings"

	"deepswe/verify/literal"
)

var _ withholder = (*jsTest)(nil)

// jsCompares and jsAsserts are the methods that compare a whole value: those of expect, and those of assert and the
// like, which take the value as their first argument.
var (
	jsCompares = []string{"toBe", "toEqual", "toStrictEqual", "equal", "eql", "eq"}
	jsAsserts  = []string{"equal", "strictEqual", "deepEqual", "deepStrictEqual", "is", "same", "equals"}
)

// withhold takes literals out of comparisons such as expect(f()).toBe(3) and assert.equal(f(), 3).
func (t *jsTest) withhold(first int) (edits []edit, literals map[int]Literal) {
	if t.computed {
		return nil, nil
	}
	from, to := t.extent()
	return withhold(t.file.data[from:to], t.checks(), "%s(%d, %s)", first)
}

// jsHeads are keywords that may stand before a bracket without being called.
var jsHeads = strings.Fields("if for while switch catch function return await typeof super")

// checks reports whether a token begins something that may make a test fail, such as a statement that calls a
// function of the test file.
func (f *jsFile) checks(i int) bool {
	if f.tokens[i].Kind != 'w' || i+1 >= len(f.tokens) {
		return false
	}
	before := f.tokens[i-1]
	begins := strings.Contains("{};", before.Text) || before.Text == "await" || before.Text != "." &&
		strings.Contains(string(f.data[before.To:f.tokens[i].From]), "\n")
	if begins && f.text(i+1) == "(" && !slices.Contains(jsHeads, f.text(i)) {
		return true
	}
	if f.text(i) == "t" && i+2 < len(f.tokens) && f.text(i+1) == "." {
		return !slices.Contains([]string{"test", "plan", "end"}, f.text(i+2))
	}
	return slices.Contains([]string{"expect", "assert", "should", "throw"}, f.text(i))
}

// compared returns the range of tokens of the comparison that begins at token i, what it compares, and the literal.
func (f *jsFile) compared(i int) (from, to int, given string, wanted literal.Value, ok bool) {
	if f.tokens[i].Kind != 'w' || i > 0 && f.text(i-1) == "." || i+2 >= len(f.tokens) {
		return 0, 0, "", wanted, false
	}
	var arguments [][2]int
	switch f.text(i) {
	case "expect":
		if f.text(i+1) != "(" {
			return 0, 0, "", wanted, false
		}
		end := f.match[i+1]
		at := end + 1
		for at+1 < len(f.tokens) && f.text(at) == "." && slices.Contains([]string{"to", "be", "deep"}, f.text(at+1)) {
			at += 2
		}
		if at+2 >= len(f.tokens) || f.text(at) != "." || !slices.Contains(jsCompares, f.text(at+1)) || f.text(at+2) != "(" {
			return 0, 0, "", wanted, false
		}
		arguments, to = append(f.arguments(i+1), f.arguments(at+2)...), f.match[at+2]
	case "assert", "t":
		if f.text(i+1) != "." || !slices.Contains(jsAsserts, f.text(i+2)) || i+3 >= len(f.tokens) || f.text(i+3) != "(" {
			return 0, 0, "", wanted, false
		}
		arguments, to = f.arguments(i+3), f.match[i+3]
	}
	if len(arguments) < 2 {
		return 0, 0, "", wanted, false
	}
	text := func(a [2]int) string { return string(f.data[f.tokens[a[0]].From:f.tokens[a[1]-1].To]) }
	v, err := literal.Parse(text(arguments[1]))
	given = text(arguments[0])
	return i, to, given, v, err == nil && !strings.HasPrefix(given, "...")
}

// helper returns a function declaration, which may follow the tests that call it. Members that are undefined are left
// out, as most comparisons do.
func (t *jsTest) helper(record string) (file, text string) {
	in := strings.NewReplacer("KEEP", keep, "FOREIGN", foreignValue, "RECORD", strconv.Quote(record))
	return "", in.Replace(`function KEEP(number, value) {
  const own = (v) => {
    if (v === null || ['number', 'string', 'boolean', 'undefined'].includes(typeof v)) return true;
    if (typeof v !== 'object') return false;
    if (Array.isArray(v)) return Object.getPrototypeOf(v) === Array.prototype && v.every(own);
    return Object.getPrototypeOf(v) === Object.prototype && Object.values(v).every(own);
  };
  const spell = (v) => {
    if (v === null || typeof v !== 'object') return typeof v === 'string' ? JSON.stringify(v) : String(v);
    if (Array.isArray(v)) return '[' + v.map(spell).join(', ') + ']';
    const members = Object.entries(v).filter(([, one]) => one !== undefined);
    return '{' + members.map(([key, one]) => JSON.stringify(key) + ': ' + spell(one)).join(', ') + '}';
  };
  const fs = process.getBuiltinModule ? process.getBuiltinModule('fs') : require('fs');
  fs.appendFileSync(RECORD, number + ' ' + (own(value) ? spell(value) : 'FOREIGN') + '\n');
  return true;
}
`)
}
