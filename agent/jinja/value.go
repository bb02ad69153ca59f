package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Values are nil for None, bool, int64, float64, string, [List], [*Dict], and what follows.
type (
	// List is a list of Python.
	List  []any
	tuple []any
	// undefined is what a variable or attribute is that does not exist.
	undefined struct{ why string }
	// markup is a text that was escaped, or declared safe. It can only be written.
	markup string
	// bigint is a whole number beyond 64 bits. It can only be written.
	bigint string
	// view are the keys, values or items of a dict.
	view []any
	// iterator gives its values once.
	iterator struct{ next func() (any, bool) }
	// span is the range of a loop, as a value that cannot be written.
	span      []any
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

// NewDict returns a dict of keys and values in turns. Keys are strings here.
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
		if k == math.Trunc(k) && math.Abs(k) < 1<<62 {
			return int64(k)
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

func (d *Dict) get(key any) (any, bool) {
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
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	}
	n, ok := length(v)
	return !ok || n > 0
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
	case List:
		return len(v), true
	case tuple:
		return len(v), true
	case view:
		return len(v), true
	case span:
		return len(v), true
	case *Dict:
		return len(v.keys), true
	case *loop:
		return v.length(), true
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

// real returns a number as a float, and whether it is a float in Python, too.
func real(v any) (f float64, float bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, false
		}
	case int64:
		return float64(v), false
	case float64:
		return v, true
	}
	return 0, false
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
		_, ok := b.(undefined)
		return ok
	case List:
		y, ok := b.(List)
		return ok && slices.EqualFunc(x, y, s.equal)
	case tuple:
		y, ok := b.(tuple)
		return ok && slices.EqualFunc(x, y, s.equal)
	case *Dict:
		y, ok := b.(*Dict)
		return ok && len(x.keys) == len(y.keys) && !slices.ContainsFunc(x.keys, func(k any) bool {
			v, ok := y.get(k)
			return !ok || !s.equal(x.values[same(k)], v)
		})
	case *loop, *macro, *namespace, *iterator:
		return a == b
	case view, span, method, function:
		s.refuse("a comparison with %s", kind(a))
	}
	if !hashable(b) {
		return false
	}
	if isNumber(a) && isNumber(b) {
		i, whole1 := whole(a)
		j, whole2 := whole(b)
		x, _ := real(a)
		y, _ := real(b)
		return whole1 && whole2 && i == j || !(whole1 && whole2) && x == y
	}
	return same(a) == same(b)
}

// text is Python's str.
func (s *state) text(v any) string {
	switch v := v.(type) {
	case undefined:
		return ""
	case string:
		return v
	case markup:
		return string(v)
	}
	var b strings.Builder
	s.repr(&b, v, 0)
	return b.String()
}

// repr is Python's.
func (s *state) repr(b *strings.Builder, v any, depth int) {
	s.spend(1)
	if depth > deepest {
		s.refuse("a value that is nested too deeply")
	}
	join := func(open, end string, items []any) {
		b.WriteString(open)
		for i, v := range items {
			if i > 0 {
				b.WriteString(", ")
			}
			s.repr(b, v, depth+1)
		}
		b.WriteString(end)
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		b.WriteString(map[bool]string{true: "True", false: "False"}[v])
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case bigint:
		b.WriteString(string(v))
	case float64:
		b.WriteString(floatText(v))
	case string:
		s.quote(b, v)
	case undefined:
		b.WriteString("Undefined")
	case List:
		join("[", "]", v)
	case tuple:
		end := ")"
		if len(v) == 1 {
			end = ",)"
		}
		join("(", end, v)
	case *Dict:
		b.WriteByte('{')
		for i, k := range v.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			s.repr(b, k, depth+1)
			b.WriteString(": ")
			s.repr(b, v.values[same(k)], depth+1)
		}
		b.WriteByte('}')
	default:
		s.refuse("%s as a text", kind(v))
	}
}

// floatText is Python's repr of a float.
func floatText(f float64) string {
	switch a := math.Abs(f); {
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(f, 'f', -1, 64)), "+")
	case math.IsNaN(f):
		return "nan"
	case a != 0 && (a < 1e-4 || a >= 1e16):
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// quote writes Python's repr of a string.
func (s *state) quote(b *strings.Builder, text string) {
	mark := '\''
	if strings.Contains(text, "'") && !strings.Contains(text, `"`) {
		mark = '"'
	}
	b.WriteRune(mark)
	for _, r := range text {
		at := strings.IndexRune("\n\r\t\\", r)
		switch {
		case at >= 0:
			b.WriteString([]string{`\n`, `\r`, `\t`, `\\`}[at])
		case r == mark:
			b.WriteByte('\\')
			b.WriteRune(r)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case !unicode.In(r, unicode.C, unicode.Z):
			s.refuse("the character %U, which Unicode may have gained meanwhile, in the text of a list or dict", r)
		case r < 0x100:
			b.WriteString(`\x` + hex(r, 2))
		case r < 0x10000:
			b.WriteString(`\u` + hex(r, 4))
		default:
			b.WriteString(`\U` + hex(r, 8))
		}
	}
	b.WriteRune(mark)
}

func hex(r rune, digits int) string {
	text := strconv.FormatInt(int64(r), 16)
	return strings.Repeat("0", max(0, digits-len(text))) + text
}

// isSpace reports what Python takes for a space.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// iterate returns a function that gives a value's items in turn.
func (s *state) iterate(v any) func() (any, bool) {
	var items []any
	switch v := v.(type) {
	case *iterator:
		return v.next
	case undefined:
	case string:
		for _, r := range v {
			items = append(items, string(r))
		}
	case List:
		items = v
	case tuple:
		items = v
	case view:
		items = v
	case span:
		items = v
	case *Dict:
		items = v.keys
	default:
		if iterable(v) {
			s.refuse("a loop over %s", kind(v))
		}
		s.fail("%s is not iterable", kind(v))
	}
	i := -1
	return func() (any, bool) {
		if i++; i >= len(items) {
			return nil, false
		}
		s.spend(1)
		return items[i], true
	}
}

func iterable(v any) bool {
	switch v.(type) {
	case *iterator, undefined, string, markup, List, tuple, view, span, *Dict, *loop:
		return true
	}
	return false
}

// items returns all of a value's items.
func (s *state) items(v any) []any {
	var out []any
	next := s.iterate(v)
	for item, ok := next(); ok; item, ok = next() {
		out = append(out, item)
	}
	return out
}
