package jinja

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// attribute is a dot in a template: what Python's object has of that name, and then its member.
func (s *state) attribute(v any, name string) any {
	switch v := v.(type) {
	case undefined:
		s.fail("%s, and has no attribute %s", v.why, name)
	case nil:
		return undefined{"none has no attribute " + name}
	case *namespace:
		if value, ok := v.vars.get(name); ok {
			return value
		}
		return undefined{"the namespace has no attribute " + name}
	case *loop:
		return v.attribute(name)
	case string, List, tuple, *Dict:
		switch has, safe := hasMethod(v, name); {
		case has && safe:
			return method{v, name}
		case has:
			return undefined{"the sandbox has no method " + name}
		}
		if d, ok := v.(*Dict); ok {
			if value, ok := d.get(name); ok {
				return value
			}
		}
		return undefined{kind(v) + " has no attribute " + name}
	}
	s.refuse("the attribute %s of %s", name, kind(v))
	return nil
}

// item is a subscript: a member, or else what Python's object has of that name.
func (s *state) item(v, key any) any {
	switch v := v.(type) {
	case undefined:
		s.fail("%s, and has no members", v.why)
	case *Dict:
		if value, ok := v.get(key); ok {
			return value
		}
	case string, List, tuple:
		if at, ok := whole(key); ok {
			n, _ := length(v)
			if at < 0 {
				at += int64(n)
			}
			if at < 0 || at >= int64(n) {
				return undefined{kind(v) + " has no such item"}
			}
			if text, ok := v.(string); ok && n == len(text) {
				return text[at : at+1]
			}
			return s.items(v)[at]
		}
	case nil:
	case *iterator, view:
		if _, named := key.(string); !named {
			return undefined{kind(v) + " has no items by number"}
		}
	case *namespace, *loop:
	default:
		s.refuse("a member of %s", kind(v))
	}
	if name, ok := key.(string); ok {
		has, _ := hasMethod(v, name)
		if _, isDict := v.(*Dict); !isDict || has {
			return s.attribute(v, name)
		}
	}
	return undefined{kind(v) + " has no such member"}
}

// slice is v[a:b:c].
func (s *state) slice(v any, bounds [3]any) any {
	var b [3]int64
	var given [3]bool
	for i, bound := range bounds {
		if bound == nil {
			continue
		}
		n, ok := whole(bound)
		if !ok {
			s.fail("a slice by %s", kind(bound))
		}
		b[i], given[i] = n, true
	}
	switch v.(type) {
	case string, List, tuple:
	case markup, span, *Dict:
		s.refuse("a slice of %s", kind(v))
	default:
		s.fail("a slice of %s", kind(v))
	}
	items := s.items(v)
	n, step := int64(len(items)), int64(1)
	if given[2] {
		step = b[2]
	}
	if step == 0 {
		s.fail("a slice by steps of 0")
	}
	low, high := int64(0), n
	if step < 0 {
		low, high = -1, n-1
	}
	from, to := low, high
	if step < 0 {
		from, to = high, low
	}
	for i, at := range []*int64{&from, &to} {
		if given[i] {
			if b[i] < 0 {
				b[i] += n
			}
			*at = max(low, min(high, b[i]))
		}
	}
	out := []any{}
	for at := from; step > 0 && at < to || step < 0 && at > to; at += step {
		out = append(out, items[at])
	}
	switch v.(type) {
	case string:
		var b strings.Builder
		for _, c := range out {
			b.WriteString(c.(string))
		}
		return b.String()
	case tuple:
		return tuple(out)
	}
	return List(out)
}

