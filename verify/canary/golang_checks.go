package canary

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"

	"deepswe/verify/literal"
)

// goNames are the names of a file, and what they stand for. Those of other files and packages are not known.
type goNames struct {
	types.Info
	values map[types.Object]ast.Expr // that a variable or constant is declared with
	uses   map[types.Object]int
	loops  []*ast.RangeStmt
}

// named resolves the names of a file.
func named(fset *token.FileSet, file *ast.File) *goNames {
	n := &goNames{
		Info: types.Info{
			Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{},
			Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
		},
		values: map[types.Object]ast.Expr{}, uses: map[types.Object]int{},
	}
	config := types.Config{FakeImportC: true, Error: func(error) {}}
	_, _ = config.Check(file.Name.Name, fset, []*ast.File{file}, &n.Info) // what it cannot know is left out
	for _, object := range n.Uses {
		n.uses[object]++
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.AssignStmt:
			for i, l := range node.Lhs {
				if id, ok := l.(*ast.Ident); ok && len(node.Lhs) == len(node.Rhs) && n.Defs[id] != nil {
					n.values[n.Defs[id]] = node.Rhs[i]
				}
			}
		case *ast.ValueSpec:
			for i, id := range node.Names {
				if len(node.Values) == len(node.Names) {
					n.values[n.Defs[id]] = node.Values[i]
				}
			}
		case *ast.RangeStmt:
			n.loops = append(n.loops, node)
		}
		return true
	})
	return n
}

// goWanted is what a comparison expects: a literal, or those of a table's rows.
type goWanted struct {
	object types.Object   // the variable, or the field of the rows; nil for a literal in its place
	loop   *ast.RangeStmt // over the table; nil if there is none
	// literals are the expressions in the source; nil where a row has none, and then zero is meant.
	literals []ast.Expr
	zero     string
}

// wanted returns what an expression of a comparison stands for, if that consists of literals.
func (n *goNames) wanted(e ast.Expr) (w goWanted, ok bool) {
	switch e := e.(type) {
	case *ast.Ident:
		object := n.Uses[e]
		if v := n.value(object); v != nil {
			_, _, ok := n.literal(v)
			return goWanted{object: object, literals: []ast.Expr{v}}, ok
		}
	case *ast.SelectorExpr:
		s := n.Selections[e]
		if s == nil || s.Kind() != types.FieldVal || len(s.Index()) != 1 {
			return w, false
		}
		return n.column(e, s.Obj(), s.Index()[0])
	}
	_, _, ok = n.literal(e)
	return goWanted{literals: []ast.Expr{e}}, ok
}

// value returns what a name inside a function is declared with; nil if that is not known. Other files may use those of
// the package.
func (n *goNames) value(object types.Object) ast.Expr {
	if object == nil || object.Parent() == object.Pkg().Scope() {
		return nil
	}
	return n.values[object]
}

// column returns the values of a field in the rows of the table that the innermost loop around the expression is over.
func (n *goNames) column(e ast.Expr, field types.Object, index int) (w goWanted, ok bool) {
	w.object = field
	for _, loop := range n.loops {
		if loop.Pos() < e.Pos() && e.End() <= loop.End() && n.holds(n.table(loop.X), field) {
			w.loop = loop
		}
	}
	switch t := field.Type().Underlying().(type) {
	case *types.Basic:
		w.zero = map[bool]string{true: `""`, false: "0"}[t.Info()&types.IsString != 0]
		if t.Info()&types.IsBoolean != 0 {
			w.zero = "false"
		}
	case *types.Slice:
		w.zero = "[]"
	case *types.Map:
		w.zero = "{}"
	}
	key, _ := w.key()
	if w.loop == nil || w.zero == "" || key == nil {
		return w, false
	}
	table := n.table(w.loop.X)
	for _, row := range table.Elts {
		fields, ok := row.(*ast.CompositeLit)
		if !ok {
			return w, false
		}
		var value ast.Expr
		for i, v := range fields.Elts {
			if pair, ok := v.(*ast.KeyValueExpr); ok {
				if id, ok := pair.Key.(*ast.Ident); ok && n.Uses[id] == field {
					value = pair.Value
				}
			} else if i == index {
				value = v
			}
		}
		if id, ok := value.(*ast.Ident); ok && id.Name == "nil" {
			value = nil
		}
		if _, _, ok := n.literal(value); value != nil && !ok {
			return w, false
		}
		w.literals = append(w.literals, value)
	}
	return w, true
}

