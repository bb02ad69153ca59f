package jinja

import (
	"slices"
	"strconv"
)

// tuple parses an expression, or several with commas between them.
func (p *parser) tuple(conditional bool) expr {
	var all []expr
	several := false
	for !p.is(variableEnd, blockEnd, ")") {
		all = append(all, p.expression(conditional))
		if !p.skip(",") {
			break
		}
		several = true
	}
	if !several && len(all) == 1 {
		return all[0]
	}
	if len(all) == 0 {
		p.refuse("found %s, want an expression", describe(p.peek()))
	}
	return func(s *scope) any { return tuple(evaluate(s, all)) }
}

func evaluate(s *scope, all []expr) []any {
	out := make([]any, len(all))
	for i, e := range all {
		out[i] = e(s)
	}
	return out
}

func (p *parser) expression(conditional bool) expr {
	if !conditional {
		return p.or()
	}
	soft, unknown := p.soft, len(p.unknown)
	e := p.or()
	for p.skip("if") {
		p.unknown = p.unknown[:min(unknown, len(p.unknown))]
		yes, no := e, expr(func(*scope) any { return undefined{"no branch of an inline if was taken"} })
		p.soft = true
		test := p.or()
		if p.skip("else") {
			no = p.expression(true)
		}
		e = func(s *scope) any {
			if truth(test(s)) {
				return yes(s)
			}
			return no(s)
		}
	}
	p.soft = soft
	return e
}

func (p *parser) or() expr {
	return p.logic("or", func() expr { return p.logic("and", p.not, false) }, true)
}

// logic parses and, or or: the first operand whose truth decides is the value.
func (p *parser) logic(op string, operand func() expr, decides bool) expr {
	e := operand()
	for p.skip(op) {
		a, b := e, operand()
		e = func(s *scope) any {
			if v := a(s); truth(v) == decides {
				return v
			}
			return b(s)
		}
	}
	return e
}

func (p *parser) not() expr {
	if p.skip("not") {
		e := p.not()
		return func(s *scope) any { return !truth(e(s)) }
	}
	return p.compare()
}

func (p *parser) compare() expr {
	first := p.binary(0)
	var ops []string
	var rest []expr
	for {
		op := p.peek().kind
		switch {
		case p.is("==", "!=", "<", "<=", ">", ">="):
			p.nextToken()
		case p.skip("in"):
			op = "in"
		case p.is("not") && p.tokens[p.at+1].text == "in":
			p.nextToken()
			p.nextToken()
			op = "not in"
		case len(ops) == 0:
			return first
		default:
			return func(s *scope) any {
				left := first(s)
				for i, op := range ops {
					right := rest[i](s)
					if !s.compare(op, left, right) {
						return false
					}
					left = right
				}
				return true
			}
		}
		ops, rest = append(ops, op), append(rest, p.binary(0))
	}
}

// precedence are the operators between two values, the weakest first.
var precedence = [][]string{{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}}

// binary parses a chain of operators of one precedence.
func (p *parser) binary(level int) expr {
	if level == len(precedence) {
		return p.unary(true)
	}
	e := p.binary(level + 1)
	for slices.Contains(precedence[level], p.peek().kind) {
		op, a, b := p.nextToken().kind, e, p.binary(level+1)
		e = func(s *scope) any { return s.arithmetic(op, a(s), b(s)) }
	}
	return e
}

func (p *parser) unary(filtered bool) expr {
	var e expr
	switch {
	case p.is("-", "+"):
		factor := map[string]int64{"-": -1, "+": 1}[p.nextToken().kind]
		operand := p.unary(false)
		e = func(s *scope) any {
			v := operand(s)
			if !isNumber(v) {
				s.fail("a sign before %s", kind(v))
			}
			return s.arithmetic("*", factor, v)
		}
	default:
		e = p.primary()
	}
	e = p.postfix(e)
	for filtered {
		switch {
		case p.is("|"):
			value, filter := e, p.filters(false)
			e = func(s *scope) any { return filter(s, value(s)) }
		case p.skip("is"):
			e = p.test(e)
		case p.is("("):
			e = p.call(e)
		default:
			return e
		}
	}
	return e
}

// commas parses items separated by commas, with an optional comma at the end, up to a closing bracket.
func (p *parser) commas(end string, one func()) {
	for !p.skip(end) {
		one()
		if !p.is(end) {
			p.want(",")
		}
	}
}

func constant(v any) expr { return func(*scope) any { return v } }

func (p *parser) primary() expr {
	t := p.nextToken()
	switch t.kind {
	case kindName:
		switch t.text {
		case "true", "True":
			return constant(true)
		case "false", "False":
			return constant(false)
		case "none", "None":
			return constant(nil)
		case "cycler", "joiner", "lipsum", "self", "varargs", "kwargs", "caller":
			p.refuse("the name %s is not known here", t.text)
		}
		p.names.note(t.text, read)
		return func(s *scope) any { return s.lookup(t.text) }
	case kindString:
		for p.peek().kind == kindString {
			t.text += p.nextToken().text
		}
		return constant(t.text)
	case kindInt:
		n, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			p.refuse("the number %s", t.text)
		}
		return constant(n)
	case kindFloat:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			p.refuse("the number %s", t.text)
		}
		return constant(f)
	case "(":
		if p.skip(")") {
			return constant(tuple{})
		}
		e := p.tuple(true)
		p.want(")")
		return e
	case "[":
		var all []expr
		p.commas("]", func() { all = append(all, p.expression(true)) })
		return func(s *scope) any { return List(evaluate(s, all)) }
	case "{":
		return p.dict()
	}
	refuse("line %d: unexpected %s", t.line, describe(t))
	return nil
}