// arithmetic is an operator on two values.
func (s *state) arithmetic(op string, a, b any) any {
	if isNumber(a) && isNumber(b) {
		i, _ := whole(a)
		j, _ := whole(b)
		x, float1 := real(a)
		y, float2 := real(b)
		if float1 || float2 || op == "/" {
			return s.floats(op, x, y)
		}
		return s.integers(op, i, j)
	}
	if op == "+" && isText(a) && isText(b) && (isType[markup](a) || isType[markup](b)) {
		return markup(s.sized(s.text(s.escape(a)) + s.text(s.escape(b))))
	}
	switch x := a.(type) {
	case markup, bigint:
		s.refuse("%s %s %s", kind(a), op, kind(b))
	case string:
		if y, ok := b.(string); ok && op == "+" {
			return s.sized(x + y)
		}
		if n, ok := whole(b); ok && op == "*" {
			n = max(n, 0)
			s.spend(int(min(n, mostWork)) * len(x))
			return strings.Repeat(x, int(n))
		}
		if _, ok := b.(markup); ok || op == "%" {
			s.refuse("%s %s %s", kind(a), op, kind(b))
		}
	case List:
		if y, ok := b.(List); ok && op == "+" {
			s.spend(len(x) + len(y))
			return List(slices.Concat(x, y))
		}
		if isNumber(b) && op == "*" {
			s.refuse("a list times a number")
		}
	case tuple:
		if _, ok := b.(undefined); !ok {
			s.refuse("a tuple %s %s", op, kind(b))
		}
	case *Dict, int64, bool, view, span, *loop:
		if _, ok := b.(undefined); !ok && b != nil {
			s.refuse("%s %s %s", kind(a), op, kind(b))
		}
	}
	s.fail("%s %s %s", kind(a), op, kind(b))
	return nil
}

func (s *state) floats(op string, x, y float64) any {
	switch {
	case op == "+":
		return x + y
	case op == "-":
		return x - y
	case op == "*":
		return x * y
	case op == "/" && y != 0:
		return x / y
	case op == "/":
		s.fail("a division by zero")
	}
	s.refuse("%s of floats", op)
	return nil
}

func (s *state) integers(op string, i, j int64) any {
	const most = 1 << 31
	if small := func(n int64) bool { return n > -most && n < most }; !small(i) || !small(j) {
		s.refuse("%s of numbers that are large", op)
	}
	switch op {
	case "+":
		return i + j
	case "-":
		return i - j
	case "*":
		return i * j
	case "//", "%":
		if j == 0 {
			s.fail("a division by zero")
		}
		down := i / j
		if i%j != 0 && (i < 0) != (j < 0) {
			down--
		}
		if op == "//" {
			return down
		}
		return i - down*j
	}
	s.refuse("the operator %s", op)
	return nil
}

// compare is a comparison in a template.
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
	return map[string]bool{"<": n < 0, "<=": n <= 0, ">": n > 0, ">=": n >= 0}[op]
}

// order compares what Python can order.
func (s *state) order(a, b any) int {
	if isNumber(a) && isNumber(b) {
		i, whole1 := whole(a)
		j, whole2 := whole(b)
		x, _ := real(a)
		y, _ := real(b)
		switch {
		case math.IsNaN(x) || math.IsNaN(y):
			s.refuse("the order of nan")
		case whole1 && whole2:
			return cmp.Compare(i, j)
		}
		return cmp.Compare(x, y)
	}
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			return strings.Compare(x, y)
		}
	case List, tuple, view, bigint, markup:
		s.refuse("the order of %s and %s", kind(a), kind(b))
	}
	s.fail("%s and %s have no order", kind(a), kind(b))
	return 0
}

// contains is Python's in.
func (s *state) contains(where, what any) bool {
	switch w := where.(type) {
	case string:
		switch v := what.(type) {
		case string:
			s.spend(len(w) / 16)
			return strings.Contains(w, v)
		case markup:
			return strings.Contains(w, string(v))
		}
		s.fail("%s in a string", kind(what))
	case *Dict:
		if !hashable(what) {
			if _, ok := what.(undefined); ok {
				return false
			}
			if _, ok := what.(tuple); ok {
				s.refuse("a tuple in a dict")
			}
			s.fail("%s in a dict", kind(what))
		}
		_, ok := w.get(what)
		return ok
	case markup, *loop:
		s.refuse("%s in %s", kind(what), kind(where))
	}
	next := s.iterate(where)
	for v, ok := next(); ok; v, ok = next() {
		if s.equal(v, what) {
			return true
		}
	}
	return false
}
