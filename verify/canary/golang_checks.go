package canary

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strconv"
	"strings"

	"deepswe/verify/literal"
)

// goNames are the names of a file, and what they stand for. Those of other files and packages are not known.
type goNames struct {
	types.Info
	values map[types.Object]ast.Expr // that a variable or constant is declared with
}

// named resolves the names of a file.
func named(fset *token.FileSet, file *ast.File) *goNames {
	n := &goNames{
		Info: types.Info{
			Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{},
			Uses: map[*ast.Ident]types.Object{},
		},
		values: map[types.Object]ast.Expr{},
	}
	config := types.Config{FakeImportC: true, Error: func(error) {}}
	_, _ = config.Check(file.Name.Name, fset, []*ast.File{file}, &n.Info) // what it cannot know is left out
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
		}
		return true
	})
	return n
}

// goWanted is what a comparison expects.
type goWanted struct {
	object  types.Object // the variable; nil for a literal in its place
	literal ast.Expr
}

// wanted returns what an expression of a comparison stands for, if that is a literal.
func (n *goNames) wanted(e ast.Expr) (w goWanted, ok bool) {
	if id, isName := e.(*ast.Ident); isName && n.value(n.Uses[id]) != nil {
		w.object, e = n.Uses[id], n.value(n.Uses[id])
	}
	w.literal = e
	_, _, ok = n.literal(e)
	return w, ok
}

// value returns what a name inside a function is declared with; nil if that is not known. Other files may use those of
// the package.
func (n *goNames) value(object types.Object) ast.Expr {
	if object == nil || object.Parent() == object.Pkg().Scope() {
		return nil
	}
	return n.values[object]
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
