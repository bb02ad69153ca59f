package telltale

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// findGo finds the telltales of a Go file.
func findGo(source []byte) []Finding {
	if tooDeep(source) {
		return nil
	}
	files := gotoken.NewFileSet()
	// A file with a syntax error does not compile; the part before the error is read all the same.
	file, _ := parser.ParseFile(files, "", source, parser.ParseComments|parser.SkipObjectResolution)
	if file == nil || file.Name == nil {
		return nil
	}
	g := &goReader{
		files: files, imports: map[string]string{}, functions: map[string]*ast.FuncDecl{}, values: map[ast.Expr]bool{},
	}
	g.main = file.Name.Name == "main"
	for _, spec := range file.Imports {
		g.importsPackage(spec)
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if d := directive.FindString(c.Text); d != "" {
				g.add(c.Pos(), Linked, d)
			}
		}
	}
	g.prints = !g.main && g.uses(file, "fmt.Print", "fmt.Println", "fmt.Printf", "os.Stdout", "syscall.Stdout")
	g.arguments = g.uses(file, "os.Args", "os.Executable", "flag.Args", "flag.CommandLine")
	g.declarations(file.Decls)
	return g.found
}

// deepest is the maximum nesting of brackets, because the parser's time is quadratic in it.
const deepest = 5000

func tooDeep(source []byte) bool {
	depth := 0
	for _, c := range source {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth = max(depth-1, 0)
		}
		if depth > deepest {
			return true
		}
	}
	return false
}

var (
	directive = regexp.MustCompile(`^//go:(linkname|cgo_\w+)\b`)
	testFlag  = regexp.MustCompile(
		`^-?-?test\.(v|run|count|timeout|list|bench|coverprofile|testlogfile|paniconexit0)\b|^\.test$`)
)

type goReader struct {
	files   *gotoken.FileSet
	main    bool
	imports map[string]string // package paths by their names in the source
	// functions maps names to the declared functions; atStart is set while reading code that runs before main and
	// tests.
	functions map[string]*ast.FuncDecl
	atStart   bool
	// prints is set if a package other than main prints to standard output.
	prints bool
	// arguments is set if the source reads the command line.
	arguments bool
	// values are functions that are assigned to a package variable, which does not call them.
	values map[ast.Expr]bool
	found  []Finding
}

func (g *goReader) add(at gotoken.Pos, rule Rule, what string) {
	g.found = append(g.found, Finding{rule, what, g.files.Position(at).Line})
}

func (g *goReader) importsPackage(spec *ast.ImportSpec) {
	full, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return
	}
	as := path.Base(full)
	if spec.Name != nil {
		as = spec.Name.Name
	}
	g.imports[as] = full
	switch full {
	case "C", "plugin", "testing/internal/testdeps":
		g.add(spec.Pos(), Linked, "import "+full)
	}
}

// declarations first reads the code that runs before main, with all functions of the source that it calls, and then the
// rest.
func (g *goReader) declarations(all []ast.Decl) {
	var start []ast.Node
	for _, d := range all {
		f, ok := d.(*ast.FuncDecl)
		switch {
		case !ok:
			start = append(start, d)
			g.named(d)
		case f.Recv == nil && f.Name.Name == "init":
			start = append(start, f)
		case f.Recv == nil:
			g.functions[f.Name.Name] = f
		}
	}
	early := map[ast.Node]bool{}
	g.atStart = true
	for len(start) > 0 {
		next := start[len(start)-1]
		start = start[:len(start)-1]
		if early[next] {
			continue
		}
		early[next] = true
		ast.Inspect(next, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if called, ok := call.Fun.(*ast.Ident); ok && g.functions[called.Name] != nil {
					start = append(start, g.functions[called.Name])
				}
			}
			return g.node(n)
		})
	}
	g.atStart = false
	for _, d := range all {
		if !early[d] {
			ast.Inspect(d, g.node)
		}
	}
}

// uses reports whether a source uses one of the names.
func (g *goReader) uses(file *ast.File, names ...string) (found bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			found = found || slices.Contains(names, g.path(s))
		}
		return !found
	})
	return found
}

