package canary

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

var _ withholder = (*goTest)(nil)

// withhold takes literals out of comparisons such as got != 3 and !reflect.DeepEqual(got, []int{3}), and out of calls
// such as assert.Equal(t, 3, got).
func (t *goTest) withhold(first int) (edits []edit, literals map[int]Literal) {
	w := &goWithholder{goTest: t, first: first, literals: map[int]Literal{}}
	if ast.Inspect(t.decl.Body, w.look); w.left {
		return nil, nil
	}
	return w.edits, w.literals
}

// goWithholder collects the comparisons of a test.
type goWithholder struct {
	*goTest
	// left is set if anything but the collected comparisons can make the test fail, apart from errors.
	left     bool
	first    int
	edits    []edit
	literals map[int]Literal
	// repeats are the loops and the functions, other than those of subtests, that were looked at.
	repeats []ast.Node
}

func (w *goWithholder) look(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ForStmt, *ast.RangeStmt:
		w.repeats = append(w.repeats, n)
	case *ast.CallExpr:
		if c, ok := w.check(n); ok {
			w.keep(c)
			return false
		}
		w.left = w.left || w.calls(n)
	case *ast.FuncLit:
		subtest := len(n.Type.Params.List) == 1
		for _, p := range n.Type.Params.List {
			other := slices.ContainsFunc(p.Names, func(id *ast.Ident) bool { return id.Name != w.t })
			subtest = subtest && w.text(p.Type) == "*testing.T"
			w.left = w.left || other && w.text(p.Type) == "*testing.T"
		}
		if !subtest {
			w.repeats = append(w.repeats, n)
		}
	case *ast.IfStmt:
		if w.fails(n.Body) {
			w.condition(n)
			return false
		}
	}
	return true
}

// condition takes the comparisons from the condition of an if statement in whose body the test fails.
func (w *goWithholder) condition(n *ast.IfStmt) {
	for _, s := range []ast.Stmt{n.Init, n.Else} {
		if s != nil {
			ast.Inspect(s, w.look)
		}
	}
	for _, cond := range alternatives(n.Cond) {
		if c, ok := w.check(cond); ok {
			w.keep(c)
		} else {
			w.left = w.left || !isError(cond)
		}
	}
	ast.Inspect(n.Body, w.hush)
}

// hush reduces messages to what is essential, because the rest may say what is expected.
func (w *goWithholder) hush(n ast.Node) bool {
	c, ok := n.(*ast.CallExpr)
	if !ok {
		return true
	}
	for _, a := range c.Args {
		if l, ok := a.(*ast.BasicLit); ok && l.Kind == token.STRING && w.calls(c) {
			text := strconv.Quote(strings.Join(essential().FindAllString(l.Value, -1), " "))
			w.edits = append(w.edits, edit{w.file.offset(l.Pos()), w.file.offset(l.End()), text})
		}
	}
	return true
}

// goCheck is a comparison with a literal that makes a test fail if it does not hold.
type goCheck struct {
	node          ast.Expr
	given, wanted ast.Expr
	form          string // the format of its replacement; %s is the call of the helper
	// call is a call of a function that compares values; nil for an operator.
	call *ast.CallExpr
}

// goComparers are the functions that compare two values.
var goComparers = strings.Fields("reflect.DeepEqual slices.Equal maps.Equal bytes.Equal cmp.Equal")

// check parses an expression that compares a value with a literal: got != 3 or !reflect.DeepEqual(got, want), as a
// condition under which the test fails, or assert.Equal(t, 3, got). ok is false for any other expression.
func (t *goTest) check(e ast.Expr) (c goCheck, ok bool) {
	c = goCheck{node: e, form: "!%s"}
	var sides []ast.Expr
	switch n := e.(type) {
	case *ast.BinaryExpr:
		if n.Op == token.NEQ {
			sides = []ast.Expr{n.X, n.Y}
		}
	case *ast.UnaryExpr:
		call, ok := n.X.(*ast.CallExpr)
		if ok && n.Op == token.NOT && slices.Contains(goComparers, t.text(call.Fun)) {
			c.call, sides = call, call.Args
		}
	case *ast.CallExpr:
		fn, ok := n.Fun.(*ast.SelectorExpr)
		if ok && len(n.Args) > 2 && fn.Sel.Name == "Equal" && t.text(n.Args[0]) == t.t {
			c.form, sides = t.text(fn.X)+".True("+t.t+", %s)", n.Args[1:3]
		}
	}
	if len(sides) < 2 {
		return c, false
	}
	for _, i := range []int{1, 0} {
		if _, _, ok = t.file.names.literal(sides[i]); ok {
			c.wanted, c.given = sides[i], sides[1-i]
			return c, true
		}
	}
	return c, false
}

