package telltale

import (
	"path"
	"slices"
	"strings"
)

// findScript finds the telltales of a JavaScript or TypeScript file.
func findScript(file string, source []byte) []Finding {
	tokens := scriptTokens(string(source))
	r := &scriptReader{reader: reader{tokens: tokens, pairs: brackets(tokens), aliases: map[string]string{}}}
	r.program = strings.HasPrefix(string(source), "#!") || slices.ContainsFunc(
		strings.FieldsFunc(strings.TrimSuffix(file, path.Ext(file)), func(c rune) bool { return c == '/' }),
		func(part string) bool { return slices.Contains(programs, part) })
	for i := 0; i < len(tokens); i++ {
		i = r.token(i)
	}
	return r.found
}

// programs are names of directories and files of programs, which may call process.exit.
var programs = []string{"bin", "cli", "scripts", "tools", "script", "main"}

type scriptReader struct {
	reader
	program bool
	// functions are the ends of the functions around the current token.
	functions []int
}

// atImport reports whether the current token is executed when the module is loaded.
func (r *scriptReader) atImport() bool { return len(r.functions) == 0 }

// token checks what begins at a token, and returns the last token that it has read.
func (r *scriptReader) token(i int) int {
	for len(r.functions) > 0 && i >= r.functions[len(r.functions)-1] {
		r.functions = r.functions[:len(r.functions)-1]
	}
	switch t := r.tokens[i]; {
	case t.kind == text:
		s, end, _ := r.joined(i)
		if f, ok := readText(s); ok {
			r.add(i, f.Rule, f.What)
		}
		return end - 1
	case t.kind == sign && t.text == "{":
		if r.pairs[i] > 0 && r.isFunction(i) {
			r.functions = append(r.functions, r.pairs[i])
		}
	case t.kind == sign && t.text == "=>" && !r.is(i+1, "{"):
		r.functions = append(r.functions, r.expressionEnd(i+1))
	case t.kind == name && t.text == "import" && !r.is(i+1, "(") && !r.is(i+1, "."):
		r.imports(i + 1)
	case t.kind == name && (t.text == "const" || t.text == "let" || t.text == "var"):
		r.declares(i + 1)
	case t.kind == name && !r.is(i-1, ".") && !r.is(i-1, "?."), t.kind == sign && t.text == "(":
		r.expression(i)
	}
	return i
}

// isFunction reports whether a brace opens the body of a function that is not called immediately.
func (r *scriptReader) isFunction(i int) bool {
	switch {
	case r.is(i-1, "=>"):
	case r.is(i-1, ")"):
		open := r.pairs[i-1]
		if open > 0 && r.tokens[open-1].kind == name {
			switch r.tokens[open-1].text {
			case "if", "for", "while", "switch", "catch", "with", "await":
				return false
			}
		}
	default:
		return false
	}
	end := r.pairs[i] + 1
	return !r.is(end, "(") && (!r.is(end, ")") || !r.is(end+1, "("))
}

// longestArrow is the maximum length in tokens of an arrow function without braces.
const longestArrow = 400

// expressionEnd returns the end of the expression that begins at i.
func (r *scriptReader) expressionEnd(i int) int {
	for most := i + longestArrow; i < len(r.tokens) && i < most; i++ {
		if r.tokens[i].kind != sign {
			continue
		}
		switch r.tokens[i].text {
		case "(", "[", "{":
			i = r.closing(i)
		case ")", "]", "}", ",", ";":
			return i
		}
	}
	return i
}

// imports reads "a, {b as c} from 'm'", "* as a from 'm'" and "'m'".
func (r *scriptReader) imports(i int) {
	from := i
	for i < len(r.tokens) && i < from+farthest && r.tokens[i].kind != text && !r.is(i, ";") && !r.is(i, "=") {
		i++
	}
	if i >= len(r.tokens) || r.tokens[i].kind != text {
		return
	}
	module := moduleName(r.tokens[i].text)
	r.importsModule(i, module)
	inner := false
	for j := from; j < i; j++ {
		switch t := r.tokens[j]; {
		case r.is(j, "{"):
			inner = true
		case r.is(j, "}"):
			inner = false
		case t.kind != name || t.text == "from" || t.text == "type" || t.text == "as":
		case r.named(j-1, "as"):
			if !inner {
				r.aliases[t.text] = module
			}
		case inner:
			as := t.text
			if r.named(j+1, "as") && j+2 < i {
				as = r.tokens[j+2].text
			}
			r.aliases[as] = exported(module, t.text)
		default:
			r.aliases[t.text] = module
		}
	}
}

// exported returns the path of a module's export.
func exported(module, word string) string {
	if word == "default" {
		return module
	}
	return module + "." + word
}

// moduleName normalises the name of a module.
func moduleName(s string) string {
	s = strings.TrimPrefix(s, "node:")
	switch s {
	case "test", "module", "process":
		if s == "process" {
			return s
		}
		return "node:" + s // without the prefix, these names could mean something else
	}
	return strings.TrimSuffix(s, "/strict")
}

