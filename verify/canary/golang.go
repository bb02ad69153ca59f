package canary

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"deepswe/env"
)

// Golang changes Go tests.
type Golang struct{}

var _ Writer = Golang{}

// Holds reports whether a file with this name may contain tests.
func (Golang) Holds(name string) bool { return strings.HasSuffix(name, "_test.go") }

// Address returns no file, because ids are functions, or subtests of one. The path of a package may be before them.
func (Golang) Address(id string) (file, word string) {
	_, name := splitPackage(id)
	word, _, _ = strings.Cut(name, "/")
	return "", word
}

// inPackage matches the id of a test that names its package: the package's path, a space, and the test's name.
var inPackage = env.Pattern(`^(\S+) ((?:Test|Fuzz|Example)\S*)$`)

// splitPackage returns the path of the package that an id names, empty if it names none, and the rest of the id.
func splitPackage(id string) (pkg, name string) {
	if m := inPackage().FindStringSubmatch(id); m != nil {
		return m[1], m[2]
	}
	return "", id
}

// packageOf returns the path of the package that the id of a Go test names; empty for others.
func packageOf(w Writer, id string) (pkg string) {
	if _, ok := w.(Golang); ok {
		pkg, _ = splitPackage(id)
	}
	return pkg
}

// nearer reports whether a file is more likely than another one to belong to a package: whether more directories at the
// end of its path are those of the package's path. Of the module's path, no directory need have the name.
func nearer(pkg, file, than string) bool {
	same := func(file string) (n int) {
		dirs, of := strings.Split(path.Dir(file), "/"), strings.Split(pkg, "/")
		for n < min(len(dirs), len(of)) && dirs[len(dirs)-1-n] == of[len(of)-1-n] {
			n++
		}
		return n
	}
	if a, b := same(file), same(than); a != b {
		return a > b
	}
	return len(path.Dir(file)) < len(path.Dir(than))
}

// goFile is a parsed Go file.
type goFile struct {
	data   []byte
	fset   *token.FileSet
	parsed *ast.File
	names  *goNames
	tests  []*goTest
	// examples are the functions whose output is compared with a comment.
	examples []*goExample
}

type goTest struct {
	file *goFile
	decl *ast.FuncDecl
	t    string // the name of its *testing.T or *testing.F
}

func (Golang) parse(s Source) (suite, error) {
	f := &goFile{data: s.Data, fset: token.NewFileSet()}
	parsed, err := parser.ParseFile(f.fset, s.Name, s.Data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSyntax, err)
	}
	f.parsed, f.names = parsed, named(f.fset, parsed)
	for _, d := range parsed.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil || fn.Recv != nil {
			continue
		}
		tests := strings.HasPrefix(fn.Name.Name, "Test") && fn.Name.Name != "TestMain" ||
			strings.HasPrefix(fn.Name.Name, "Fuzz")
		switch params := fn.Type.Params.List; {
		case tests && len(params) == 1 && len(params[0].Names) == 1 && params[0].Names[0].Name != "_":
			f.tests = append(f.tests, &goTest{f, fn, params[0].Names[0].Name})
		case strings.HasPrefix(fn.Name.Name, "Example") && len(params) == 0:
			if output := f.output(fn); output != nil {
				f.examples = append(f.examples, &goExample{f, fn, output})
			}
		}
	}
	return f, nil
}

func (f *goFile) find(id string) (test, bool) {
	_, name := Golang{}.Address(id)
	for _, t := range f.tests {
		if t.name() == name {
			return t, true
		}
	}
	for _, e := range f.examples {
		if e.name() == name {
			return e, true
		}
	}
	return nil, false
}

func (f *goFile) ids(string) (ids []string) {
	for _, t := range f.tests {
		ids = append(ids, t.name())
	}
	for _, e := range f.examples {
		ids = append(ids, e.name())
	}
	return ids
}

func (f *goFile) offset(p token.Pos) int { return f.fset.Position(p).Offset }

func (t *goTest) name() string { return t.decl.Name.Name }

func (t *goTest) extent() (from, to int) { return t.file.extent(t.decl) }

// extent is the range of a function, with its comments.
func (f *goFile) extent(fn *ast.FuncDecl) (from, to int) {
	from = f.offset(fn.Pos())
	if fn.Doc != nil {
		from = f.offset(fn.Doc.Pos())
	}
	return from, f.offset(fn.End())
}

func (t *goTest) mutations(r *chance) []mutation {
	var all []mutation
	start, _ := t.extent()
	known := map[*ast.BasicLit]bool{}
	ast.Inspect(t.decl.Body, func(n ast.Node) bool {
		for _, lit := range t.expectations(n, r) {
			from, to := t.file.offset(lit.Pos()), t.file.offset(lit.End())
			if others := goOthers(lit, r); len(others) > 0 && !known[lit] {
				known[lit] = true
				all = append(all, replacement(Expectation, strconv.Itoa(from-start), from, to, others...))
			}
		}
		return true
	})
	all = append(all, t.opposites(start)...)
	at := t.file.offset(t.decl.Body.Lbrace) + 1
	n := len(t.name())%7 + 2
	text := fmt.Sprintf("\n\tif got, want := len([]byte(%q)), %d; got != want {\n"+
		"\t\t%s.Errorf(\"got %%d, want %%d\", got, want)\n\t}\n",
		t.name()[:min(n, len(t.name()))], n+1, t.t)
	return append(all, replacement(Outright, "start", at, at, text))
}

