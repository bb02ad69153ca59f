package canary

import (
	"slices"
	"strconv"
	"strings"

	"deepswe/env"
	"deepswe/verify/literal"
)

var _ withholder = (*pyFunction)(nil)

// pyChecks matches statements that may make a test fail, calls of the test's own functions among them.
var pyChecks = env.Pattern(`(?i)\b(\w*assert|raise|\w*warns\b|fail\w*\()|` +
	`^[\w.]*(check|verify|expect|compare)\w*\(|^(await\s+)?(self\.)?\w+\(`)

// pyCases matches decorators that make several tests of a function.
var pyCases = env.Pattern(`parametri[sz]e|expand|data\(|given\(`)

// several reports whether a function is more than one test, as far as its file shows.
func (t *pyFunction) several() bool {
	class := lastPart(t.class)
	for _, bases := range t.file.bases {
		if class != "" && slices.Contains(bases, class) {
			return true
		}
	}
	return pyCases().MatchString(t.decorators)
}

// withhold takes literals out of comparisons that every run of the test reaches once.
func (t *pyFunction) withhold(first int) (edits []edit, literals map[int]Literal) {
	if t.several() {
		return nil, nil
	}
	return withhold(t.file.data[t.from:t.to], t.checks(), "assert %s(%d, %s)", first)
}

// pyCompared returns what a statement compares with a literal: an assert, or a call of assertEqual and its like.
func pyCompared(code string) (given string, wanted literal.Value, ok bool) {
	var sides []string
	if rest, is := pyAsserted(code); is {
		sides = pyEqual(strings.TrimSpace(splitTop(rest, ",")[0]))
	} else if m, arguments := pyCalled(code); len(arguments) > 1 && strings.HasPrefix(m[2], "assert") &&
		(strings.HasSuffix(m[2], "Equal") || m[2] == "assertEquals") && !strings.Contains(m[2], "Not") &&
		!strings.Contains(m[2], "Almost") && !strings.Contains(maskTop(arguments[0])+maskTop(arguments[1]), "=") {
		sides = arguments[:2]
	}
	for i := range sides {
		given, wanted := strings.TrimSpace(sides[i]), strings.TrimSpace(sides[1-i])
		if v, err := literal.Parse(wanted); err == nil && !strings.HasPrefix(given, "*") {
			return given, v, true
		}
	}
	return "", wanted, false
}

// helper returns a function for the same module, so that no import is needed before the tests.
func (t *pyFunction) helper(record string) (file, text string) {
	in := strings.NewReplacer("KEEP", keep, "FOREIGN", foreignValue, "RECORD", strconv.Quote(record))
	return "", in.Replace(`def KEEP(number, value):
    def own(v):
        if type(v) in (list, tuple, set):
            return all(own(one) for one in v)
        if type(v) is dict:
            return all(own(key) and own(one) for key, one in v.items())
        return type(v) in (int, float, str, bool, type(None))
    with open(RECORD, "a", encoding="utf-8") as record:
        record.write("%d %s\n" % (number, repr(value) if own(value) else "FOREIGN"))
    return True
`)
}
