package jinja

import (
	"slices"
	"strconv"
)

type (
	// expr is a compiled expression.
	expr func(*scope) any
	// stmt is a compiled statement. It returns whether a loop is to be left or continued.
	stmt func(*scope) flow
	flow int
)

const (
	goOn flow = iota
	breakLoop
	continueLoop
)

// parser compiles a template into functions. It is jinja2's parser without the tags that chat templates do not use.
type parser struct {
	tokens []token
	at     int
	names  *symbols
	// later finds out the hidden names of blocks, once all names are known.
	later []func()
	// unknown are the filters and tests that jinja2 does not have either.
	unknown []string
	// inLoop is set in the body of a loop, in which break and continue are allowed. soft is set in code that may never
	// run, branch in a branch of an if.
	inLoop, soft, branch bool
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) nextToken() token {
	t := p.tokens[p.at]
	p.at = min(p.at+1, len(p.tokens)-1)
	return t
}

// is reports whether the current token is one of some operators or words.
func (p *parser) is(kinds ...string) bool {
	t := p.peek()
	return slices.Contains(kinds, t.kind) || t.kind == kindName && slices.Contains(kinds, t.text)
}

func (p *parser) skip(kind string) bool {
	if !p.is(kind) {
		return false
	}
	p.nextToken()
	return true
}

func (p *parser) want(kind string) token {
	if !p.is(kind) {
		p.refuse("found %s, want %s", describe(p.peek()), kind)
	}
	return p.nextToken()
}

func (p *parser) refuse(format string, args ...any) {
	refuse("line %d: "+format, append([]any{p.peek().line}, args...)...)
}

func describe(t token) string {
	if t.text != "" {
		return strconv.Quote(t.text)
	}
	return t.kind
}

// body parses up to a tag that begins with one of the words in ends, and returns that word.
func (p *parser) body(ends ...string) (stmt, string) {
	var all []stmt
	for {
		t := p.nextToken()
		switch t.kind {
		case kindData:
			all = append(all, func(s *scope) flow { s.write(t.text); return goOn })
		case variableBegin:
			e := p.tuple(true)
			p.want(variableEnd)
			all = append(all, func(s *scope) flow { s.line = t.line; s.write(s.text(e(s))); return goOn })
		case blockBegin:
			if p.is(ends...) {
				return sequence(all), p.nextToken().text
			}
			one := p.statement()
			p.want(blockEnd)
			all = append(all, func(s *scope) flow { s.line = t.line; return one(s) })
		default:
			if t.kind == kindEnd && len(ends) == 0 {
				return sequence(all), ""
			}
			p.refuse("found %s, want %v", describe(t), ends)
		}
	}
}

func sequence(all []stmt) stmt {
	return func(s *scope) flow {
		for _, one := range all {
			if f := one(s); f != goOn {
				return f
			}
		}
		return goOn
	}
}

// block parses the end of a tag, and the body up to a tag that begins with one of the words in ends.
func (p *parser) block(ends ...string) (stmt, string) {
	p.skip(":")
	p.want(blockEnd)
	return p.body(ends...)
}

// own calls parse to parse a block with variables of its own. When the block runs, prepare makes its scope.
func (p *parser) own(function bool, parse func()) (prepare func(*scope) *scope) {
	outer := *p
	p.names, p.soft, p.branch = newSymbols(outer.names), false, false
	if function {
		p.inLoop = false
	}
	names, hidden := p.names, map[string]use(nil)
	p.later = append(p.later, func() { hidden = names.hidden() })
	parse()
	p.names, p.soft, p.branch, p.inLoop = outer.names, outer.soft, outer.branch, outer.inLoop
	return func(s *scope) *scope { return s.inner(hidden) }
}

func (p *parser) statement() stmt {
	t := p.nextToken()
	switch t.text {
	case "if":
		return p.ifs()
	case "for":
		return p.loop()
	case "set":
		return p.set()
	case "macro":
		return p.macro()
	case "filter":
		return p.filterBlock()
	case "generation":
		var run stmt
		prepare := p.own(true, func() { run, _ = p.block("endgeneration") })
		return func(s *scope) flow { s.write(s.capture(prepare(s), run)); return goOn }
	case "break", "continue":
		if !p.inLoop {
			p.refuse("%s without a loop of its own", t.text)
		}
		f := map[string]flow{"break": breakLoop, "continue": continueLoop}[t.text]
		return func(*scope) flow { return f }
	}
	p.refuse("the tag %s is not known here", describe(t))
	return nil
}

func (p *parser) ifs() stmt {
	soft, branch := p.soft, p.branch
	p.soft, p.branch = true, true
	defer func() { p.soft, p.branch = soft, branch }()
	var tests []expr
	var bodies []stmt
	for end := "elif"; end == "elif"; {
		tests = append(tests, p.tuple(false))
		var body stmt
		body, end = p.block("elif", "else", "endif")
		if bodies = append(bodies, body); end == "else" {
			otherwise, _ := p.block("endif")
			tests, bodies = append(tests, constant(true)), append(bodies, otherwise)
		}
	}
	return func(s *scope) flow {
		for i, test := range tests {
			if truth(test(s)) {
				return bodies[i](s)
			}
		}
		return goOn
	}
}

