package canary

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// JavaScript writes twins of tests for Jest, Vitest, Mocha and Node's own runner, in JavaScript and TypeScript.
type JavaScript struct{}

var _ Writer = JavaScript{}

// Holds reports whether a file with this name may contain tests.
func (JavaScript) Holds(name string) bool {
	switch path.Ext(name) {
	case ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx":
		return true
	}
	return false
}

// Address splits the id of a test. That is its title, which some reports put after the file and the titles of its
// suites.
func (w JavaScript) Address(id string) (file, word string) {
	if first, _, ok := strings.Cut(id, " > "); ok && w.Holds(first) {
		file = first
	}
	id = strings.TrimPrefix(strings.TrimSpace(id), "- ")
	for _, separator := range []string{" > ", " › ", " - ", ": "} {
		if i := strings.LastIndex(id, separator); i >= 0 {
			id = id[i+len(separator):]
		}
	}
	return file, id
}

func (JavaScript) rename(reported, from, to string) (string, bool) {
	before, ok := strings.CutSuffix(reported, from)
	if !ok || before != "" && wordByte(before[len(before)-1]) {
		return reported, false
	}
	return before + to, true
}

func (f *jsFile) ids(string) (ids []string) {
	for _, t := range f.tests {
		if !t.computed {
			ids = append(ids, t.called)
		}
	}
	return ids
}

func (t *jsTest) name() string { return t.called }

func (t *jsTest) casesOf() *regexp.Regexp { return t.cases }

// end is the offset after the statement.
func (t *jsTest) end() int {
	if t.last+1 < len(t.file.tokens) && t.file.text(t.last+1) == ";" {
		return t.file.tokens[t.last+1].to
	}
	return t.file.tokens[t.last].to
}

// places are before the test, after it, and after each later test in the same block.
func (t *jsTest) places() []int {
	places := []int{t.file.tokens[t.first].from}
	for _, other := range t.file.tests {
		if other.around == t.around && other.first >= t.first {
			places = append(places, other.end())
		}
	}
	return places
}

// stays reports whether other tests are inside, which might be written twice.
func (t *jsTest) stays() bool {
	return slices.ContainsFunc(t.file.tests, func(other *jsTest) bool {
		return other.first > t.first && other.first < t.last
	})
}

func (t *jsTest) twin(name string, edits []insertion) string {
	data := t.file.data
	start, end := t.file.tokens[t.first].from, t.file.tokens[t.last].to
	line := start
	for line > 0 && (data[line-1] == ' ' || data[line-1] == '\t') {
		line--
	}
	return "\n" + string(data[line:t.from]) + t.quoted(name) + spliced(data, t.to, end, edits) + ";\n"
}

// quoted returns a title in the kind of quotes that the test's own title has.
func (t *jsTest) quoted(name string) string {
	if t.cases != nil {
		return name // the title is only a part of the literal
	}
	if t.file.text(t.title)[0] == '"' && !t.computed {
		return strconv.Quote(name)
	}
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`).Replace(name) + "'"
}

// jsNamed matches code that may make a test depend on its own name.
var jsNamed = regexp.MustCompile(`[Ss]napshot|currentTestName|fullTitle|\.title\b|\bt\.name\b|golden`)

func (t *jsTest) titled(name string) (from, to int, text string, ok bool) {
	f := t.file
	ok = !t.computed && !jsNamed.Match(f.data[f.tokens[t.first].from:f.tokens[t.last].to])
	return t.from, t.to, t.quoted(name), ok
}
