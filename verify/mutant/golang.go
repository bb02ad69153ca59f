package mutant

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// goReader collects the alterations of a Go file.
type goReader struct {
	data []byte
	fset *token.FileSet
	all  []edit
}

// goOpposites are operators with those that replace them.
var goOpposites = map[token.Token]string{
	token.EQL: "!=", token.NEQ: "==", token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">",
	token.LAND: "||", token.LOR: "&&",
	token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*", token.REM: "*",
	token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+=", token.MUL_ASSIGN: "/=", token.INC: "--", token.DEC: "++",
}

// golang returns the alterations of a Go file; none if it is not valid.
func golang(data []byte) []edit {
	r := &goReader{data: data, fset: token.NewFileSet()}
	file, err := parser.ParseFile(r.fset, "", data, parser.SkipObjectResolution)
	if err != nil {
		return nil
	}
	ast.Inspect(file, r.visit)
	return r.all
}

// replace adds an edit.
func (r *goReader) replace(from, to token.Pos, text string, o Operator) {
	r.all = append(r.all, edit{r.offset(from), r.offset(to), text, o})
}

func (r *goReader) offset(p token.Pos) int { return r.fset.Position(p).Offset }

func (r *goReader) text(n ast.Node) string {
	return string(r.data[r.offset(n.Pos()):r.offset(n.End())])
}

func (r *goReader) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec:
		return false
	case *ast.Field: // a tag is not a value of the program
		ast.Inspect(n.Type, r.visit)
		return false
	case *ast.ForStmt: // without what ends the loop
		if n.Cond != nil {
			ast.Inspect(n.Cond, r.visit)
		}
		ast.Inspect(n.Body, r.visit)
		return false
	case *ast.BasicLit:
		r.literal(n)
	case *ast.Ident:
		if other, ok := map[string]string{"true": "false", "false": "true"}[n.Name]; ok {
			r.replace(n.Pos(), n.End(), other, Literal)
		}
	case *ast.BinaryExpr:
		r.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			r.replace(n.Pos(), n.X.Pos(), "", Condition)
		}
	case *ast.IfStmt:
		r.replace(n.Cond.Pos(), n.Cond.End(), "!("+r.text(n.Cond)+")", Condition)
	case *ast.AssignStmt:
		r.operator(n.TokPos, n.Tok)
	case *ast.IncDecStmt:
		r.operator(n.TokPos, n.Tok)
	case *ast.BlockStmt:
		r.deletions(n.List)
	case *ast.CaseClause:
		r.deletions(n.Body)
	case *ast.CommClause:
		r.deletions(n.Body)
	}
	return true
}

func (r *goReader) literal(n *ast.BasicLit) {
	switch n.Kind {
	case token.INT, token.FLOAT:
		for _, other := range neighbours(n.Value) {
			r.replace(n.Pos(), n.End(), other, Boundary)
		}
	case token.STRING:
		r.replace(n.Pos()+1, n.Pos()+1, "x", Text)
	}
}

func (r *goReader) binary(n *ast.BinaryExpr) {
	for _, e := range []ast.Expr{n.X, n.Y} {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING && n.Op == token.ADD {
			return // strings can only be added
		}
	}
	r.operator(n.OpPos, n.Op)
}

func (r *goReader) operator(at token.Pos, op token.Token) {
	if other := goOpposites[op]; other != "" {
		r.replace(at, at+token.Pos(len(op.String())), other, kindOf(op.String()))
	}
}

// deletions makes statements ineffective. What they use stays used, so that the program still compiles.
func (r *goReader) deletions(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt, *ast.BranchStmt:
		default:
			continue
		}
		r.replace(s.Pos(), s.End(), "if false { "+r.text(s)+" }", Deletion)
	}
}

// kindOf returns the kind of the alteration of an operator.
func kindOf(op string) Operator {
	if strings.ContainsAny(op, "+-*/%") {
		return Arithmetic
	}
	return Comparison
}
