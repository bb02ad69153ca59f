package canary

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"

	"deepswe/verify/literal"
)

var _ withholder = (*goTest)(nil)

// withhold takes literals out of comparisons such as got != 3, and out of calls such as assert.Equal(t, 3, got).
func (t *goTest) withhold(first int) (edits []edit, literals []literal.Value) {
	whole := true
	keepIn := func(n ast.Node, form string, given ast.Expr, wanted literal.Value) {
		text := fmt.Sprintf(form, fmt.Sprintf("%s(%d, %s)", keep, first+len(literals), t.text(given)))
		edits = append(edits, edit{t.file.offset(n.Pos()), t.file.offset(n.End()), text})
		literals = append(literals, wanted)
	}
	var look func(n ast.Node) bool
	look = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if given, wanted, form, ok := t.asserted(n); ok {
				keepIn(n, form, given, wanted)
				return false
			}
			whole = whole && !t.checks(n)
		case *ast.IfStmt:
			if !t.fails(n.Body) {
				return true
			}
			for _, c := range alternatives(n.Cond) {
				if given, wanted, ok := t.compared(c); ok {
					keepIn(c, "!%s", given, wanted)
				} else {
					whole = whole && isError(c)
				}
			}
			for _, s := range []ast.Stmt{n.Init, n.Else} {
				if s != nil {
					ast.Inspect(s, look)
				}
			}
			return false
		}
		return true
	}
	if ast.Inspect(t.decl.Body, look); !whole {
		return nil, nil
	}
	return edits, literals
}

func (t *goTest) text(n ast.Node) string {
	return string(t.file.data[t.file.offset(n.Pos()):t.file.offset(n.End())])
}

// compared returns what a condition compares with a literal.
func (t *goTest) compared(cond ast.Expr) (given ast.Expr, wanted literal.Value, ok bool) {
	c, ok := cond.(*ast.BinaryExpr)
	if !ok || c.Op != token.NEQ {
		return nil, wanted, false
	}
	return t.withLiteral(c.X, c.Y)
}

// withLiteral returns the one of two expressions that is compared with the other, a literal.
func (t *goTest) withLiteral(x, y ast.Expr) (given ast.Expr, wanted literal.Value, ok bool) {
	for _, side := range [][2]ast.Expr{{x, y}, {y, x}} {
		if _, basic := side[1].(*ast.BasicLit); basic {
			wanted, err := literal.Parse(t.text(side[1]))
			return side[0], wanted, err == nil
		}
	}
	return nil, wanted, false
}

// asserted returns what a call of testify's Equal compares with a literal, and the form of a call that takes a truth.
func (t *goTest) asserted(c *ast.CallExpr) (given ast.Expr, wanted literal.Value, form string, ok bool) {
	fn, ok := c.Fun.(*ast.SelectorExpr)
	if !ok || fn.Sel.Name != "Equal" || len(c.Args) < 3 || t.text(c.Args[0]) != t.t {
		return nil, wanted, "", false
	}
	given, wanted, ok = t.withLiteral(c.Args[2], c.Args[1])
	return given, wanted, t.text(fn.X) + ".True(" + t.t + ", %s)", ok
}

// checks reports whether a call may make the test fail.
func (t *goTest) checks(c *ast.CallExpr) bool {
	is := func(e ast.Expr) bool { id, ok := e.(*ast.Ident); return ok && (id.Name == t.t || id.Name == "panic") }
	if slices.ContainsFunc(c.Args, is) || is(c.Fun) {
		return true
	}
	fn, ok := c.Fun.(*ast.SelectorExpr)
	return ok && is(fn.X) && (strings.HasPrefix(fn.Sel.Name, "Err") || strings.HasPrefix(fn.Sel.Name, "F"))
}

// alternatives returns the conditions of which one must hold.
func alternatives(cond ast.Expr) []ast.Expr {
	if c, ok := cond.(*ast.BinaryExpr); ok && c.Op == token.LOR {
		return append(alternatives(c.X), alternatives(c.Y)...)
	}
	return []ast.Expr{cond}
}

// isError reports whether a condition is that there is an error.
func isError(cond ast.Expr) bool {
	c, ok := cond.(*ast.BinaryExpr)
	if !ok || c.Op != token.NEQ {
		return false
	}
	x, isName := c.X.(*ast.Ident)
	y, isNil := c.Y.(*ast.Ident)
	return isName && isNil && y.Name == "nil" && strings.HasSuffix(strings.ToLower(x.Name), "err")
}

// helper is a file of its own, because it needs imports. Its Go is that of 2012, because modules choose their version.
func (t *goTest) helper(record string) (file, text string) {
	name := t.file.parsed.Name.Name
	return keep + "_" + name + "_test.go", strings.NewReplacer("PACKAGE", name, "KEEP", keep, "FOREIGN", Foreign, "RECORD",
		strconv.Quote(record)).Replace(`package PACKAGE

import (
	"fmt"
	"os"
	"reflect"
)

func KEEP(number int, value interface{}) bool {
	text := "FOREIGN"
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		text = fmt.Sprint(v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		text = fmt.Sprint(v.Uint())
	case reflect.Float32, reflect.Float64:
		text = fmt.Sprint(v.Float())
	case reflect.String:
		text = fmt.Sprintf("%q", v.String())
	}
	record, err := os.OpenFile(RECORD, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0666)
	if err != nil {
		return true
	}
	defer record.Close()
	fmt.Fprintf(record, "%d %s\n", number, text)
	return true
}
`)
}