// target parses what is assigned to: a name, several, or an attribute of a namespace.
func (p *parser) target(namespace bool, end string) (assign func(*scope, any), names []string) {
	var all []func(*scope, any)
	several := false
	for !p.is(end, blockEnd, ")") {
		if p.skip("(") {
			one, more := p.target(false, ")")
			p.want(")")
			all, names = append(all, one), append(names, more...)
		} else {
			name := p.want(kindName).text
			if namespace && p.skip(".") {
				all = append(all, p.attribute(name, p.want(kindName).text))
			} else {
				names = append(names, name)
				all = append(all, func(s *scope, v any) { s.vars[name] = v })
			}
		}
		if !p.skip(",") {
			break
		}
		several = true
	}
	if slices.Contains(names, "loop") || len(all) == 0 || slices.ContainsFunc(names, isLiteral) {
		p.refuse("an assignment to %v", names)
	}
	if !several {
		return all[0], names
	}
	return func(s *scope, v any) {
		items := s.items(v)
		if len(items) != len(all) {
			s.fail("%d values for %d names", len(items), len(all))
		}
		for i, one := range all {
			one(s, items[i])
		}
	}, names
}

func isLiteral(name string) bool {
	return slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, name)
}

func (p *parser) attribute(name, attribute string) func(*scope, any) {
	p.names.note(name, read)
	if attribute[0] == '_' {
		p.refuse("the attribute %s", attribute)
	}
	return func(s *scope, v any) {
		ns, ok := s.lookup(name).(*namespace)
		if !ok {
			s.fail("%s is not a namespace", name)
		}
		if s.keeping > 0 {
			s.fail("the condition of a loop changes a namespace")
		}
		ns.vars.Set(attribute, v)
	}
}

func (p *parser) store(name string) {
	how := assigned
	if p.branch {
		how = branched
	}
	p.names.note(name, how)
}

func (p *parser) set() stmt {
	assign, names := p.target(true, "=")
	stored := func() {
		for _, name := range names {
			p.store(name)
		}
	}
	if p.skip("=") {
		value := p.tuple(true)
		stored()
		return func(s *scope) flow { assign(s, value(s)); return goOn }
	}
	stored()
	filter := p.filters(false)
	var run stmt
	prepare := p.own(true, func() { run, _ = p.block("endset") })
	return func(s *scope) flow {
		assign(s, filter(s, s.capture(prepare(s), run)))
		return goOn
	}
}

func (p *parser) filterBlock() stmt {
	filter := p.filters(true)
	var run stmt
	prepare := p.own(true, func() { run, _ = p.block("endfilter") })
	return func(s *scope) flow {
		s.write(s.text(filter(s, s.capture(prepare(s), run))))
		return goOn
	}
}

func (p *parser) loop() stmt {
	line := p.peek().line
	assign, names := p.target(false, "in")
	p.want("in")
	from := p.tuple(false)
	var keep expr
	var run, otherwise stmt
	end := ""
	var filtered func(*scope) *scope
	if p.skip("if") {
		filtered = p.own(false, func() {
			p.declare(names)
			keep = p.expression(true)
			if _, ok := p.names.first["loop"]; ok {
				p.refuse("loop in the condition of a for")
			}
		})
	}
	if p.is("recursive") {
		p.refuse("a recursive loop")
	}
	prepare := p.own(false, func() {
		p.declare(append(names, "loop"))
		p.inLoop = true
		run, end = p.block("endfor", "else")
	})
	if end == "else" {
		alone := p.own(false, func() { otherwise, _ = p.block("endfor") })
		inner := otherwise
		otherwise = func(s *scope) flow { return inner(alone(s)) }
	}
	return func(s *scope) flow {
		l := &loop{state: s.state, items: s.take(from(s))}
		if keep != nil {
			s.keeping++
			l.items = slices.DeleteFunc(slices.Clone(l.items), func(v any) bool {
				in := filtered(s)
				assign(in, v)
				return !truth(keep(in))
			})
			s.keeping--
		}
		ended := false // jinja2 does not count an iteration that break or continue ends
		for i, item := range l.items {
			s.line = line
			s.spend(iteration)
			l.index = i
			in := prepare(s)
			in.vars["loop"] = l
			assign(in, item)
			f := run(in)
			if f == breakLoop {
				break
			}
			ended = ended || f == goOn
		}
		if otherwise != nil && !ended {
			return otherwise(s)
		}
		return goOn
	}
}

// declare records names that are set before the body of a block runs.
func (p *parser) declare(names []string) {
	for _, name := range names {
		p.names.first[name] = read
	}
}

func (p *parser) macro() stmt {
	m := &macro{name: p.want(kindName).text}
	p.store(m.name)
	m.prepare = p.own(true, func() {
		p.want("(")
		for !p.skip(")") {
			if len(m.parameters) > 0 {
				p.want(",")
			}
			name := p.want(kindName).text
			if name == "caller" || slices.Contains(m.parameters, name) {
				p.refuse("the parameter %s", name)
			}
			m.parameters = append(m.parameters, name)
			var value expr
			if p.skip("=") {
				value = p.expression(true)
			} else if n := len(m.defaults); n > 0 && m.defaults[n-1] != nil {
				p.refuse("a parameter without a value after one with it")
			}
			m.defaults = append(m.defaults, value)
		}
		p.declare(m.parameters)
		m.run, _ = p.block("endmacro")
	})
	return func(s *scope) flow {
		own := *m
		own.scope = s
		s.vars[m.name] = &own
		return goOn
	}
}
