package jinja

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// attribute evaluates v.name: the attribute of Python's object, or else the member of that name.
func (s *state) attribute(v any, name string) any {
	switch v := v.(type) {
	case nil:
	case bool, int64, float64:
		if slices.Contains(numberMethods, name) {
			s.fail("the attribute %s of %s", name, kind(v))
		}
	case *namespace:
		if s.keeping > 0 {
			s.fail("the condition of a loop reads a namespace")
		}
		if value, ok := v.vars.Get(name); ok {
			return value
		}
	case *loop:
		return v.attribute(name)
	case string, List, tuple, *Dict:
		if hasMethod(v, name) {
			if slices.Contains(unsafe, name) {
				return undefined{"the sandbox's method " + name}
			}
			return method{v, name}
		}
		if d, ok := v.(*Dict); ok {
			if value, ok := d.Get(name); ok {
				return value
			}
		}
	default:
		s.fail("the attribute %s of %s", name, kind(v))
	}
	return undefined{"the attribute " + name + " of " + kind(v)}
}

// item evaluates v[key]: a member, or else the attribute of that name.
func (s *state) item(v, key any) any {
	name, named := key.(string)
	at, numbered := whole(key)
	switch v := v.(type) {
	case nil, bool, int64, float64:
	case *Dict:
		value, ok := v.Get(key)
		if ok {
			return value
		}
		named = named && hasMethod(v, name)
	case string, List, tuple:
		n, _ := length(v)
		if at < 0 {
			at += int64(n)
		}
		if text, ok := v.(string); ok && numbered && n == len(text) && at >= 0 && at < int64(n) {
			return text[at : at+1]
		}
		if numbered && at >= 0 && at < int64(n) {
			return s.items(v)[at]
		}
	case *iterator:
		if numbered {
			return undefined{"a generator's item"}
		}
	case *namespace, *loop:
	default:
		s.fail("a member of %s", kind(v))
	}
	if named {
		return s.attribute(v, name)
	}
	return undefined{"a member of " + kind(v)}
}

// slice evaluates v[a:b:c].
func (s *state) slice(v any, bounds [3]any) any {
	var b [3]int64
	for i, bound := range bounds {
		ok := bound == nil
		if !ok {
			b[i], ok = whole(bound)
		}
		if !ok || !isType[string](v) && !isType[List](v) {
			s.fail("a slice of %s by %s", kind(v), kind(bound))
		}
	}
	items := s.items(v)
	n, step := int64(len(items)), b[2]
	if bounds[2] == nil {
		step = 1
	}
	if step != 1 && step != -1 {
		s.fail("a slice by steps of %d", step)
	}
	// within clamps a bound to low and high as Python does; otherwise is the value of a missing bound.
	within := func(i int, otherwise, low, high int64) int64 {
		at := b[i]
		if bounds[i] == nil {
			return otherwise
		} else if at < 0 {
			at += n
		}
		return max(low, min(high, at))
	}
	var out []any
	if step == 1 {
		from, to := within(0, 0, 0, n), within(1, n, 0, n)
		out = slices.Clone(items[from:max(from, to)])
	} else {
		from, to := within(0, n-1, -1, n-1), within(1, -1, -1, n-1)
		out = slices.Clone(items[min(from, to)+1 : from+1])
		slices.Reverse(out)
	}
	if !isType[string](v) {
		return List(out)
	}
	var text strings.Builder
	for _, c := range out {
		text.WriteString(c.(string))
	}
	return text.String()
}

// arithmetic applies an arithmetic operator, or ~, to two values.
func (s *state) arithmetic(op string, a, b any) any {
	n, times := whole(b)
	switch {
	case op == "~":
		return s.sized(s.text(a) + s.text(b))
	case isNumber(a) && isNumber(b):
		return s.number(op, a, b)
	case op == "+" && isType[string](a) && isType[string](b):
		return s.sized(a.(string) + b.(string))
	case op == "+" && isText(a) && isText(b):
		return markup(s.sized(string(s.escape(a) + s.escape(b))))
	case op == "+" && isType[List](a) && isType[List](b):
		s.spend(len(a.(List)) + len(b.(List)))
		return slices.Concat(a.(List), b.(List))
	case op == "*" && isType[string](a) && times && n < mostWork:
		s.spend(int(max(n, 0)) * len(a.(string)))
		return strings.Repeat(a.(string), int(max(n, 0)))
	}
	s.fail("%s %s %s", kind(a), op, kind(b))
	return nil
}

// exact bounds the whole numbers that are computed with, so that no result overflows.
const exact = 1 << 31

func (s *state) number(op string, a, b any) any {
	x, y := real(a), real(b)
	i, whole1 := whole(a)
	j, whole2 := whole(b)
	whole := whole1 && whole2 && max(x, -x, y, -y) < exact
	result := math.NaN() // Python compares that by identity at times, so it is refused
	switch {
	case whole1 && whole2 && !whole:
	case whole && op == "+":
		return i + j
	case whole && op == "-":
		return i - j
	case whole && op == "*":
		return i * j
	case whole && (op == "//" || op == "%") && j != 0:
		rest := (i%j + j) % j
		if op == "%" {
			return rest
		}
		return (i - rest) / j
	case op == "/" && y != 0:
		result = x / y
	case whole:
	case op == "+":
		result = x + y
	case op == "-":
		result = x - y
	case op == "*":
		result = x * y
	}
	if !math.IsNaN(result) {
		return result
	}
	s.fail("%v %s %v", a, op, b)
	return nil
}

// compare applies a comparison operator.
func (s *state) compare(op string, a, b any) bool {
	switch op {
	case "==":
		return s.equal(a, b)
	case "!=":
		return !s.equal(a, b)
	case "in":
		return s.contains(b, a)
	case "not in":
		return !s.contains(b, a)
	}
	n := s.order(a, b)
	return n != 0 && (op[0] == '<') == (n < 0) || n == 0 && len(op) == 2
}

// order compares two numbers or two strings.
func (s *state) order(a, b any) int {
	i, whole1 := same(a).(int64)
	j, whole2 := same(b).(int64)
	n := cmp.Compare(real(a), real(b))
	switch {
	case isType[string](a) && isType[string](b):
		return strings.Compare(a.(string), b.(string))
	case whole1 && whole2:
		return cmp.Compare(i, j)
	case !isNumber(a) || !isNumber(b), n == 0 && !s.equal(a, b): // a large whole number is rounded here, and not in Python
		s.fail("the order of %s and %s", kind(a), kind(b))
	}
	return n
}

// contains is Python's in.
func (s *state) contains(where, what any) bool {
	switch w := where.(type) {
	case string:
		if !isText(what) {
			s.fail("%s in a string", kind(what))
		}
		s.spend(len(w) / 16)
		return strings.Contains(w, s.text(what))
	case *Dict:
		if !hashable(what) && !isType[undefined](what) {
			s.fail("%s in a dict", kind(what))
		}
		_, ok := w.Get(what)
		return ok
	}
	for v := range s.iterate(where) {
		if s.equal(v, what) {
			return true
		}
	}
	return false
}
