package bugs

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// The families of bugs.
const (
	OffByOne         = "off-by-one"
	WrongOperator    = "wrong-operator"
	SwappedArguments = "swapped-arguments"
	MissingCase      = "missing-case"
)

// piece is a function of a program. FUNC in its text is the function's name, NOUN the name of a variable.
type piece struct {
	verb string
	// usage names the arguments, does says what becomes of them.
	usage, does string
	// parameters are those of the awk function, list whether the first is a list of words.
	parameters []string
	list       bool
	lines      []string
	flaws      []flaw
	// call makes arguments. Any of them reveals every flaw but a missing case.
	call func(r *rand.Rand) []string
	// want is what the function prints.
	want func(args []string) string
}

// flaw is a way to get one line wrong: it reads wrong instead of right. If both are empty, the line is missing, and
// shown are arguments that reveal the difference.
type flaw struct {
	family       string
	line         int
	right, wrong string
	shown        []string
}

func swap(family string, line int, right, wrong string) flaw {
	return flaw{family: family, line: line, right: right, wrong: wrong}
}

func missing(line int, shown ...string) flaw {
	return flaw{family: MissingCase, line: line, shown: shown}
}

func (f flaw) broken(lines []string) []string {
	out := slices.Clone(lines)
	if f.family == MissingCase {
		return slices.Delete(out, f.line, f.line+1)
	}
	out[f.line] = strings.Replace(out[f.line], f.right, f.wrong, 1)
	return out
}

func named(lines []string, function, noun string) []string {
	names := strings.NewReplacer("FUNC", function, "NOUN", noun)
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = names.Replace(l)
	}
	return out
}
