package canary

import (
	"fmt"
	"go/ast"
	"go/token"
	"strconv"
	"strings"

	"deepswe/verify/literal"
)

var _ withholder = (*goTest)(nil)

// withhold takes literals out of comparisons such as got != 3.
func (t *goTest) withhold(first int) (edits []edit, literals []literal.Value) {
	text := func(n ast.Node) string { return string(t.file.data[t.file.offset(n.Pos()):t.file.offset(n.End())]) }
	ast.Inspect(t.decl.Body, func(n ast.Node) bool {
		c, ok := n.(*ast.BinaryExpr)
		if !ok || c.Op != token.NEQ {
			return true
		}
		for _, side := range [][2]ast.Expr{{c.X, c.Y}, {c.Y, c.X}} {
			if _, basic := side[1].(*ast.BasicLit); !basic {
				continue
			}
			wanted, err := literal.Parse(text(side[1]))
			if err != nil {
				continue
			}
			edits = append(edits, edit{
				t.file.offset(c.Pos()), t.file.offset(c.End()),
				fmt.Sprintf("!%s(%d, %s)", keep, first+len(literals), text(side[0])),
			})
			literals = append(literals, wanted)
			return false
		}
		return true
	})
	return edits, literals
}

// helper is a file of its own, because it needs imports.
func (t *goTest) helper(record string) (file, text string) {
	name := t.file.parsed.Name.Name
	return keep + "_" + name + "_test.go", strings.NewReplacer("PACKAGE", name, "KEEP", keep, "FOREIGN", Foreign, "RECORD",
		strconv.Quote(record)).Replace(`package PACKAGE

import (
	"fmt"
	"os"
	"reflect"
)

func KEEP(number int, value any) bool {
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
	record, err := os.OpenFile(RECORD, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return true
	}
	defer record.Close()
	fmt.Fprintf(record, "%d %s\n", number, text)
	return true
}
`)
}