// keep replaces a comparison by a call of the helper.
func (w *goWithholder) keep(c goCheck) {
	for _, loop := range w.repeats { // the first time might show what the others expect
		w.left = w.left || loop.Pos() < c.node.Pos() && c.node.End() <= loop.End()
	}
	number := w.first + len(w.literals)
	v, empty, _ := w.file.names.literal(c.wanted)
	w.literals[number] = Literal{Value: v, given: traced([]byte(w.text(w.decl)), w.text(c.given))}
	arguments := []string{strconv.Itoa(number), w.text(c.given)}
	if c.call != nil { // so that the function stays used, and imported
		same := []string{empty, empty}
		for _, more := range c.call.Args[2:] {
			same = append(same, w.text(more))
		}
		arguments = append(arguments, w.text(c.call.Fun)+"("+strings.Join(same, ", ")+")")
	}
	text := fmt.Sprintf(c.form, keep+"("+strings.Join(arguments, ", ")+")")
	w.edits = append(w.edits, edit{w.file.offset(c.node.Pos()), w.file.offset(c.node.End()), text})
}

func (t *goTest) text(n ast.Node) string {
	return string(t.file.data[t.file.offset(n.Pos()):t.file.offset(n.End())])
}

// calls reports whether a call may make the test fail, apart from errors.
func (t *goTest) calls(c *ast.CallExpr) bool {
	text := t.text(c.Fun)
	if strings.HasSuffix(text, ".NoError") || text == "assert.New" || text == "require.New" {
		return false
	}
	is := func(e ast.Expr) bool { id, ok := e.(*ast.Ident); return ok && (id.Name == t.t || id.Name == "panic") }
	if slices.ContainsFunc(c.Args, is) || is(c.Fun) {
		return true
	}
	fn, ok := c.Fun.(*ast.SelectorExpr)
	return ok && is(fn.X) && (strings.HasPrefix(fn.Sel.Name, "Err") || strings.HasPrefix(fn.Sel.Name, "F"))
}

// alternatives returns the operands of a condition joined by ||; any other condition is its own only alternative.
func alternatives(cond ast.Expr) []ast.Expr {
	if c, ok := cond.(*ast.BinaryExpr); ok && c.Op == token.LOR {
		return append(alternatives(c.X), alternatives(c.Y)...)
	}
	return []ast.Expr{cond}
}

// isError reports whether a condition compares an error with nil: err != nil.
func isError(cond ast.Expr) bool {
	c, ok := cond.(*ast.BinaryExpr)
	if !ok || c.Op != token.NEQ {
		return false
	}
	x, isName := c.X.(*ast.Ident)
	y, isNil := c.Y.(*ast.Ident)
	return isName && isNil && y.Name == "nil" && strings.HasSuffix(strings.ToLower(x.Name), "err")
}

// helper returns a file of its own, because it needs imports. It is written in the Go of 2012, because a module may
// choose any version of the language.
func (t *goTest) helper(record string) (file, text string) {
	name := t.file.parsed.Name.Name
	return keep + "_" + name + "_test.go", strings.NewReplacer("PACKAGE", name, "KEEP", keep, "FOREIGN", foreignValue,
		"RECORD", strconv.Quote(record)).Replace(`package PACKAGE

import (
	"fmt"
	"os"
	"reflect"
)

func KEEP(number int, value interface{}, _ ...interface{}) bool {
	text, own := KEEP_spell(reflect.ValueOf(value))
	if !own {
		text = "FOREIGN"
	}
	record, err := os.OpenFile(RECORD, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0666)
	if err != nil {
		return true
	}
	defer record.Close()
	fmt.Fprintf(record, "%d %s\n", number, text)
	return true
}

func KEEP_spell(v reflect.Value) (string, bool) {
	switch v.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprint(v.Int()), true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprint(v.Uint()), true
	case reflect.Float32:
		return fmt.Sprint(float32(v.Float())), true
	case reflect.Float64:
		return fmt.Sprint(v.Float()), true
	case reflect.Bool:
		return fmt.Sprint(v.Bool()), true
	case reflect.String:
		return fmt.Sprintf("%q", v.String()), true
	case reflect.Interface:
		return KEEP_spell(v.Elem())
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
			return fmt.Sprintf("%q", v.Bytes()), true
		}
		text := ""
		for i := 0; i < v.Len(); i++ {
			item, own := KEEP_spell(v.Index(i))
			if !own {
				return "", false
			}
			text += item + ", "
		}
		return "[" + text + "]", true
	case reflect.Map:
		text := ""
		for _, key := range v.MapKeys() {
			name, own := KEEP_spell(key)
			item, owned := KEEP_spell(v.MapIndex(key))
			if !own || !owned {
				return "", false
			}
			text += name + ": " + item + ", "
		}
		return "{" + text + "}", true
	}
	return "", false
}
`)
}
