package telltale

import "strings"

// findPython finds the telltales of a Python file, statement by statement.
func findPython(source []byte) []Finding {
	tokens := pythonTokens(string(source))
	r := &pythonReader{reader: reader{tokens: tokens, pairs: brackets(tokens), aliases: map[string]string{}}}
	column := 0
	for from := 0; from < len(tokens); {
		to := from
		for tokens[to].kind != newline {
			to++
		}
		if to > from {
			if from == 0 || tokens[from-1].text != ";" {
				column = tokens[from].column
			}
			r.statement(from, to, column)
		}
		from = to + 1
	}
	r.leave(-1)
	return r.found
}

// pythonReader keeps track of the blocks of a source.
type pythonReader struct {
	reader
	blocks []block
	forks  bool // the source forks processes
	// equal is the definition of __eq__ that is being read.
	equal struct {
		at, column, statements int
		open, always           bool
	}
}

// block is an indented block of statements.
type block struct {
	column int
	kind   blockKind
}

type blockKind byte

const (
	otherBlock blockKind = iota
	functionBlock
	guardBlock // if __name__ == "__main__"
)

// atImport reports whether the current statement runs when the module is imported.
func (r *pythonReader) atImport() bool {
	for _, b := range r.blocks {
		if b.kind != otherBlock {
			return false
		}
	}
	return true
}

// leave closes the blocks that a statement in this column is outside of.
func (r *pythonReader) leave(column int) {
	for len(r.blocks) > 0 && r.blocks[len(r.blocks)-1].column >= column {
		r.blocks = r.blocks[:len(r.blocks)-1]
	}
	if e := &r.equal; e.open && column <= e.column {
		if e.open = false; e.always && e.statements == 1 {
			r.add(e.at, Equal, "__eq__")
		}
	}
}

// statement checks the tokens of one logical line.
func (r *pythonReader) statement(from, to, column int) {
	r.leave(column)
	if r.isDocumentation(from, to) {
		return
	}
	r.countEqual(from, to)
	first := from
	if r.named(from, "async") {
		first++
	}
	kind, compound := otherBlock, true
	switch r.tokens[first].text {
	case "def":
		kind = functionBlock
		r.defines(first, to, column)
	case "if":
		if r.named(from+1, "__name__") {
			kind = guardBlock
		}
	case "class", "for", "while", "with", "try", "except", "finally", "else", "elif", "match", "case":
	default:
		compound = false
	}
	compound = compound && r.tokens[first].kind == name
	body := from
	if compound {
		r.blocks = append(r.blocks, block{column, kind})
		body = r.afterHeader(first, to)
	}
	switch {
	case r.named(body, "import"):
		r.imports(body+1, to)
	case r.named(body, "from"):
		r.importsFrom(body+1, to)
	default:
		r.expressions(from, body, to)
	}
}

// isDocumentation reports whether a statement consists only of strings.
func (r *pythonReader) isDocumentation(from, to int) bool {
	for i := from; i < to; i++ {
		if r.tokens[i].kind != text {
			return false
		}
	}
	return true
}

// afterHeader returns the index at which a statement after "if x:" begins; to if there is none.
func (r *pythonReader) afterHeader(from, to int) int {
	for i := from; i < to; i++ {
		if t := r.tokens[i]; t.kind == sign && (t.text == "(" || t.text == "[" || t.text == "{") && r.pairs[i] > 0 {
			i = r.pairs[i]
		} else if r.is(i, ":") {
			return i + 1
		}
	}
	return to
}

// defines checks the head of a function definition.
func (r *pythonReader) defines(at, to, column int) {
	if !r.named(at+1, "__eq__") {
		return
	}
	r.equal.at, r.equal.column, r.equal.statements = at, column, 0
	r.equal.open, r.equal.always = true, false
	if body := r.afterHeader(at, to); body < to {
		r.countEqual(body, to)
	}
}

// countEqual counts the statements of a definition of __eq__.
func (r *pythonReader) countEqual(from, to int) {
	if !r.equal.open {
		return
	}
	r.equal.statements++
	if r.named(from, "return") && r.named(from+1, "True") && from+2 == to {
		r.equal.always = true
	}
}

// imports reads "a.b as c, d".
func (r *pythonReader) imports(i, to int) {
	for i < to {
		module, end := r.dotted(i, to)
		if module == "" {
			return
		}
		r.importsModule(i, module)
		as, _, _ := strings.Cut(module, ".")
		path := as
		if r.named(end, "as") && end+1 < to {
			as, path = r.tokens[end+1].text, module
			end += 2
		}
		r.aliases[as] = path
		if !r.is(end, ",") {
			return
		}
		i = end + 1
	}
}

// importsFrom reads "a.b import (c as d, e)".
func (r *pythonReader) importsFrom(i, to int) {
	module, end := r.dotted(i, to)
	if module == "" || !r.named(end, "import") {
		return // a relative import
	}
	r.importsModule(i, module)
	for i = end + 1; i < to; i++ {
		if r.tokens[i].kind != name {
			continue
		}
		as, path := r.tokens[i].text, module+"."+r.tokens[i].text
		r.loads(i, i+1, path)
		if r.named(i+1, "as") && i+2 < to {
			as = r.tokens[i+2].text
			i += 2
		}
		r.aliases[as] = path
	}
}

// dotted reads a module name.
func (r *pythonReader) dotted(i, to int) (module string, end int) {
	from := i
	for i < to && r.tokens[i].kind == name {
		i++
		if !r.is(i, ".") {
			break
		}
		i++
	}
	var b strings.Builder
	for _, t := range r.tokens[from:i] {
		b.WriteString(t.text)
	}
	return strings.TrimSuffix(b.String(), "."), i
}

