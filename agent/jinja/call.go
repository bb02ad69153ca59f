package jinja

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// call holds the arguments of a call.
type call struct {
	args  []any
	names []string
	named []any
}

// given reports whether a parameter has an argument.
func (c call) given(i int, name string) bool {
	return i < len(c.args) || slices.Contains(c.names, name)
}

// bind returns arguments in the order of parameters, nil for those that are not given.
func (s *state) bind(what string, c call, parameters ...string) []any {
	if len(c.args) > len(parameters) {
		s.fail("%s takes %d arguments", what, len(parameters))
	}
	out := make([]any, len(parameters))
	copy(out, c.args)
	for i, name := range c.names {
		at := slices.Index(parameters, name)
		if at < len(c.args) {
			s.fail("%s has no argument %s, or it is given twice", what, name)
		}
		out[at] = c.named[i]
	}
	return out
}

// call calls a value.
func (s *state) call(f any, c call) any {
	switch f := f.(type) {
	case *macro:
		return f.call(s, c)
	case method:
		if len(c.names) > 0 {
			s.fail("the method %s with arguments by name", f.name)
		}
		switch of := f.of.(type) {
		case string:
			return s.textMethod(of, f.name, c.args)
		case *Dict:
			return s.dictMethod(of, f.name, c.args)
		}
		s.fail("the method %s of %s", f.name, kind(f.of))
	case function:
		return s.function(string(f), c)
	case *loop:
		s.fail("a recursive loop")
	case undefined:
		s.fail("%s, and cannot be called", f.why)
	}
	s.fail("%s cannot be called", kind(f))
	return nil
}

func (s *state) function(name string, c call) any {
	switch name {
	case "range":
		return s.span(c)
	case "dict", "namespace":
		d := NewDict()
		if len(c.args) > 0 {
			from, ok := c.args[0].(*Dict)
			if !ok || len(c.args) > 1 {
				s.fail("%s of anything but a dict", name)
			}
			for _, k := range from.keys {
				d.Set(k, from.values[same(k)])
			}
		}
		for i, key := range c.names {
			d.Set(key, c.named[i])
		}
		if name == "dict" {
			return d
		}
		for _, key := range d.keys {
			if text, _ := key.(string); strings.HasPrefix(text, "_") {
				s.fail("the attribute %s", text)
			}
		}
		return &namespace{d}
	case "raise_exception":
		panic(fmt.Errorf("%w: %s", ErrRaised, s.text(s.bind(name, c, "message")[0])))
	}
	format, ok := s.bind(name, c, "format")[0].(string)
	if !ok {
		s.fail("strftime_now without a format")
	}
	return s.strftime(format)
}

// strftime formats the time as the C library does in the C locale.
func (s *state) strftime(format string) string {
	var b strings.Builder
	for format != "" {
		before, after, found := strings.Cut(format, "%")
		b.WriteString(before)
		if !found {
			break
		}
		n := 1
		if strings.HasPrefix(after, "-") {
			n = 2
		}
		layout, ok := map[string]string{
			"d": "02", "-d": "2", "m": "01", "-m": "1", "Y": "2006", "y": "06", "H": "15", "M": "04", "S": "05", "B": "January",
			"b": "Jan", "A": "Monday", "a": "Mon", "I": "03", "p": "PM", "j": "002", "%": "%",
		}[after[:min(n, len(after))]]
		if !ok {
			s.fail("strftime_now with %%%s", after[:min(n, len(after))])
		}
		b.WriteString(s.now.Format(layout))
		format = after[n:]
	}
	return b.String()
}

func (s *state) span(c call) any {
	bounds := []int64{0, 0, 1}
	if n := len(c.args); n < 1 || n > 3 || len(c.names) > 0 {
		s.fail("range with %d arguments", n)
	}
	for i, v := range c.args {
		n, ok := whole(v)
		if !ok || n < -exact || n > exact {
			s.fail("range of %s: want whole numbers of 32 bits", kind(v))
		}
		bounds[i] = n
	}
	if len(c.args) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	out := view{}
	for at := bounds[0]; bounds[2] > 0 && at < bounds[1] || bounds[2] < 0 && at > bounds[1]; at += bounds[2] {
		if out = append(out, at); len(out) > 100_000 {
			s.fail("a range beyond the sandbox's 100000")
		}
	}
	if bounds[2] == 0 {
		s.fail("a range by steps of 0")
	}
	return out
}

var (
	textMethods = strings.Fields(`capitalize casefold center count encode endswith expandtabs find format format_map index
		isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join
		ljust lower lstrip maketrans partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip
		split splitlines startswith strip swapcase title translate upper zfill`)
	dictMethods = strings.Fields("copy fromkeys get items keys values clear pop popitem setdefault update")
	listMethods = strings.Fields("copy count index append clear extend insert pop remove reverse sort")
	// numberMethods are the methods of numbers, none of which is implemented.
	numberMethods = strings.Fields(`as_integer_ratio bit_count bit_length conjugate denominator from_bytes fromhex hex imag
		is_integer numerator real to_bytes`)
	// unsafe are the methods that the sandbox hides.
	unsafe = strings.Fields("clear pop popitem setdefault update append extend insert remove reverse sort")
	// methods are those that a template may call. The unsafe ones fail when they are called.
	methods = append(strings.Fields(`capitalize count endswith find format items keys values get join lower lstrip replace
		rstrip split startswith strip title upper`), unsafe...)
)