// key returns the index of the loop, and its name in the test. There is none if the loop does not count rows.
func (w goWanted) key() (key *ast.Ident, name string) {
	if w.loop == nil || w.loop.Tok != token.DEFINE {
		return nil, ""
	}
	if key, _ = w.loop.Key.(*ast.Ident); key == nil {
		return nil, ""
	}
	if key.Name == "_" {
		return key, keep + "_row"
	}
	return key, key.Name
}

// table returns the table that a loop is over, if that is a slice of rows which nothing else uses; nil if not.
func (n *goNames) table(e ast.Expr) *ast.CompositeLit {
	if id, ok := e.(*ast.Ident); ok && n.uses[n.Uses[id]] == 1 {
		e = n.value(n.Uses[id])
	}
	table, _ := e.(*ast.CompositeLit)
	return table
}

// holds reports whether a literal is a slice or array of structs with the field.
func (n *goNames) holds(table *ast.CompositeLit, field types.Object) bool {
	if table == nil || n.Types[table].Type == nil {
		return false
	}
	rows, ok := n.Types[table].Type.Underlying().(interface{ Elem() types.Type })
	if _, isMap := rows.(*types.Map); !ok || isMap {
		return false
	}
	row, ok := rows.Elem().Underlying().(*types.Struct)
	return ok && slices.ContainsFunc(slices.Collect(row.Fields()), func(f *types.Var) bool { return f == field })
}

// literal returns the value of an expression of literals only, and the source of an empty one of its type.
func (n *goNames) literal(e ast.Expr) (v literal.Value, empty string, ok bool) {
	text, ok := n.spelled(e)
	if !ok {
		return v, "", false
	}
	v, err := literal.Parse(text)
	switch e := e.(type) {
	case *ast.CompositeLit:
		empty = types.ExprString(e.Type) + "{}"
	case *ast.CallExpr:
		empty = `[]byte("")`
	default:
		empty = map[constant.Kind]string{constant.String: `""`, constant.Bool: "false"}[n.Types[e].Value.Kind()]
		if empty == "" {
			empty = "0"
		}
	}
	return v, empty, err == nil
}

// spelled returns the text of an expression of literals only, as package literal reads it.
func (n *goNames) spelled(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.CompositeLit:
		return n.collection(e)
	case *ast.CallExpr: // []byte("text")
		if len(e.Args) != 1 || types.ExprString(e.Fun) != "[]byte" {
			return "", false
		}
		text, ok = n.spelled(e.Args[0])
		return text, ok && strings.HasPrefix(text, `"`)
	case *ast.BasicLit, *ast.UnaryExpr, *ast.BinaryExpr, *ast.Ident:
	default:
		return "", false
	}
	v, pure := n.Types[e].Value, true
	ast.Inspect(e, func(node ast.Node) bool {
		id, isName := node.(*ast.Ident)
		pure = pure && (!isName || id.Name == "true" || id.Name == "false")
		return true
	})
	switch {
	case v == nil || !pure:
		return "", false
	case v.Kind() == constant.String:
		return strconv.Quote(constant.StringVal(v)), true
	case v.Kind() == constant.Float:
		f, _ := constant.Float64Val(v)
		bits := 64
		if types.Identical(n.Types[e].Type, types.Typ[types.Float32]) {
			bits = 32
		}
		return strconv.FormatFloat(f, 'g', -1, bits), true
	}
	return v.ExactString(), v.Kind() == constant.Int || v.Kind() == constant.Bool
}

// collection does this for a slice, an array, or a map of the language's own types. A slice of bytes is a text.
func (n *goNames) collection(e *ast.CompositeLit) (text string, ok bool) {
	t := n.Types[e].Type
	of, ok := t.(interface{ Elem() types.Type })
	if !ok || types.Identical(of.Elem(), types.Typ[types.Byte]) {
		return "", false
	}
	brackets := "[]"
	if _, isMap := t.(*types.Map); isMap {
		brackets = "{}"
	}
	var items []string
	for _, item := range e.Elts {
		key := ""
		if pair, ok := item.(*ast.KeyValueExpr); ok {
			if key, ok = n.spelled(pair.Key); !ok || brackets != "{}" {
				return "", false
			}
			key, item = key+": ", pair.Value
		}
		text, ok := n.spelled(item)
		if !ok {
			return "", false
		}
		items = append(items, key+text)
	}
	return brackets[:1] + strings.Join(items, ", ") + brackets[1:], true
}