func (p *parser) dict() expr {
	var keys, values []expr
	p.commas("}", func() {
		keys = append(keys, p.expression(true))
		p.want(":")
		values = append(values, p.expression(true))
	})
	return func(s *scope) any {
		d := NewDict()
		for i, key := range keys {
			k := key(s)
			s.put(d, k, values[i](s))
		}
		return d
	}
}

func (p *parser) postfix(e expr) expr {
	for {
		value := e
		switch {
		case p.skip("."):
			t := p.nextToken()
			switch {
			case t.kind == kindInt:
				n, _ := strconv.ParseInt(t.text, 10, 64)
				e = func(s *scope) any { return s.item(value(s), n) }
			case t.kind != kindName || len(t.text) > 1 && t.text[:2] == "__":
				p.refuse("the attribute %s", describe(t))
			case p.is("(") && !slices.Contains(methods, t.text):
				p.refuse("the method %s is not known here", t.text)
			default:
				e = func(s *scope) any { return s.attribute(value(s), t.text) }
			}
		case p.skip("["):
			e = p.subscript(value)
		case p.is("("):
			e = p.call(value)
		default:
			return e
		}
	}
}

func (p *parser) subscript(value expr) expr {
	var parts [3]expr
	n := 0
	for ; n < 3 && !p.is("]"); n++ {
		if !p.is(":") {
			parts[n] = p.expression(true)
		}
		if !p.skip(":") {
			break
		}
	}
	slice := n > 0 || p.tokens[p.at-1].kind == ":"
	p.want("]")
	if !slice {
		if parts[0] == nil {
			p.refuse("an empty subscript")
		}
		return func(s *scope) any { return s.item(value(s), parts[0](s)) }
	}
	return func(s *scope) any {
		v := value(s)
		var bounds [3]any
		for i, e := range parts {
			if e != nil {
				bounds[i] = e(s)
			}
		}
		return s.slice(v, bounds)
	}
}

// arguments are those of a call.
type arguments struct {
	list  []expr
	names []string
	named []expr
}

func (a *arguments) evaluate(s *scope) call {
	return call{evaluate(s, a.list), a.names, evaluate(s, a.named)}
}

func (p *parser) arguments() *arguments {
	a := &arguments{}
	p.want("(")
	p.commas(")", func() {
		switch {
		case p.is("*", "**"):
			p.refuse("%s in a call", p.peek().kind)
		case p.peek().kind == kindName && p.tokens[p.at+1].kind == "=":
			name := p.nextToken().text
			p.nextToken()
			if slices.Contains(a.names, name) {
				p.refuse("the argument %s twice", name)
			}
			a.names, a.named = append(a.names, name), append(a.named, p.expression(true))
		case len(a.names) > 0:
			p.refuse("an argument without a name after one with it")
		default:
			a.list = append(a.list, p.expression(true))
		}
	})
	return a
}

func (p *parser) call(callee expr) expr {
	a := p.arguments()
	return func(s *scope) any {
		f := callee(s)
		return s.call(f, a.evaluate(s))
	}
}

// filters parses a chain of filters. If begun is set, the first one has no pipe in front of it.
func (p *parser) filters(begun bool) func(*scope, any) any {
	run := func(_ *scope, v any) any { return v }
	for begun || p.skip("|") {
		begun = false
		name, a := p.want(kindName).text, &arguments{}
		if p.is("(") {
			a = p.arguments()
		}
		p.known("filter", name, filters[name] != nil, jinjaFilters)
		before := run
		run = func(s *scope, v any) any {
			v = before(s, v)
			return s.filter(name, v, a.evaluate(s))
		}
	}
	return run
}

// known refuses a filter or test that is not implemented here. One that jinja2 does not have either is noted as
// unknown, except where jinja2 fails only once it is used.
func (p *parser) known(what, name string, here bool, theirs []string) {
	switch {
	case here:
	case slices.Contains(theirs, name):
		p.refuse("the %s %s is not known here", what, name)
	case !p.soft:
		p.unknown = append(p.unknown, what+" "+name)
	}
}

func (p *parser) test(value expr) expr {
	negated := p.skip("not")
	name, a := p.want(kindName).text, &arguments{}
	switch {
	case p.is("("):
		a = p.arguments()
	case (slices.Contains([]string{kindName, kindString, kindInt, kindFloat}, p.peek().kind) || p.is("[", "{")) &&
		!p.is("else", "or", "and"):
		if p.is("is") {
			p.refuse("a test of a test")
		}
		a.list = []expr{p.postfix(p.primary())}
	}
	p.known("test", name, tests[name] != nil, jinjaTests)
	return func(s *scope) any {
		v := value(s)
		return s.test(name, v, a.evaluate(s)) != negated
	}
}
