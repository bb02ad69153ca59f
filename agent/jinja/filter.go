package jinja

import (
	"math"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

var (
	jinjaFilters = strings.Fields(`abs attr batch capitalize center count d default dictsort e escape filesizeformat first
		float forceescape format groupby indent int items join last length list lower map max min pprint random reject
		rejectattr replace reverse round safe select selectattr slice sort string striptags sum title tojson trim truncate
		unique upper urlencode urlize wordcount wordwrap xmlattr`)
	jinjaTests = strings.Fields(`boolean callable defined divisibleby eq equalto escaped even false filter float ge
		greaterthan gt in integer iterable le lessthan lower lt mapping ne none number odd sameas sequence string test true
		undefined upper`)
)

// filters are the parameters of the filters that are known here.
var filters = map[string][]string{
	"capitalize": {}, "count": {}, "d": {"default_value", "boolean"}, "default": {"default_value", "boolean"},
	"dictsort": {"case_sensitive", "by", "reverse"}, "e": {}, "escape": {}, "first": {}, "indent": {"width", "first", "blank"},
	"int": {"default"}, "items": {}, "join": {"d", "attribute"}, "last": {}, "length": {}, "list": {}, "lower": {}, "map": {},
	"max": {}, "min": {}, "reject": {}, "rejectattr": {}, "replace": {"old", "new", "count"}, "reverse": {}, "safe": {},
	"select": {}, "selectattr": {}, "sort": {"reverse", "case_sensitive", "attribute"}, "string": {}, "abs": {},
	"tojson": {"ensure_ascii", "indent", "separators", "sort_keys"}, "trim": {"chars"}, "unique": {}, "upper": {},
}

// filter applies a filter.
func (s *state) filter(name string, v any, c call) any {
	switch name {
	case "map":
		return s.mapped(v, c)
	case "select", "reject", "selectattr", "rejectattr":
		return s.selected(name, v, c)
	}
	parameters, ok := filters[name]
	if !ok {
		s.fail("there is no filter %s", name)
	}
	a := s.bind("the filter "+name, c, parameters...)
	switch name {
	case "d", "default":
		if _, missing := v.(undefined); missing || truth(a[1]) && !truth(v) {
			if !c.given(0, "default_value") {
				return ""
			}
			return a[0]
		}
		return v
	case "count", "length":
		n, ok := length(v)
		if !ok {
			s.fail("%s has no length", kind(v))
		}
		return int64(n)
	case "tojson":
		return s.toJSON(v, c, a)
	case "int":
		return s.int(v, c, a[0])
	case "abs":
		if f, float := real(v); float {
			return math.Abs(f)
		} else if n, ok := whole(v); ok {
			return max(n, -n)
		}
		s.fail("abs of %s", kind(v))
	case "string":
		if m, ok := v.(markup); ok {
			return m
		}
		return s.text(v)
	case "safe":
		return markup(s.text(v))
	case "e", "escape":
		return s.escape(v)
	case "trim", "upper", "lower", "capitalize", "replace", "indent":
		return s.textFilter(name, v, c, a)
	}
	return s.listFilter(name, v, c, a)
}

func (s *state) escape(v any) markup {
	if m, ok := v.(markup); ok {
		return m
	}
	return markup(s.sized(strings.NewReplacer(
		"&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;").Replace(s.text(v))))
}

func (s *state) textFilter(name string, v any, c call, a []any) any {
	if _, ok := v.(markup); ok {
		s.refuse("%s of a text that is escaped or safe", name)
	}
	text := s.text(v)
	switch name {
	case "trim":
		if a[0] == nil {
			return strip(text, "strip", nil)
		}
		return strip(text, "strip", s.texts(name, a, 1, 1))
	case "replace":
		n := int64(-1)
		if a[2] != nil {
			var ok bool
			if n, ok = whole(a[2]); !ok {
				s.fail("replace %s times", kind(a[2]))
			}
		}
		if !c.given(0, "old") || !c.given(1, "new") {
			s.fail("replace without what and by what")
		}
		return s.replace(text, s.text(a[0]), s.text(a[1]), int(max(n, -1)))
	case "indent":
		if _, ok := v.(string); !ok {
			s.refuse("indent of %s", kind(v))
		}
		return s.indent(text, c, a)
	}
	return s.cased(text, name)
}

func (s *state) indent(text string, c call, a []any) any {
	width, ok := whole(a[0])
	prefix, isText := a[0].(string)
	if !c.given(0, "width") {
		width, ok = 4, true
	}
	if !ok && !isText || width > mostWork {
		s.refuse("indent by %s", kind(a[0]))
	}
	if !isText {
		prefix = strings.Repeat(" ", int(max(width, 0)))
	}
	lines := splitLines(text + "\n")
	s.spend(len(lines) * len(prefix))
	for i, line := range lines {
		if i == 0 && truth(a[1]) || i > 0 && (line != "" || truth(a[2])) {
			lines[i] = prefix + line
		}
	}
	return s.sized(strings.Join(lines, "\n"))
}

func (s *state) toJSON(v any, c call, a []any) any {
	d := &dumps{state: s, ascii: truth(a[0]), sorted: truth(a[3]), comma: ", ", colon: ": "}
	switch indent := a[1].(type) {
	case nil:
	case string:
		d.indented, d.indent = true, indent
	default:
		n, ok := whole(indent)
		if !ok || n > 100 {
			s.refuse("JSON indented by %s", kind(indent))
		}
		d.indented, d.indent = true, strings.Repeat(" ", int(max(n, 0)))
	}
	if d.indented {
		d.comma = ","
	}
	if a[2] != nil {
		pair := s.texts("tojson", s.items(a[2]), 2, 2)
		d.comma, d.colon = pair[0], pair[1]
	}
	d.value(v, 0)
	return s.sized(d.String())
}

var (
	intText = regexp.MustCompile(`^[+-]?\d{1,18}$`)
	decimal = regexp.MustCompile(`^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$`)
)

func (s *state) int(v any, c call, otherwise any) any {
	if !c.given(0, "default") {
		otherwise = int64(0)
	}
	switch v := v.(type) {
	case float64:
		if math.Abs(v) < 1<<62 {
			return int64(v)
		}
		s.refuse("int of %v", v)
	case string:
		text := strings.TrimFunc(v, isSpace)
		if intText.MatchString(text) {
			n, _ := strconv.ParseInt(text, 10, 64)
			return n
		}
		if f, err := strconv.ParseFloat(text, 64); err == nil && decimal.MatchString(text) && math.Abs(f) < 1<<53 {
			return int64(f)
		}
		if strings.ContainsFunc(text, func(r rune) bool { return r >= '0' && r <= '9' || r >= 0x80 }) ||
			regexp.MustCompile(`(?i)^[+-]?(inf|infinity|nan)$`).MatchString(text) {
			s.refuse("int of %q", text)
		}
		return otherwise
	case undefined:
		s.fail("%s, and is no number", v.why)
	}
	if n, ok := whole(v); ok {
		return n
	}
	if _, ok := v.(List); ok || v == nil {
		return otherwise
	}
	s.refuse("int of %s", kind(v))
	return nil
}

func (s *state) listFilter(name string, v any, c call, a []any) any {
	switch name {
	case "join":
		if a[1] != nil {
			v = s.mapped(v, call{names: []string{"attribute"}, named: a[1:]})
		}
		var parts []string
		for _, item := range s.items(v) {
			parts = append(parts, s.sized(s.text(item)))
		}
		return s.sized(strings.Join(parts, s.text(a[0])))
	case "list":
		return List(slices.Clone(s.items(v)))
	case "first":
		if item, ok := s.iterate(v)(); ok {
			return item
		}
		return undefined{"there is no first item"}
	case "last":
		if _, ok := v.(*iterator); ok {
			s.fail("the last of a generator")
		}
		if items := s.items(v); len(items) > 0 {
			return items[len(items)-1]
		}
		return undefined{"there is no last item"}
	case "items":
		return s.pairs(v)
	case "dictsort":
		return s.dictSort(v, c, a)
	case "sort":
		items := slices.Clone(s.items(v))
		key := func(v any) any { return v }
		if a[2] != nil {
			key = s.getter(a[2])
		}
		s.sort(items, s.folded(key, truth(a[1])), truth(a[0]))
		return List(items)
	case "min", "max":
		items := slices.Clone(s.items(v))
		if len(items) == 0 {
			return undefined{"there is no item"}
		}
		s.sort(items, s.folded(func(v any) any { return v }, false), name == "max")
		return items[0]
	case "unique":
		return s.unique(v)
	case "reverse":
		return s.reverse(v)
	}
	s.refuse("the filter %s is not known here", name)
	return nil
}

// generate returns a generator of what step makes of a value's items. Nothing runs before the first is asked for.
func (s *state) generate(v any, step func(any) (any, bool)) *iterator {
	var next func() (any, bool)
	return &iterator{func() (any, bool) {
		if next == nil {
			next = s.iterate(v)
		}
		for {
			item, ok := next()
			if !ok {
				return nil, false
			}
			if out, ok := step(item); ok {
				return out, true
			}
		}
	}}
}

// pairs is the filter items, whose errors come when it is read.
func (s *state) pairs(v any) any {
	return &iterator{sync(func() func() (any, bool) {
		switch v := v.(type) {
		case undefined:
			return s.iterate(v)
		case *Dict:
			return s.iterate(List(v.items()))
		}
		s.fail("items of %s", kind(v))
		return nil
	})}
}

// sync begins an iteration when it is first asked.
func sync(begin func() func() (any, bool)) func() (any, bool) {
	var next func() (any, bool)
	return func() (any, bool) {
		if next == nil {
			next = begin()
		}
		return next()
	}
}

// getter returns a function that follows a path of attributes, as map(attribute=…) does.
func (s *state) getter(path any) func(any) any {
	var parts []any
	switch path := path.(type) {
	case int64:
		parts = []any{path}
	case string:
		for part := range strings.SplitSeq(path, ".") {
			if n, err := strconv.ParseInt(part, 10, 64); err == nil && part[0] != '-' && part[0] != '+' {
				parts = append(parts, n)
			} else {
				parts = append(parts, part)
			}
		}
		if strings.Contains(path, ",") {
			s.refuse("several attributes")
		}
	default:
		s.refuse("an attribute that is %s", kind(path))
	}
	return func(v any) any {
		for _, part := range parts {
			v = s.item(v, part)
		}
		return v
	}
}

func (s *state) mapped(v any, c call) any {
	if len(c.args) == 0 && slices.Contains(c.names, "attribute") {
		a := s.bind("the filter map", c, "attribute", "default")
		get := s.getter(a[0])
		return s.generate(v, func(item any) (any, bool) {
			item = get(item)
			if _, missing := item.(undefined); missing && a[1] != nil {
				item = a[1]
			}
			return item, true
		})
	}
	name, ok := append(c.args, nil)[0].(string)
	if _, known := filters[name]; !ok || !known {
		s.refuse("map by the filter %v", append(c.args, nil)[0])
	}
	rest := call{c.args[1:], c.names, c.named}
	return s.generate(v, func(item any) (any, bool) { return s.filter(name, item, rest), true })
}

func (s *state) selected(name string, v any, c call) any {
	of, args := func(v any) any { return v }, c.args
	if strings.HasSuffix(name, "attr") {
		if len(args) == 0 {
			s.fail("%s without an attribute", name)
		}
		of, args = s.getter(args[0]), args[1:]
	}
	keep := truth
	if len(args) > 0 {
		test, ok := args[0].(string)
		if _, known := tests[test]; !ok || !known {
			s.refuse("%s by the test %v", name, args[0])
		}
		rest := call{args[1:], c.names, c.named}
		keep = func(v any) bool { return s.test(test, v, rest) }
	}
	wanted := strings.HasPrefix(name, "select")
	if !truth(v) {
		v = undefined{}
	}
	return s.generate(v, func(item any) (any, bool) { return item, keep(of(item)) == wanted })
}

// folded returns the key by which strings are sorted without regard to their case.
func (s *state) folded(key func(any) any, exact bool) func(any) any {
	return func(v any) any {
		v = key(v)
		if text, ok := v.(string); ok && !exact {
			return s.cased(text, "lower")
		}
		return v
	}
}

// sort sorts as Python does, which keeps the order of equals.
func (s *state) sort(items []any, key func(any) any, reverse bool) {
	s.spend(len(items) * 8)
	sort.SliceStable(items, func(i, j int) bool {
		n := s.order(key(items[i]), key(items[j]))
		return n < 0 && !reverse || n > 0 && reverse
	})
}

func (s *state) dictSort(v any, c call, a []any) any {
	d, ok := v.(*Dict)
	if !ok {
		s.fail("dictsort of %s", kind(v))
	}
	at := 0
	if by := a[1]; c.given(1, "by") && by != "key" {
		if by != "value" {
			s.fail("dictsort by neither key nor value")
		}
		at = 1
	}
	items := d.items()
	s.sort(items, s.folded(func(v any) any { return v.(tuple)[at] }, truth(a[0])), truth(a[2]))
	return List(items)
}

func (s *state) unique(v any) any {
	seen := NewDict()
	key := s.folded(func(v any) any { return v }, false)
	return s.generate(v, func(item any) (any, bool) {
		k := key(item)
		if !hashable(k) {
			s.refuse("unique of %s", kind(item))
		}
		_, known := seen.get(k)
		seen.Set(k, true)
		return item, !known
	})
}

func (s *state) reverse(v any) any {
	if !iterable(v) {
		s.fail("reverse of %s", kind(v))
	}
	items := slices.Clone(s.items(v))
	slices.Reverse(items)
	switch v.(type) {
	case string:
		return s.slice(v, [3]any{nil, nil, int64(-1)})
	case *iterator:
		return List(items)
	case List, tuple, *Dict, span, view:
		return &iterator{s.iterate(List(items))}
	}
	s.refuse("reverse of %s", kind(v))
	return nil
}
