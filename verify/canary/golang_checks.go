package canary

import (
	"cmp"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strconv"
	"strings"

	"deepswe/verify/literal"
)

// goNames are the names of a file, and what they stand for. Those of other files and packages are not known.
type goNames struct{ types.Info }

// named resolves the names of a file.
func named(fset *token.FileSet, file *ast.File) *goNames {
	n := &goNames{types.Info{Types: map[ast.Expr]types.TypeAndValue{}}}
	config := types.Config{FakeImportC: true, Error: func(error) {}}
	_, _ = config.Check(file.Name.Name, fset, []*ast.File{file}, &n.Info) // what it cannot know is left out
	return n
}

// literal returns the value of an expression that consists of literals only, and the source of an empty value of its
// type.
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
		words := map[constant.Kind]string{constant.String: `""`, constant.Bool: "false"}
		empty = cmp.Or(words[n.Types[e].Value.Kind()], "0")
	}
	return v, empty, err == nil
}

// spelled returns the text of an expression that consists of literals only, in the form that package literal reads.
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

// collection does what spelled does for a slice, an array or a map. A slice of bytes is a text, and not a collection.
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