// hasMethod reports whether Python's object has a method.
func hasMethod(v any, name string) bool {
	switch v.(type) {
	case string:
		return slices.Contains(textMethods, name)
	case *Dict:
		return slices.Contains(dictMethods, name)
	case List:
		return slices.Contains(listMethods, name)
	}
	return name == "count" || name == "index"
}

func (s *state) dictMethod(d *Dict, name string, args []any) any {
	switch {
	case name == "get" && len(args) > 0 && len(args) < 3 && hashable(args[0]):
		if v, ok := d.Get(args[0]); ok {
			return v
		}
		return append(args, nil)[1]
	case len(args) == 0 && (name == "items" || name == "keys" || name == "values"):
		s.spend(len(d.keys))
		out := view(d.items())
		for i := range out {
			if name != "items" {
				out[i] = out[i].(tuple)[len(name)/6] // keys have 4 letters, values 6
			}
		}
		return out
	}
	s.fail("the method %s of a dict", name)
	return nil
}

// texts returns the arguments, which must be strings, and between least and most in number.
func (s *state) texts(name string, args []any, least, most int) []string {
	if len(args) < least || len(args) > most {
		s.fail("the method %s with %d arguments", name, len(args))
	}
	out := make([]string, len(args))
	for i, v := range args {
		text, ok := v.(string)
		if !ok {
			s.fail("the method %s with %s", name, kind(v))
		}
		out[i] = text
	}
	return out
}

func (s *state) textMethod(v, name string, args []any) any {
	s.spend(len(v) / 16)
	switch name {
	case "strip", "lstrip", "rstrip":
		if len(args) == 1 && args[0] == nil {
			args = nil
		}
		return strip(v, name, s.texts(name, args, 0, 1))
	case "split":
		return s.split(v, args)
	case "startswith", "endswith":
		if len(args) == 1 && isType[tuple](args[0]) {
			return slices.ContainsFunc(args[0].(tuple), func(one any) bool { return truth(s.textMethod(v, name, []any{one})) })
		}
		part := s.texts(name, args, 1, 1)[0]
		return name[0] == 's' && strings.HasPrefix(v, part) || name[0] == 'e' && strings.HasSuffix(v, part)
	case "upper", "lower", "capitalize", "title":
		s.texts(name, args, 0, 0)
		return s.cased(v, name)
	case "replace":
		a := s.texts(name, args, 2, 2)
		s.spend(strings.Count(v, a[0]) * len(a[1]))
		return s.sized(strings.ReplaceAll(v, a[0], a[1]))
	case "find", "count":
		part := s.texts(name, args, 1, 1)[0]
		if name == "count" {
			return int64(strings.Count(v, part))
		}
		at := strings.Index(v, part)
		return int64(len([]rune(v[:max(at, 0)])) + min(at, 0))
	case "join":
		if len(args) == 1 {
			return s.sized(strings.Join(s.texts(name, s.items(args[0]), 0, mostWork), v))
		}
	case "format":
		return s.format(v, args)
	}
	s.fail("the method %s of a string", name)
	return nil
}

func strip(v, name string, chars []string) string {
	cut := isSpace
	if len(chars) > 0 {
		cut = func(r rune) bool { return strings.ContainsRune(chars[0], r) }
	}
	if name != "rstrip" {
		v = strings.TrimLeftFunc(v, cut)
	}
	if name != "lstrip" {
		v = strings.TrimRightFunc(v, cut)
	}
	return v
}

func (s *state) split(v string, args []any) any {
	most := int64(-1)
	if len(args) == 2 {
		var ok bool
		if most, ok = whole(args[1]); !ok || args[0] == nil {
			s.fail("split with a limit that is %s", kind(args[1]))
		}
		args = args[:1]
	}
	var parts []string
	if len(args) == 0 || args[0] == nil {
		parts = strings.FieldsFunc(v, isSpace)
	} else {
		sep := s.texts("split", args, 1, 1)[0]
		if sep == "" {
			s.fail("split at nothing")
		}
		n := -1
		if most >= 0 {
			n = int(min(most, mostWork)) + 1
		}
		parts = strings.SplitN(v, sep, n)
	}
	s.spend(len(parts))
	out := List{}
	for _, part := range parts {
		out = append(out, part)
	}
	return out
}

// cased changes the case of letters. Beyond ASCII it supports lower only, except for İ, which becomes two characters,
// and Σ, whose lower case depends on its position in the word.
func (s *state) cased(v, name string) string {
	for _, r := range v {
		if r >= 0x80 && (name != "lower" || r == 'İ' || r == 'Σ') {
			s.fail("%s of letters beyond ASCII", name)
		}
	}
	switch name {
	case "upper":
		return strings.ToUpper(v)
	case "lower":
		return strings.ToLower(v)
	case "capitalize":
		return strings.ToUpper(v[:min(1, len(v))]) + strings.ToLower(v[min(1, len(v)):])
	}
	after := false
	return strings.Map(func(r rune) rune {
		defer func() { after = unicode.IsLetter(r) }()
		if after {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, v)
}

// format is Python's, for {} only.
func (s *state) format(v string, args []any) string {
	parts := strings.Split(v, "{}")
	if len(parts)-1 > len(args) {
		s.fail("format with %d arguments for %d {}", len(args), len(parts)-1)
	}
	var b strings.Builder
	for i, part := range parts {
		if strings.ContainsAny(part, "{}") {
			s.fail("format with more than {} in %s", strconv.Quote(v))
		}
		b.WriteString(part)
		if i+1 < len(parts) {
			b.WriteString(s.text(args[i]))
		}
	}
	return s.sized(b.String())
}