// expressions checks the expressions of a statement, and what it assigns to. After a header, assignments begin at body.
func (r *pythonReader) expressions(from, body, to int) {
	assigned := r.lastAssignment(body, to)
	for i := from; i < to; i++ {
		switch t := r.tokens[i]; {
		case t.kind == text:
			s, end, _ := r.joined(i)
			r.strings(i, s, end-i > 1)
			i = end - 1
		case t.kind == sign && t.text == "(" || t.kind == name && !r.is(i-1, "."):
			path, end := r.chain(i, 0)
			if path == "" {
				continue
			}
			r.loads(i, end, path)
			target := i >= body && i < assigned || r.named(i-1, "del") || r.named(i-1, "as") || r.named(i-1, "for")
			if target && end > i+1 {
				r.stores(i, end, path)
			}
		}
	}
	if assigned > body && r.tokens[body].kind == name && assigned == body+1 {
		r.alias(r.tokens[body].text, assigned+1, to)
	}
}

// lastAssignment returns the index of the last assignment operator in a statement; from if there is none.
func (r *pythonReader) lastAssignment(from, to int) int {
	last := from
	for i := from; i < to; i++ {
		t := r.tokens[i]
		if t.kind != sign {
			continue
		}
		switch t.text {
		case "(", "[", "{":
			if r.pairs[i] > 0 {
				i = r.pairs[i]
			}
		case "=", "+=", "-=", "*=", "/=", "//=", "%=", "|=", "&=", "^=", "@=", "**=", ">>=", "<<=":
			last = i
		}
	}
	return last
}

// alias records what a name stands for from here on.
func (r *pythonReader) alias(as string, from, to int) {
	path, end := r.chain(from, 0)
	if end == to && path != "" && !strings.HasPrefix(path, "?") {
		r.aliases[as] = path
	} else {
		r.aliases[as] = "?" + as
	}
}

// longestPath is the maximum length of a path, deepestChain the maximum nesting of brackets.
const (
	longestPath  = 200
	deepestChain = 8
)

// chain resolves an expression of names, attributes, subscripts and calls, such as getattr(os, "_ex" + "it"). The path
// of an unknown name begins with a question mark. path is empty if there is no such expression.
func (r *pythonReader) chain(i, depth int) (path string, end int) {
	if i >= len(r.tokens) || depth > deepestChain {
		return "", i
	}
	switch t := r.tokens[i]; {
	case t.kind == sign && t.text == "(" && r.pairs[i] > 0 && !r.isOperand(i-1):
		inner, at := r.chain(i+1, depth+1)
		if inner == "" || at != r.pairs[i] {
			return "", i
		}
		path, end = inner, at+1
	case t.kind == name && !keywords[t.text]:
		path, end = r.base(t.text), i+1
	default:
		return "", i
	}
	for len(path) < longestPath {
		next, at := r.suffix(path, end, depth)
		if at == end {
			break
		}
		path, end = next, at
	}
	return path, end
}

// isOperand reports whether a bracket after the token is a call or a subscript.
func (r *pythonReader) isOperand(i int) bool {
	if i < 0 {
		return false
	}
	t := r.tokens[i]
	return t.kind == name && !keywords[t.text] || t.kind == text || r.is(i, ")") || r.is(i, "]")
}

// base returns what a name stands for.
func (r *pythonReader) base(word string) string {
	if path, ok := r.aliases[word]; ok {
		return path
	}
	switch word {
	case "__builtins__":
		return "builtins"
	case "getattr", "setattr", "delattr", "exec", "eval", "compile", "vars", "__import__":
		return "builtins." + word
	}
	return "?" + word
}

// suffix extends a path by the next attribute, subscript or call; if there is none, the end does not change.
func (r *pythonReader) suffix(path string, at, depth int) (string, int) {
	switch {
	case r.is(at, ".") && at+1 < len(r.tokens) && r.tokens[at+1].kind == name:
		if attribute := r.tokens[at+1].text; attribute != "__dict__" {
			path += "." + attribute
		}
		return path, at + 2
	case r.is(at, "[") && r.pairs[at] > 0:
		key, end, ok := r.joined(at + 1)
		switch {
		case !ok || end != r.pairs[at]:
			path += "[]"
		case path == "sys.modules":
			path = modulePath + key
		default:
			path += "." + key
		}
		return path, r.pairs[at] + 1
	case r.is(at, "(") && r.pairs[at] > 0:
		return r.call(path, at, depth), r.pairs[at] + 1
	}
	return path, at
}

// modulePath is the prefix of paths that begin in sys.modules.
const modulePath = "sys.modules:"

// call returns the path of a call's result; empty if it is not known.
func (r *pythonReader) call(path string, at, depth int) string {
	switch path {
	case "builtins.getattr":
		of, end := r.chain(at+1, depth+1)
		if of == "" || !r.is(end, ",") {
			return path + "()"
		}
		attribute, _, ok := r.joined(end + 1)
		if !ok {
			attribute = "[]"
		}
		return of + "." + attribute
	case "builtins.vars":
		if of, end := r.chain(at+1, depth+1); of != "" && end == r.pairs[at] {
			return of
		}
	case "builtins.__import__", "importlib.import_module":
		if module, _, ok := r.joined(at + 1); ok {
			return module
		}
	}
	return path + "()"
}
