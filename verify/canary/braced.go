package canary

import (
	"path"
	"slices"
	"strings"
	"unicode"

	"deepswe/env"
)

// Braced changes tests in Rust, Java and PHP: functions that call assertions.
type Braced struct{}

var _ Writer = Braced{}

// Holds reports whether a file with this name may contain tests.
func (Braced) Holds(name string) bool {
	return slices.Contains([]string{".rs", ".java", ".php"}, path.Ext(name))
}

// Address returns no file, and the name of the function.
func (Braced) Address(id string) (file, word string) {
	fields := bracedFields(id)
	for len(fields) > 1 && caseName().MatchString(fields[len(fields)-1]) {
		fields = fields[:len(fields)-1]
	}
	if len(fields) == 0 {
		return "", ""
	}
	return "", fields[len(fields)-1]
}

var (
	// caseName matches the last part of the id of a parametrised test of rstest.
	caseName = env.Pattern(`^case_\d`)
	// caseOf matches the beginning of what follows a function's name: the types of its parameters, or the case's number
	// or values.
	caseOf = env.Pattern(`[\[({]| with data set `)
)

// bracedFields splits the id of a test at its separators: into the modules and the name of a Rust test, or a class and
// its method. What follows the name, such as the number of a case, is left out.
func bracedFields(id string) []string {
	if at := caseOf().FindStringIndex(id); at != nil {
		id = id[:at[0]]
	}
	return strings.FieldsFunc(id, func(r rune) bool { return strings.ContainsRune(` #>$.\:`, r) })
}

// bracedFile is a parsed file.
type bracedFile struct {
	*lexed
	name    string
	rust    bool
	classes []string // those it declares
	tests   []*bracedTest
}

// bracedTest is a function, which need not be a test.
type bracedTest struct {
	file     *bracedFile
	function string
	modules  []string // the modules of Rust around it, within the file
	// marked is set if a runner is told that it is a test, panics if a panic is what it expects.
	marked, panics bool
	first, last    int // tokens of the function with its attributes
	open           int // the brace of its body
}

func (Braced) parse(s Source) (suite, error) {
	source, err := lex(s)
	if err != nil {
		return nil, err
	}
	return readBraced(s.Name, source), nil
}

// readBraced finds the functions of a file.
func readBraced(name string, source *lexed) *bracedFile {
	f := &bracedFile{lexed: source, name: name, rust: path.Ext(name) == ".rs"}
	var modules []int // their braces
	for i := range f.tokens {
		word := f.text(i)
		if f.kind(i) != 'w' || f.kind(i+1) != 'w' || f.text(i-1) == "." {
			continue
		}
		switch {
		case word == "mod" && f.text(i+2) == "{":
			modules = append(modules, i+2)
		case word == "class":
			f.classes = append(f.classes, f.text(i+1))
		case word == "fn" || word == "void" || word == "function":
			if t := f.function(i); t != nil {
				for _, open := range modules {
					if i < f.match[open] {
						t.modules = append(t.modules, f.text(open-1))
					}
				}
				f.tests = append(f.tests, t)
			}
		}
	}
	return f
}

// function returns the function of which token i is the word before its name; nil if it has no body.
func (f *bracedFile) function(i int) *bracedTest {
	t := &bracedTest{file: f, function: f.text(i + 1), first: i}
	j := i + 2
	for ; f.text(j) != "{"; j++ {
		if j >= len(f.tokens) || f.text(j) == ";" || f.text(j) == "}" {
			return nil
		}
		if to, ok := f.match[j]; ok && to > j {
			j = to
		}
	}
	t.open, t.last = j, f.match[j]
	for j = i - 1; j >= 0; j-- {
		if text := f.text(j); text == ";" || text == "{" || text == "}" {
			break
		}
		if to, ok := f.match[j]; ok {
			j = to
		}
		t.first = j
	}
	head := string(f.data[f.tokens[t.first].From:f.tokens[i].From])
	t.marked = attribute().MatchString(head) || f.text(i) != "fn" && strings.HasPrefix(t.function, "test")
	t.panics = strings.Contains(head, "should_panic")
	return t
}

// attribute matches what tells a runner that a function is a test.
var attribute = env.Pattern(`#\[(\w+::)*(test|rstest|test_case|wasm_bindgen_test)\b|@(Test|ParameterizedTest|` +
	`RepeatedTest)\b|#\[\\?(\w+\\)*Test\b`)

func (f *bracedFile) find(id string) (test, bool) {
	fields := bracedFields(id)
	for at := len(fields) - 1; at >= 0; at-- {
		for _, t := range f.tests {
			if t.function == fields[at] && t.within(fields[:at]) {
				return t, true
			}
		}
	}
	return f.findProse(id)
}

// findProse returns the test that PHPUnit names in prose, by the words of its class and its function.
func (f *bracedFile) findProse(id string) (test, bool) {
	class, title, ok := strings.Cut(id, " > ")
	title, _, _ = strings.Cut(title, " with data set ")
	if !ok || path.Ext(f.name) != ".php" {
		return nil, false
	}
	for _, t := range f.tests {
		if letters(t.function) == letters(title) && (class == "None" || // of no namespace
			slices.ContainsFunc(f.classes, func(c string) bool { return letters(c) == letters(class) })) {
			return t, true
		}
	}
	return nil, false
}

// letters returns the letters and digits of a name in lower case, without the word that marks it as that of a test.
func letters(name string) string {
	name = strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
	return strings.TrimSuffix(strings.TrimPrefix(name, "test"), "test")
}

// within reports whether a function may be in this scope: a class of the file or, in Rust, a module.
func (t *bracedTest) within(scope []string) bool {
	if !t.file.rust {
		last := len(scope) - 1
		return last < 0 || scope[last] == t.file.stem() || slices.Contains(t.file.classes, scope[last])
	}
	modules := t.modules
	if own := t.file.module(); own != "" {
		modules = append([]string{own}, modules...)
	}
	outer := len(scope) - len(modules)
	return outer >= 0 && slices.Equal(scope[outer:], modules) && (outer == 0 || t.file.module() != "")
}

// stem returns the name of the file without its extension.
func (f *bracedFile) stem() string { return strings.TrimSuffix(path.Base(f.name), path.Ext(f.name)) }

// module returns the module of Rust that the file is; empty if it is the root of a crate.
func (f *bracedFile) module() string {
	dir := path.Base(path.Dir(f.name))
	inside := strings.Contains("/"+f.name, "/src/")
	switch stem := f.stem(); {
	case stem == "mod":
		return dir
	case stem == "lib", stem == "main", dir == "bin", !inside && slices.Contains([]string{"tests", "benches", "."}, dir):
		return ""
	default:
		return stem
	}
}

func (f *bracedFile) ids(string) (ids []string) {
	var own []string
	if f.rust && f.module() != "" {
		own = []string{f.module()}
	}
	for _, t := range f.tests {
		if t.marked {
			ids = append(ids, strings.Join(slices.Concat(own, t.modules, []string{t.function}), "::"))
		}
	}
	return ids
}

func (t *bracedTest) name() string { return t.function }

func (t *bracedTest) extent() (from, to int) {
	return t.file.tokens[t.first].From, t.file.tokens[t.last].To
}
