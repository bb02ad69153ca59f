package jinja

import (
	"iter"
	"math"
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Values are nil for None, bool, int64, float64, string, [List], [*Dict], and what follows.
type (
	// List is a list of Python.
	List  []any
	tuple []any
	// undefined is the value of a variable or attribute that does not exist.
	undefined struct{ why string }
	// markup is a text that was escaped, or declared safe. It can only be written.
	markup string
	// bigint is a whole number beyond 64 bits. It can only be written.
	bigint string
	// view are the keys, values or items of a dict, or a range of numbers. It can be iterated over.
	view []any
	// iterator gives its values once, like a generator of Python, but computes them in advance. taken is set by a reader
	// that would read it lazily in Python: what is left for another reader is then not known.
	iterator struct {
		rest  []any
		taken bool
	}
	namespace struct{ vars *Dict }
	method    struct {
		of   any
		name string
	}
	function string
)

// Dict is a dict of Python: it keeps the order of its keys.
type Dict struct {
	keys   []any
	values map[any]any
}

// NewDict returns a dict of alternating keys and values. Keys are strings here.
func NewDict(pairs ...any) *Dict {
	d := &Dict{values: map[any]any{}}
	for i := 0; i+1 < len(pairs); i += 2 {
		d.Set(pairs[i], pairs[i+1])
	}
	return d
}

// same returns the key under which Python keeps a key: 1, 1.0 and True are one.
func same(key any) any {
	switch k := key.(type) {
	case bool:
		if k {
			return int64(1)
		}
		return int64(0)
	case float64:
		switch {
		case k != math.Trunc(k) || math.IsInf(k, 0):
		case k >= -1<<63 && k < 1<<63:
			return int64(k)
		default:
			return bigint(strconv.FormatFloat(k, 'f', 0, 64))
		}
	case markup:
		return string(k)
	}
	return key
}

// Set sets a member. A key is a string here.
func (d *Dict) Set(key, value any) {
	k := same(key)
	if _, ok := d.values[k]; !ok {
		d.keys = append(d.keys, key)
	}
	d.values[k] = value
}

// Get returns a member.
func (d *Dict) Get(key any) (any, bool) {
	if !hashable(key) {
		return nil, false
	}
	v, ok := d.values[same(key)]
	return v, ok
}

func (d *Dict) items() []any {
	out := make([]any, len(d.keys))
	for i, k := range d.keys {
		out[i] = tuple{k, d.values[same(k)]}
	}
	return out
}

func hashable(v any) bool {
	switch v.(type) {
	case nil, bool, int64, float64, string, markup, bigint:
		return true
	}
	return false
}

// put adds a member to a dict.
func (s *state) put(d *Dict, key, value any) {
	if !hashable(key) {
		s.fail("a key that is %s", kind(key))
	}
	d.Set(key, value)
}

// kind names the type of a value for messages.
func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case bool:
		return "a boolean"
	case int64, float64, bigint:
		return "a number"
	case string, markup:
		return "a string"
	case List:
		return "a list"
	case tuple:
		return "a tuple"
	case *Dict:
		return "a dict"
	case undefined:
		return "undefined (" + v.why + ")"
	case *iterator:
		return "a generator"
	}
	return "an object"
}

func truth(v any) bool {
	if isNumber(v) {
		return real(v) != 0
	}
	n, sized := length(v)
	return v != nil && (!sized || n > 0)
}

// elements returns the elements of a list, a tuple or a view; nil for any other value.
func elements(v any) []any {
	switch v := v.(type) {
	case List:
		return v
	case tuple:
		return v
	case view:
		return v
	}
	return nil
}

// length is Python's len.
func length(v any) (int, bool) {
	switch v := v.(type) {
	case undefined:
		return 0, true
	case string:
		return utf8.RuneCountInString(v), true
	case markup:
		return utf8.RuneCountInString(string(v)), true
	case List, tuple, view:
		return len(elements(v)), true
	case *Dict:
		return len(v.keys), true
	case *loop:
		return len(v.items), true
	}
	return 0, false
}

func isNumber(v any) bool {
	switch v.(type) {
	case bool, int64, float64:
		return true
	}
	return false
}

// real returns a number as a float.
func real(v any) float64 {
	switch v := v.(type) {
	case bool:
		if v {
			return 1
		}
	case int64:
		return float64(v)
	case float64:
		return v
	}
	return 0
}

func whole(v any) (int64, bool) {
	n, ok := same(v).(int64)
	_, float := v.(float64)
	return n, ok && !float
}

// equal is Python's ==.
func (s *state) equal(a, b any) bool {
	switch x := a.(type) {
	case undefined:
		return isType[undefined](b)
	case List, tuple:
		return isType[List](a) == isType[List](b) && isType[tuple](a) == isType[tuple](b) &&
			slices.EqualFunc(elements(a), elements(b), s.equal)
	case *Dict:
		y, ok := b.(*Dict)
		return ok && len(x.keys) == len(y.keys) && !slices.ContainsFunc(x.keys, func(k any) bool {
			v, ok := y.Get(k)
			return !ok || !s.equal(x.values[same(k)], v)
		})
	case *loop, *macro, *namespace, *iterator:
		return a == b
	case view, method, function:
		s.fail("a comparison with %s", kind(a))
	}
	return hashable(b) && same(a) == same(b)
}

// isSpace reports whether Python counts a character as a space.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// iterate yields a value's items in turn.
func (s *state) iterate(v any) iter.Seq[any] {
	it, ok := v.(*iterator)
	if !ok {
		it = &iterator{rest: s.items(v)}
	} else if it.taken {
		s.fail("a generator that something else reads, too")
	}
	return func(yield func(any) bool) {
		for len(it.rest) > 0 {
			v := it.rest[0]
			if it.rest = it.rest[1:]; !yield(v) {
				return
			}
		}
	}
}

func iterable(v any) bool {
	switch v.(type) {
	case *iterator, undefined, string, markup, List, tuple, view, *Dict, *loop:
		return true
	}
	return false
}

// take returns all items of a value at once, where Python would read them one by one as they are needed. A generator
// cannot be read again after that: what would be left of it is not known.
func (s *state) take(v any) []any {
	items := s.items(v)
	if it, ok := v.(*iterator); ok {
		it.taken = true
	}
	return items
}

// items returns all of a value's items.
func (s *state) items(v any) []any {
	var items []any
	switch v := v.(type) {
	case *iterator:
		if v.taken {
			s.fail("a generator that something else reads, too")
		}
		items, v.rest = v.rest, nil
	case undefined:
	case string:
		for _, r := range v {
			items = append(items, string(r))
		}
	case List, tuple, view:
		items = elements(v)
	case *Dict:
		items = v.keys
	default:
		s.fail("a loop over %s", kind(v))
	}
	s.spend(len(items))
	return items
}