// named records functions that get another name in a package variable ("var exit = os.Exit") or a table.
func (g *goReader) named(d ast.Decl) {
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for _, v := range n.Values {
				g.values[v] = true
			}
		case *ast.KeyValueExpr:
			g.values[n.Value] = true
		case *ast.CallExpr, *ast.FuncLit:
			return false
		}
		return true
	})
}

// node checks one node of the syntax tree.
func (g *goReader) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec:
		return false
	case *ast.BasicLit:
		g.literal(n)
	case *ast.BinaryExpr:
		if s, ok := folded(n, 0); ok {
			g.text(n.Pos(), s)
			return false
		}
	case *ast.AssignStmt:
		for _, left := range n.Lhs {
			if full := g.path(left); full == "os.Stdout" || full == "os.Stderr" || full == "os.Args" {
				if g.atStart || full != "os.Args" && !g.main {
					g.add(left.Pos(), Output, full+" =")
				}
			}
		}
		if n.Tok == gotoken.DEFINE {
			for _, right := range n.Rhs {
				if full := g.path(right); slices.Contains(goExits, full) && !g.main {
					g.add(right.Pos(), Exit, full)
				}
			}
		}
	case *ast.CallExpr:
		g.call(n)
	case *ast.SelectorExpr:
		g.selector(n)
	}
	return true
}

var (
	goExits = []string{
		"os.Exit", "syscall.Exit", "syscall.Exec", "golang.org/x/sys/unix.Exit", "golang.org/x/sys/unix.Exec",
	}
	goHooks = []string{"testing.MainStart", "testing.Main", "testing.Init", "testing.Testing", "testing.RegisterCover"}
	goDup   = []string{"syscall.Dup2", "syscall.Dup3", "golang.org/x/sys/unix.Dup2", "golang.org/x/sys/unix.Dup3"}
	goText  = []string{"syscall.Mprotect", "golang.org/x/sys/unix.Mprotect"}
)

// path resolves an expression of the form package.Name.
func (g *goReader) path(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := s.X.(*ast.Ident)
	if !ok || g.imports[x.Name] == "" {
		return ""
	}
	return g.imports[x.Name] + "." + s.Sel.Name
}

func (g *goReader) selector(s *ast.SelectorExpr) {
	switch full := g.path(s); {
	case full == "":
	case slices.Contains(goExits, full):
		if g.atStart && !g.values[s] {
			g.add(s.Pos(), Exit, full)
		}
	case slices.Contains(goHooks, full):
		g.add(s.Pos(), Runner, full)
	case slices.Contains(goDup, full):
		g.add(s.Pos(), Output, full)
	case slices.Contains(goText, full):
		g.add(s.Pos(), Linked, full)
	}
}

// call checks for calls that end the process. os.Exit(0) is not among them: it panics while a test runs.
func (g *goReader) call(c *ast.CallExpr) {
	if full := g.path(c.Fun); full != "os.Exit" && slices.Contains(goExits, full) && !g.main && !g.atStart {
		g.add(c.Pos(), Exit, full)
	}
}

func (g *goReader) literal(l *ast.BasicLit) {
	if l.Kind != gotoken.STRING {
		return
	}
	if s, err := strconv.Unquote(l.Value); err == nil {
		g.text(l.Pos(), s)
	}
}

func (g *goReader) text(at gotoken.Pos, s string) {
	if f, ok := readText(s); ok && (f.Rule != Names || g.atStart || g.prints && s != "_test.go") {
		g.add(at, f.Rule, f.What)
	}
	if testFlag.MatchString(s) && (s != ".test" || g.arguments) {
		g.add(at, Rerun, s)
	}
	if processFile.MatchString(s) && processPart.MatchString(s) {
		g.add(at, Rerun, "/proc/*"+s[strings.LastIndexByte(s, '/'):])
	}
}

// deepestSum is the maximum number of strings that are concatenated.
const deepestSum = 100

// folded returns the text of strings that are concatenated with +.
func folded(e ast.Expr, depth int) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == gotoken.STRING
	case *ast.ParenExpr:
		if depth < deepestSum {
			return folded(e.X, depth+1)
		}
	case *ast.BinaryExpr:
		if e.Op != gotoken.ADD || depth >= deepestSum {
			return "", false
		}
		left, ok := folded(e.X, depth+1)
		if !ok {
			return "", false
		}
		right, ok := folded(e.Y, depth+1)
		return left + right, ok
	}
	return "", false
}
