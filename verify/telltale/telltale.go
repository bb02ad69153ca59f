package telltale

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Rule is the kind of a telltale.
type Rule string

// The rules.
const (
	Exit    Rule = "exit"    // ends or replaces the process of the runner
	Runner  Rule = "runner"  // uses or changes the inside of a test runner or its assertions
	Hook    Rule = "hook"    // installs hooks in the interpreter: traces, audits, imports, frames, code objects
	Decoded Rule = "decoded" // runs code that is encoded or computed
	Printed Rule = "printed" // contains words that runners print
	Equal   Rule = "equal"   // makes values that are equal to everything
	Rerun   Rule = "rerun"   // starts the tests again, or reads how they were started
	Output  Rule = "output"  // redirects or filters what is printed
	Names   Rule = "names"   // contains the name of a test file
	Linked  Rule = "linked"  // uses linker directives, C or machine code
)

// Finding is one telltale in a source.
type Finding struct {
	Rule Rule
	// What is the name or the text that was found, in a normal form: "os._exit" for every way to write that.
	What string
	Line int // counted from 1
}

// Term is the last part of What. Unless it is composed, a source with the same finding contains this text.
func (f Finding) Term() string { return f.What[strings.LastIndexByte(f.What, '.')+1:] }

// mostSource is the maximum size in bytes of a source; there are no findings in larger ones.
const mostSource = 8 << 20

// Find returns the telltales in a source in the order of their lines, each one once. The file extension, or the first
// line, selects the language. There are none in sources of unknown languages.
func Find(name string, source []byte) []Finding {
	if len(source) > mostSource {
		return nil
	}
	var found []Finding
	switch path.Ext(name) {
	case ".py", ".pyi", ".pyx", ".pyw":
		found = findPython(source)
	case ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx":
		found = findScript(name, source)
	case ".go":
		found = findGo(source)
	case "":
		switch line, _, _ := strings.Cut(string(source[:min(len(source), 80)]), "\n"); {
		case !strings.HasPrefix(line, "#!"):
		case strings.Contains(line, "python"):
			found = findPython(source)
		case strings.Contains(line, "node"):
			found = findScript(name, source)
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(a.Line, b.Line) })
	seen := map[Finding]bool{}
	return slices.DeleteFunc(found, func(f Finding) bool {
		key := Finding{Rule: f.Rule, What: f.What}
		old := seen[key]
		seen[key] = true
		return old
	})
}

// Reads reports whether a file with this name is code that Find can read.
func Reads(name string) bool {
	switch path.Ext(name) {
	case ".py", ".pyi", ".pyx", ".pyw", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".go":
		return true
	}
	return false
}

// words are parts of what runners, graders and harnesses print, or set in the environment.
var words = []string{
	">>>>> Start", ">>>>> End", ">>>>> Test", ">>>>> Applied", "short test summary info", "test session starts",
	"PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS", "PYTEST_VERSION", "PYTEST_XDIST", "# Subtest", "TAP version 1",
	"NODE_TEST_CONTEXT", "JEST_WORKER_ID", "numPassedTests", "--- PASS", "--- FAIL", "=== RUN",
}

var testNames = regexp.MustCompile(`\btest_[\w*]*\.py\b|_test\.(go|py)\b|[\w*]\.(test|spec)\.[cm]?[jt]sx?\b`)

// readText checks the text of a string.
func readText(text string) (f Finding, ok bool) {
	for _, word := range words {
		if strings.Contains(text, word) {
			return Finding{Rule: Printed, What: strings.TrimSpace(word)}, true
		}
	}
	if name := testNames.FindString(text); name != "" {
		return Finding{Rule: Names, What: name}, true
	}
	return Finding{}, false
}

// token is a word, a string, or a sign, such as an operator or a bracket.
type token struct {
	kind tokenKind
	// text is a name, a sign, or the content of a string.
	text string
	line int
	// column counts from 0; it is set for Python only.
	column int
}

type tokenKind byte

const (
	name tokenKind = iota
	number
	text
	sign
	newline // the end of a logical line of Python
)

// brackets returns, for each bracket, the index of its counterpart; -1 for other tokens.
func brackets(tokens []token) []int {
	pairs := make([]int, len(tokens))
	var open []int
	for i, t := range tokens {
		pairs[i] = -1
		if t.kind != sign {
			continue
		}
		switch t.text {
		case "(", "[", "{":
			open = append(open, i)
		case ")", "]", "}":
			if len(open) > 0 {
				j := open[len(open)-1]
				open = open[:len(open)-1]
				pairs[i], pairs[j] = j, i
			}
		}
	}
	return pairs
}

// reader resolves the names in expressions of a source.
type reader struct {
	tokens []token
	pairs  []int
	// aliases maps names in the source to what they stand for, such as "e" to "os._exit".
	aliases map[string]string
	found   []Finding
}

func (r *reader) add(i int, rule Rule, what string) {
	r.found = append(r.found, Finding{Rule: rule, What: what, Line: r.tokens[i].line})
}

func (r *reader) is(i int, s string) bool {
	return i >= 0 && i < len(r.tokens) && r.tokens[i].kind == sign && r.tokens[i].text == s
}

func (r *reader) named(i int, s string) bool {
	return i >= 0 && i < len(r.tokens) && r.tokens[i].kind == name && r.tokens[i].text == s
}

// joined returns the text of adjacent strings, or of strings concatenated with +, and where they end. ok is false if
// there is no string at i.
func (r *reader) joined(i int) (s string, end int, ok bool) {
	if i < 0 || i >= len(r.tokens) || r.tokens[i].kind != text {
		return "", i, false
	}
	var b strings.Builder
	for {
		b.WriteString(r.tokens[i].text)
		switch i++; {
		case i < len(r.tokens) && r.tokens[i].kind == text:
		case r.is(i, "+") && i+1 < len(r.tokens) && r.tokens[i+1].kind == text:
			i++
		default:
			return b.String(), i, true
		}
	}
}

// closing returns the index of the bracket that closes the one at i; the last token if none does.
func (r *reader) closing(i int) int {
	if r.pairs[i] < 0 {
		return len(r.tokens) - 1
	}
	return r.pairs[i]
}

// matches reports whether a path is one of the names, or begins with one that ends in a dot.
func matches(path string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		if below, ok := strings.CutSuffix(n, "."); ok && path == below {
			return true
		}
		return path == n || strings.HasSuffix(n, ".") && strings.HasPrefix(path, n)
	})
}
