package jinja

// check is a test, of a value with arguments.
type check struct {
	arguments int
	holds     func(s *state, v any, args []any) bool
}

// is makes a test of the type of a value.
func is(holds func(any) bool) *check {
	return &check{0, func(_ *state, v any, _ []any) bool { return holds(v) }}
}

// compares makes a test of an operator.
func compares(op string) *check {
	return &check{1, func(s *state, v any, args []any) bool { return s.compare(op, v, args[0]) }}
}

// remainder makes a test of what a division leaves.
func remainder(by, rest int64) *check {
	return &check{0, func(s *state, v any, _ []any) bool { return s.equal(s.arithmetic("%", v, by), rest) }}
}

func isType[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

func isText(v any) bool { return isType[string](v) || isType[markup](v) }

// tests are Jinja's tests ("x is defined"), by name.
var tests = map[string]*check{
	"defined":   is(func(v any) bool { return !isType[undefined](v) }),
	"undefined": is(isType[undefined]),
	"none":      is(func(v any) bool { return v == nil }),
	"boolean":   is(isType[bool]),
	"true":      is(func(v any) bool { return v == true }),
	"false":     is(func(v any) bool { return v == false }),
	"integer":   is(func(v any) bool { return isType[int64](v) || isType[bigint](v) }),
	"float":     is(isType[float64]),
	"number":    is(func(v any) bool { return isNumber(v) || isType[bigint](v) }),
	"string":    is(isText),
	"mapping":   is(isType[*Dict]),
	"iterable":  is(iterable),
	"sequence": {0, func(s *state, v any, _ []any) bool {
		_, sized := length(v)
		if isType[view](v) {
			s.fail("whether %s is a sequence", kind(v))
		}
		return sized && !isType[*loop](v)
	}},
	"callable": is(func(v any) bool {
		return isType[function](v) || isType[method](v) || isType[*macro](v) || isType[undefined](v) || isType[*loop](v)
	}),
	"odd": remainder(2, 1), "even": remainder(2, 0),
	"divisibleby": {1, func(s *state, v any, args []any) bool { return s.equal(s.arithmetic("%", v, args[0]), int64(0)) }},
	"in":          compares("in"), "eq": compares("=="), "equalto": compares("=="), "ne": compares("!="),
	"gt": compares(">"), "greaterthan": compares(">"), "ge": compares(">="),
	"lt": compares("<"), "lessthan": compares("<"), "le": compares("<="),
	"==": compares("=="), "!=": compares("!="), ">": compares(">"), ">=": compares(">="), "<": compares("<"),
	"<=": compares("<="),
}

// test applies a test.
func (s *state) test(name string, v any, c call) bool {
	t := tests[name]
	if t == nil || len(c.args) != t.arguments || len(c.names) > 0 {
		s.fail("there is no test %s of %d arguments", name, len(c.args)+len(c.names))
	}
	return t.holds(s, v, c.args)
}