// goInverse maps comparisons to their opposites.
var goInverse = map[token.Token]string{
	token.NEQ: "==", token.EQL: "!=", token.LSS: ">=", token.GEQ: "<", token.GTR: "<=", token.LEQ: ">",
}

// opposites returns the mutations that invert the condition of an if statement in whose body the test fails. They
// give themselves away, because what the test says there no longer fits the condition.
func (t *goTest) opposites(start int) (all []mutation) {
	ast.Inspect(t.decl.Body, func(n ast.Node) bool {
		s, ok := n.(*ast.IfStmt)
		if !ok || !t.fails(s.Body) {
			return true
		}
		from, to := t.file.offset(s.Cond.Pos()), t.file.offset(s.Cond.End())
		text := "!(" + string(t.file.data[from:to]) + ")"
		switch c := s.Cond.(type) {
		case *ast.BinaryExpr:
			if inverse := goInverse[c.Op]; inverse != "" {
				from = t.file.offset(c.OpPos)
				to, text = from+len(c.Op.String()), inverse
			}
		case *ast.UnaryExpr:
			if c.Op == token.NOT {
				text = string(t.file.data[t.file.offset(c.X.Pos()):to])
			}
		}
		m := replacement(Expectation, "if"+strconv.Itoa(from-start), from, to, text)
		m.plain = true
		all = append(all, m)
		return true
	})
	return all
}

func (t *goTest) checks() (all []check) {
	var repeats []ast.Node
	add := func(n ast.Node) {
		inside := func(loop ast.Node) bool { return loop.Pos() < n.Pos() && n.End() <= loop.End() }
		c := check{from: t.file.offset(n.Pos()), to: t.file.offset(n.End()), repeats: slices.ContainsFunc(repeats, inside)}
		all = append(all, c)
	}
	ast.Inspect(t.decl.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			repeats = append(repeats, n)
		case *ast.FuncLit:
			if t.text(n.Type) != "func("+t.t+" *testing.T)" {
				repeats = append(repeats, n)
			}
		case *ast.IfStmt:
			if t.fails(n.Body) {
				if !isError(n.Cond) {
					add(n)
				}
				return false
			}
		case *ast.CallExpr:
			if _, ok := t.check(n); (ok || t.calls(n)) && !strings.HasSuffix(t.text(n.Fun), ".Run") {
				add(n)
				return false
			}
		}
		return true
	})
	return all
}

// fails reports whether a block makes the test fail.
func (t *goTest) fails(b *ast.BlockStmt) bool {
	return slices.ContainsFunc(b.List, func(s ast.Stmt) bool {
		e, ok := s.(*ast.ExprStmt)
		if !ok {
			return false
		}
		call, ok := e.X.(*ast.CallExpr)
		if !ok {
			return false
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		return ok && (strings.HasPrefix(method.Sel.Name, "Error") || strings.HasPrefix(method.Sel.Name, "Fatal"))
	})
}

// wanted matches the usual names of expected values.
var wanted = env.Pattern(`(?i)^(want\w*|expect\w*|exp|output|out|result)$`)

// expectations returns the literals in a node that are expected values: for a collection, one of its elements, chosen
// at random.
func (t *goTest) expectations(n ast.Node, r *chance) (found []*ast.BasicLit) {
	add := func(e ast.Expr) {
		for e != nil {
			switch one := e.(type) {
			case *ast.BasicLit:
				found = append(found, one)
			case *ast.UnaryExpr:
				e = one.X
				continue
			case *ast.KeyValueExpr:
				e = one.Value
				continue
			case *ast.CompositeLit:
				if _, ok := t.file.names.spelled(one); ok && len(one.Elts) > 0 {
					e = one.Elts[r.IntN(len(one.Elts))]
					continue
				}
			}
			return
		}
	}
	if e, ok := n.(ast.Expr); ok {
		if c, ok := t.check(e); ok {
			add(c.wanted)
			return found
		}
	}
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && wanted().MatchString(key.Name) {
			add(n.Value)
		}
	case *ast.AssignStmt:
		for i, l := range n.Lhs {
			if id, ok := l.(*ast.Ident); ok && wanted().MatchString(id.Name) && len(n.Lhs) == len(n.Rhs) {
				add(n.Rhs[i])
			}
		}
	case *ast.CallExpr:
		// assert.Equal(t, 1, f()) of testify and its like.
		if fn, ok := n.Fun.(*ast.SelectorExpr); ok && strings.HasSuffix(fn.Sel.Name, "Equal") &&
			!strings.Contains(fn.Sel.Name, "Not") {
			for _, a := range n.Args[:min(3, len(n.Args))] {
				add(a)
			}
		}
	}
	return found
}

// goOthers returns other literals of the same kind.
func goOthers(lit *ast.BasicLit, r *chance) []string {
	switch lit.Kind {
	case token.STRING:
		end := len(lit.Value) - 1
		return mapped(otherTexts(lit.Value[1:end], r), func(s string) string { return lit.Value[:1] + s + lit.Value[end:] })
	case token.INT:
		if n, err := strconv.Atoi(lit.Value); err == nil {
			return mapped(otherNumbers(n, 0, goMost(n), r), strconv.Itoa)
		}
	}
	return nil
}

// goMost returns the largest value of the smallest integer type that can hold n.
func goMost(n int) int {
	for _, most := range []int{math.MaxInt8, math.MaxUint8, math.MaxInt16, math.MaxUint16, math.MaxInt32, math.MaxUint32} {
		if n <= most {
			return most
		}
	}
	return math.MaxInt
}
