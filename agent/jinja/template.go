package jinja

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Template is a parsed template.
type Template struct {
	run    stmt
	hidden map[string]use
}

// ErrUnknown means that a template, or a value that it is given, needs something that is not known here.
var ErrUnknown = errors.New("the chat template cannot be rendered exactly")

// ErrTemplate means that the template fails in Python, too; ErrRaised, that it does so on purpose.
var (
	ErrTemplate = errors.New("the chat template fails")
	ErrRaised   = errors.New("the chat template refuses the conversation")
)

func refuse(format string, args ...any) {
	panic(fmt.Errorf("%w: %s", ErrUnknown, fmt.Sprintf(format, args...)))
}

// caught turns a panic with one of this package's errors into the error.
func caught(err *error) {
	switch v := recover().(type) {
	case nil:
	case error:
		if !errors.Is(v, ErrUnknown) && !errors.Is(v, ErrTemplate) && !errors.Is(v, ErrRaised) {
			panic(v)
		}
		*err = v
	default:
		panic(v)
	}
}

// Parse reads a template. The error wraps [ErrUnknown].
func Parse(source string) (t *Template, err error) {
	defer caught(&err)
	p := &parser{tokens: lex(source), names: newSymbols(nil)}
	t = &Template{}
	t.run, _ = p.body()
	if len(p.unknown) > 0 {
		refuse("the %s is not known here", p.unknown[0])
	}
	for _, find := range p.later {
		find()
	}
	t.hidden = p.names.hidden()
	return t, nil
}

// Bounds of one rendering, because templates are downloaded: steps and bytes together, and nested calls or values.
const (
	mostWork = 1 << 27
	deepest  = 100
	// iteration is the work of one turn of a loop.
	iteration = 128
)

// state is what a rendering has besides variables.
type state struct {
	out  *strings.Builder
	now  time.Time
	line int
	// keeping counts the loops whose condition (for … if) is being evaluated. Python evaluates it while the loop runs,
	// so it must not depend on anything that changes meanwhile.
	keeping int
	work    int
	depth   int // of calls of macros
}

// Render writes the template with variables. now is the time that strftime_now tells. Errors wrap [ErrUnknown],
// [ErrTemplate] or [ErrRaised].
func (t *Template) Render(vars *Dict, now time.Time) (text string, err error) {
	defer caught(&err)
	s := &state{out: &strings.Builder{}, now: now}
	outside := &scope{state: s, vars: map[string]any{}}
	for _, name := range []function{"range", "dict", "namespace", "raise_exception", "strftime_now"} {
		outside.vars[string(name)] = name
	}
	for _, key := range vars.keys {
		outside.vars[s.text(key)] = vars.values[key]
	}
	t.run(outside.inner(t.hidden))
	return s.out.String(), nil
}

// fail ends a rendering that fails in Python, too.
func (s *state) fail(format string, args ...any) {
	panic(fmt.Errorf("%w: line %d: %s", ErrTemplate, s.line, fmt.Sprintf(format, args...)))
}

// spend counts work, so that no template goes on forever.
func (s *state) spend(n int) {
	if s.work += n; s.work > mostWork {
		s.fail("it does more than any chat template should")
	}
}

// sized counts a string that was made.
func (s *state) sized(text string) string {
	s.spend(len(text))
	return text
}

func (s *state) write(text string) { s.out.WriteString(s.sized(text)) }

// capture returns what statements write.
func (s *state) capture(in *scope, run stmt) string {
	before := s.out
	s.out = &strings.Builder{}
	run(in)
	text := s.out.String()
	s.out = before
	return text
}

// macro is a macro with the variables around it.
type macro struct {
	name       string
	parameters []string
	defaults   []expr
	run        stmt
	prepare    func(*scope) *scope
	scope      *scope
}

func (m *macro) call(s *state, c call) any {
	if s.depth++; s.depth > deepest {
		s.fail("calls that are nested too deeply")
	}
	defer func() { s.depth-- }()
	in := m.prepare(m.scope)
	values := s.bind("macro "+m.name, c, m.parameters...)
	for i, name := range m.parameters {
		if in.vars[name] = values[i]; !c.given(i, name) {
			in.vars[name] = undefined{"parameter '" + name + "' was not provided"}
		}
	}
	for i, name := range m.parameters { // defaults see all parameters, those that come later as well
		if m.defaults[i] != nil && !c.given(i, name) {
			in.vars[name] = m.defaults[i](in)
		}
	}
	line := s.line
	text := s.capture(in, m.run)
	s.line = line
	return text
}

// loop is the variable of that name.
type loop struct {
	*state
	items []any
	index int
}

func (l *loop) attribute(name string) any {
	switch name {
	case "index":
		return int64(l.index + 1)
	case "index0":
		return int64(l.index)
	case "first":
		return l.index == 0
	case "last":
		return l.index == len(l.items)-1
	case "length":
		return int64(len(l.items))
	case "previtem":
		if l.index > 0 {
			return l.items[l.index-1]
		}
		return undefined{"there is no previous item"}
	case "nextitem":
		if l.index+1 < len(l.items) {
			return l.items[l.index+1]
		}
		return undefined{"there is no next item"}
	}
	l.fail("loop.%s is not known here", name)
	return nil
}