// declares reads "x = path" and "{a, b: c} = path".
func (r *scriptReader) declares(i int) {
	if i >= len(r.tokens) {
		return
	}
	if r.tokens[i].kind == name {
		as := r.tokens[i].text
		if r.is(i+1, "=") {
			r.alias(as, i+2)
		} else {
			r.aliases[as] = "?" + as
		}
		return
	}
	if !r.is(i, "{") || r.pairs[i] < 0 || !r.is(r.pairs[i]+1, "=") {
		return
	}
	of, _ := r.chain(r.pairs[i]+2, 0)
	if of == "" || strings.HasPrefix(of, "?") {
		return
	}
	for j := i + 1; j < r.pairs[i]; j++ {
		if t := r.tokens[j]; t.kind == name && (r.is(j-1, "{") || r.is(j-1, ",")) {
			as := t.text
			if r.is(j+1, ":") && j+2 < r.pairs[i] && r.tokens[j+2].kind == name {
				as = r.tokens[j+2].text
			}
			r.aliases[as] = known(of + "." + t.text)
		}
	}
}

// alias records what a name stands for from here on.
func (r *scriptReader) alias(as string, from int) {
	if r.named(from, "await") {
		from++
	}
	path, _ := r.chain(from, 0)
	if path != "" && !strings.HasPrefix(path, "?") && !strings.HasSuffix(path, "()") {
		r.aliases[as] = path
	} else {
		r.aliases[as] = "?" + as
	}
}

// expression resolves the expression that begins here, and checks how it is used.
func (r *scriptReader) expression(i int) {
	path, end := r.chain(i, 0)
	if path == "" {
		return
	}
	r.loads(i, end, path)
	if end < len(r.tokens) && r.tokens[end].kind == sign {
		switch r.tokens[end].text {
		case "=", "+=", "||=", "&&=", "??=":
			if end > i+1 {
				r.stores(i, end, path)
			} else if !r.is(i-1, ",") && !r.is(i-1, "(") {
				r.alias(r.tokens[i].text, end+1)
			}
		}
	}
	if r.named(i-1, "delete") {
		r.stores(i, end, path)
	}
}

// chain resolves an expression of names, members and calls, like pythonReader.chain.
func (r *scriptReader) chain(i, depth int) (path string, end int) {
	if i >= len(r.tokens) || depth > deepestChain {
		return "", i
	}
	switch t := r.tokens[i]; {
	case t.kind == sign && t.text == "(" && r.pairs[i] > 0:
		inner, at := r.chain(i+1, depth+1)
		if inner == "" || at != r.pairs[i] {
			return "", i
		}
		path, end = inner, at+1
	case t.kind == name && t.text == "await", t.kind == name && t.text == "new":
		return r.chain(i+1, depth+1)
	case t.kind == name && !beforeValue[t.text]:
		path, end = r.base(t.text), i+1
	default:
		return "", i
	}
	for len(path) < longestPath {
		next, at := r.suffix(path, end)
		if at == end {
			break
		}
		path, end = known(next), at
	}
	return path, end
}

func (r *scriptReader) base(word string) string {
	if path, ok := r.aliases[word]; ok {
		return path
	}
	if globals[word] {
		return word
	}
	return "?" + word
}

// known removes the global object from the beginning of a path, unless a global of a runner follows.
func known(path string) string {
	object, rest, ok := strings.Cut(path, ".")
	switch object {
	case "globalThis", "global", "window", "self":
	default:
		return path
	}
	switch member, _, _ := strings.Cut(rest, "."); {
	case ok && runnerGlobals[member]:
		return "globalThis." + rest
	case ok && globals[member]:
		return rest
	}
	return "?" + rest
}

// suffix extends a path by the next member, subscript or call; if there is none, the end does not change.
func (r *scriptReader) suffix(path string, at int) (string, int) {
	optional := r.is(at, "?.")
	switch {
	case (optional || r.is(at, ".")) && at+1 < len(r.tokens) && r.tokens[at+1].kind == name:
		if member := r.tokens[at+1].text; member != "default" {
			path += "." + member
		}
		return path, at + 2
	case r.is(at, "!"): // TypeScript's non-null assertion
		return path, at + 1
	case optional:
		at++
	}
	switch {
	case r.is(at, "[") && r.pairs[at] > 0:
		key, end, ok := r.joined(at + 1)
		if !ok || end != r.pairs[at] {
			key = "[]"
		}
		return path + "." + key, r.pairs[at] + 1
	case r.is(at, "(") && r.pairs[at] > 0:
		if path == "require" || path == "import" || path == "process.getBuiltinModule" {
			if module, end, ok := r.joined(at + 1); ok && end == r.pairs[at] {
				module = moduleName(module)
				r.importsModule(at, module)
				return module, r.pairs[at] + 1
			}
		}
		return path + "()", r.pairs[at] + 1
	}
	return path, at
}
