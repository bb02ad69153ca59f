package canary

import (
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/python"
)

// Python changes tests for pytest, unittest, Django's runner, and runners of similar tests.
type Python struct{}

var _ Writer = Python{}

// Holds reports whether a file with this name may contain tests.
func (Python) Holds(name string) bool { return strings.HasSuffix(name, ".py") }

// pyID is a parsed test id.
type pyID struct {
	file string
	path []string // the classes and then the function
}

// The forms of ids: "test_a (package.module.Class)", where newer versions of Python repeat the function after the
// class, and those of other runners, in which dots or colons separate classes from functions.
var djangoID = env.Pattern(`^(\w+) \(([\w.]+)\)`)

func (Python) split(id string) pyID {
	if m := djangoID().FindStringSubmatch(id); m != nil {
		parts := strings.Split(strings.TrimSuffix(m[2], "."+m[1]), ".")
		i := slices.IndexFunc(parts, func(part string) bool { return part != "" && 'A' <= part[0] && part[0] <= 'Z' })
		if i < 0 {
			i = len(parts) - 1
		}
		file := ""
		if i > 0 {
			file = strings.Join(parts[:i], "/") + ".py"
		}
		return pyID{file: file, path: append(slices.Clone(parts[i:]), m[1])}
	}
	p := pyID{}
	if file, rest, ok := strings.Cut(id, "::"); ok && strings.HasSuffix(file, ".py") {
		p.file, id = file, rest
	}
	id, _, _ = strings.Cut(id, "[")
	p.path = strings.FieldsFunc(id, func(r rune) bool { return r == ':' || r == '.' })
	return p
}

// Address returns the file, if the id names one, and the name of the function.
func (w Python) Address(id string) (file, word string) {
	p := w.split(id)
	if len(p.path) == 0 {
		return p.file, ""
	}
	return p.file, p.path[len(p.path)-1]
}

// pyFile is a parsed Python file.
type pyFile struct {
	data      []byte
	lines     []python.Line
	functions []*pyFunction
	bases     map[string][]string // by class
}

// pyBlock is a block that is open while a file is read.
type pyBlock struct {
	indent int
	class  string
	inside bool // the block is a function, or in one
	f      *pyFunction
}

// pyFunction is a function that is not inside another function.
type pyFunction struct {
	file       *pyFile
	title      string
	class      string // the enclosing classes, joined by dots
	from, to   int    // including decorators
	head       int    // the line of def
	decorators string
	body       []python.Line // all lines after the head
}

var pyHead = env.Pattern(`^(async\s+def|def|class)\s+(\w+)`)

func (Python) parse(s Source) (suite, error) {
	lines, err := python.Lines(s.Data)
	if err != nil {
		return nil, err
	}
	f := &pyFile{data: s.Data, lines: lines, bases: map[string][]string{}}
	f.read()
	return f, nil
}

// read finds all functions.
func (f *pyFile) read() {
	open, decorated := []pyBlock{{indent: -1}}, -1
	for i, l := range f.lines {
		for len(open) > 1 && open[len(open)-1].indent >= l.Indent {
			open = open[:len(open)-1]
		}
		for _, b := range open {
			if b.f != nil {
				b.f.to = l.End
				b.f.body = append(b.f.body, l)
			}
		}
		if strings.HasPrefix(l.Text, "@") {
			if decorated < 0 {
				decorated = i
			}
			continue
		}
		first := i
		if decorated >= 0 {
			first, decorated = decorated, -1
		}
		around := open[len(open)-1]
		if !strings.HasSuffix(pyCode(l.Text), ":") && pyHead().FindString(l.Text) == "" {
			continue
		}
		b := pyBlock{indent: l.Indent, class: around.class, inside: around.inside}
		m := pyHead().FindStringSubmatch(l.Text)
		switch {
		case m == nil:
		case m[1] == "class":
			b.class = strings.TrimPrefix(around.class+"."+m[2], ".")
			f.bases[m[2]] = pyBases(l.Text)
		case !around.inside:
			b.inside = true
			b.f = &pyFunction{
				file: f, title: m[2], class: around.class, from: f.lines[first].Start, to: l.End, head: i,
				decorators: string(f.data[f.lines[first].Start:l.Start]),
			}
			f.functions = append(f.functions, b.f)
		}
		open = append(open, b)
	}
}

func pyBases(head string) []string {
	_, list, ok := strings.Cut(head, "(")
	if !ok {
		return nil
	}
	list, _, _ = strings.Cut(list, ")")
	var names []string
	for _, base := range strings.Split(list, ",") {
		base = strings.TrimSpace(base)
		names = append(names, base[strings.LastIndexByte(base, '.')+1:])
	}
	return names
}

func (f *pyFile) find(id string) (test, bool) {
	path := (Python{}).split(id).path
	if len(path) == 0 {
		return nil, false
	}
	if t := f.documented(id); t != nil {
		return t, true
	}
	title, class := path[len(path)-1], ""
	if len(path) > 1 {
		class = path[len(path)-2]
	}
	if t := f.lookup(title, class, map[string]bool{}); t != nil {
		return t, true
	}
	if i := slices.IndexFunc(f.functions, func(t *pyFunction) bool { return class == "" && t.title == title }); i >= 0 {
		return f.functions[i], true
	}
	// The name of a generated case is that of the test and a number: "test_sum_0_empty".
	i := slices.IndexFunc(f.functions, func(t *pyFunction) bool {
		generated := strings.Contains(t.decorators, "parameterized") || strings.Contains(t.decorators, "expand") ||
			strings.Contains(t.decorators, "data(")
		return generated && strings.HasPrefix(title, t.title+"_") && (class == "" || lastPart(t.class) == class)
	})
	if i < 0 {
		return nil, false
	}
	return f.functions[i], true
}

func (f *pyFile) ids(file string) (ids []string) {
	for _, t := range f.functions {
		if strings.HasPrefix(t.title, "test") {
			ids = append(ids, file+"::"+strings.TrimPrefix(strings.ReplaceAll(t.class, ".", "::")+"::"+t.title, "::"))
		}
	}
	return ids
}

// documented finds the test that Django's runner reports by the first line of its docstring.
func (f *pyFile) documented(id string) *pyFunction {
	if !strings.Contains(id, " ") || djangoID().MatchString(id) {
		return nil
	}
	for _, t := range f.functions {
		if len(t.body) == 0 || !pyDocstring(t.body[0].Text) {
			continue
		}
		first, _, _ := strings.Cut(strings.Trim(strings.TrimLeft(pyCode(t.body[0].Text), "rRuUbB"), "\"' \t\r\n"), "\n")
		if strings.TrimSpace(first) == id {
			return t
		}
	}
	return nil
}

// lookup finds a method, which may be inherited from another class in the file.
func (f *pyFile) lookup(title, class string, seen map[string]bool) *pyFunction {
	seen[class] = true
	var found *pyFunction
	for _, t := range f.functions {
		if t.title == title && lastPart(t.class) == class {
			found = t // a later definition replaces an earlier one
		}
	}
	for _, base := range f.bases[class] {
		if found == nil && !seen[base] && base != "" {
			found = f.lookup(title, base, seen)
		}
	}
	return found
}

func lastPart(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

func (t *pyFunction) name() string { return t.title }

func (t *pyFunction) extent() (from, to int) { return t.from, t.to }
