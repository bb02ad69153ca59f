package jinja

import (
	"math"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// jinjaFilters and jinjaTests are the filters and tests of jinja2 that are not implemented here.
var (
	jinjaFilters = strings.Fields(`attr batch center filesizeformat float forceescape groupby pprint random round
		slice striptags sum title truncate urlencode urlize wordcount wordwrap xmlattr`)
	jinjaTests = strings.Fields("escaped filter lower sameas test upper")
)

// filters are the parameters of the filters that are known here.
var filters = map[string][]string{
	"abs": {}, "capitalize": {}, "count": {}, "d": {"default_value", "boolean"}, "default": {"default_value", "boolean"},
	"dictsort": {}, "e": {}, "escape": {}, "first": {}, "format": {}, "indent": {"width", "first", "blank"},
	"int": {"default"}, "items": {}, "join": {"d", "attribute"}, "last": {}, "length": {}, "list": {}, "lower": {},
	"map": {}, "max": {}, "min": {}, "reject": {}, "rejectattr": {}, "replace": {"old", "new"}, "reverse": {},
	"safe": {}, "select": {}, "selectattr": {}, "sort": {"reverse", "case_sensitive", "attribute"},
	"string": {}, "trim": {"chars"},
	"tojson": {"ensure_ascii", "indent", "separators", "sort_keys"}, "unique": {}, "upper": {},
}

// filter applies a filter.
func (s *state) filter(name string, v any, c call) any {
	parameters, ok := filters[name]
	if !ok {
		s.fail("there is no filter %s", name)
	}
	switch name {
	case "map":
		return s.mapped(v, c)
	case "select", "reject", "selectattr", "rejectattr":
		return s.selected(name, v, c)
	case "format":
		return s.percent(v, c)
	}
	a := s.bind("the filter "+name, c, parameters...)
	switch name {
	case "d", "default":
		switch {
		case !isType[undefined](v) && (!truth(a[1]) || truth(v)):
			return v
		case !c.given(0, "default_value"):
			return ""
		}
		return a[0]
	case "count", "length":
		n, ok := length(v)
		if !ok {
			s.fail("the length of %s", kind(v))
		}
		return int64(n)
	case "items", "dictsort":
		return s.dictFilter(name, v)
	case "tojson":
		return s.toJSON(v, a)
	case "int":
		return s.int(v, c, a[0])
	case "abs":
		if n, ok := whole(v); ok {
			return max(n, -n)
		} else if f, ok := v.(float64); ok {
			return math.Abs(f)
		}
		s.fail("abs of %s", kind(v))
	case "string", "safe", "e", "escape":
		return s.marked(name, v)
	case "trim", "upper", "lower", "capitalize", "replace", "indent":
		if isType[markup](v) || name == "indent" && !isType[string](v) {
			s.fail("%s of %s", name, kind(v))
		}
		return s.textFilter(name, s.text(v), c, a)
	}
	if name == "join" && !c.given(0, "d") {
		a[0] = ""
	}
	return s.listFilter(name, v, a)
}

// percent is Python's % of a text, with %s alone.
func (s *state) percent(v any, c call) any {
	format, ok := v.(string)
	if !ok || len(c.names) > 0 {
		s.fail("format of %s, or with names", kind(v))
	}
	var b strings.Builder
	for args := c.args; ; {
		before, after, found := strings.Cut(format, "%")
		b.WriteString(before)
		switch {
		case !found && len(args) == 0:
			return s.sized(b.String())
		case strings.HasPrefix(after, "%"):
			b.WriteByte('%')
		case found && strings.HasPrefix(after, "s") && len(args) > 0 && !isType[markup](args[0]):
			b.WriteString(s.text(args[0]))
			args = args[1:]
		default:
			s.fail("the format %q with %d values", v, len(c.args))
		}
		format = after[1:]
	}
}

// marked applies the filters that can make a value markup, which + and repr distinguish from other text.
func (s *state) marked(name string, v any) any {
	switch {
	case name == "safe":
		return markup(s.text(v))
	case name == "string" && !isType[markup](v):
		return s.text(v)
	}
	return s.escape(v)
}

func (s *state) escape(v any) markup {
	if m, ok := v.(markup); ok {
		return m
	}
	return markup(s.sized(strings.NewReplacer(
		"&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;").Replace(s.text(v))))
}

func (s *state) textFilter(name, text string, c call, a []any) any {
	switch name {
	case "trim":
		return s.textMethod(text, "strip", a)
	case "replace":
		if len(c.args) != 2 {
			s.fail("replace without two arguments")
		}
		return s.textMethod(text, name, []any{s.text(a[0]), s.text(a[1])})
	case "indent":
		prefix, isText := a[0].(string)
		width, ok := whole(a[0])
		if !c.given(0, "width") {
			width, ok = 4, true
		}
		if !ok && !isText || width > 100 {
			s.fail("indent by %s", kind(a[0]))
		}
		prefix += strings.Repeat(" ", int(max(width, 0)))
		if strings.ContainsAny(text, "\v\f\r\x1c\x1d\x1e\u0085\u2028\u2029") {
			s.fail("indent of lines that do not end with \\n")
		}
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			if i == 0 && truth(a[1]) || i > 0 && (line != "" || truth(a[2])) {
				lines[i] = prefix + line
			}
			s.spend(len(prefix))
		}
		return s.sized(strings.Join(lines, "\n"))
	}
	return s.textMethod(text, name, nil)
}

func (s *state) toJSON(v any, a []any) any {
	p := &printer{state: s, json: true, ascii: truth(a[0]), sorted: truth(a[3]), comma: ", ", colon: ": "}
	if a[1] != nil {
		n, ok := whole(a[1])
		if !ok || n < 0 || n > 100 {
			s.fail("JSON indented by %s", kind(a[1]))
		}
		indent := strings.Repeat(" ", int(n))
		p.indent, p.comma = &indent, ","
	}
	if a[2] != nil {
		pair := s.texts("tojson", s.items(a[2]), 2, 2)
		p.comma, p.colon = pair[0], pair[1]
	}
	p.value(v, 0)
	return s.sized(p.String())
}

var wholeText = regexp.MustCompile(`^\s*[+-]?[0-9]{1,18}\s*$`)

func (s *state) int(v any, c call, otherwise any) any {
	if !c.given(0, "default") {
		otherwise = int64(0)
	}
	n, ok := whole(v)
	text, isText := v.(string)
	switch {
	case ok:
		return n
	case isType[float64](v) && math.Abs(v.(float64)) < 1<<62:
		return int64(v.(float64))
	case isText && wholeText.MatchString(text):
		n, _ = strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		return n
	case v == nil || text == "" && isText:
		return otherwise
	}
	s.fail("int of %s that is not a whole number", kind(v))
	return nil
}

func (s *state) dictFilter(name string, v any) any {
	d, ok := v.(*Dict)
	if name == "items" && isType[undefined](v) {
		return &iterator{}
	} else if !ok {
		s.fail("%s of %s", name, kind(v))
	}
	items := d.items()
	if name == "items" {
		return &iterator{rest: items}
	}
	s.sort(items, s.folded(func(v any) any { return v.(tuple)[0] }), false)
	return List(items)
}

// itself is the key of a value that is sorted as it is.
func itself(v any) any { return v }

func (s *state) listFilter(name string, v any, a []any) any {
	if isType[*iterator](v) && name == "last" || v == nil {
		s.fail("%s of %s", name, kind(v))
	}
	if name == "first" {
		for item := range s.iterate(v) {
			return item
		}
		return undefined{"the first of no items"}
	}
	read := s.items
	if name == "unique" {
		read = s.take
	}
	items := slices.Clone(read(v))
	switch name {
	case "join":
		if a[1] != nil {
			items = s.each(items, s.getter(a[1]))
		}
		parts := make([]string, len(items))
		for i, item := range items {
			parts[i] = s.sized(s.text(item))
		}
		return s.sized(strings.Join(parts, s.text(a[0])))
	case "last":
		slices.Reverse(items)
	case "sort":
		key := itself
		if a[2] != nil {
			key = s.getter(a[2])
		}
		if !truth(a[1]) {
			key = s.folded(key)
		}
		s.sort(items, key, truth(a[0]))
		return List(items)
	case "min", "max":
		s.sort(items, s.folded(itself), name == "max")
	case "unique":
		seen, key := NewDict(), s.folded(itself)
		return &iterator{rest: slices.DeleteFunc(items, func(v any) bool {
			k := key(v)
			_, known := seen.Get(k)
			s.put(seen, k, true)
			return known
		})}
	case "reverse":
		if isType[string](v) {
			return s.slice(v, [3]any{nil, nil, int64(-1)})
		}
		if slices.Reverse(items); isType[*iterator](v) {
			return List(items)
		}
		return &iterator{rest: items}
	case "list":
		return List(items)
	}
	if len(items) == 0 {
		return undefined{name + " of no items"}
	}
	return items[0]
}

func (s *state) each(items []any, f func(any) any) []any {
	for i, item := range items {
		items[i] = f(item)
	}
	return items
}

// getter returns a function that follows a path of attributes, as map(attribute=…) does.
func (s *state) getter(path any) func(any) any {
	text, ok := path.(string)
	if !ok || strings.ContainsAny(text, ",0123456789") {
		s.fail("an attribute that is not a name")
	}
	return func(v any) any {
		for part := range strings.SplitSeq(text, ".") {
			if isType[*namespace](v) {
				s.fail("a filter by the attribute of a namespace") // Python reads it later
			}
			v = s.item(v, part)
		}
		return v
	}
}

// lazily returns the items for a filter that Python applies only when its result is read.
func (s *state) lazily(v any, c call) []any {
	if slices.ContainsFunc(slices.Concat(c.args, c.named), isType[*iterator]) {
		s.fail("a filter of each item with a generator")
	}
	return s.take(v)
}

func (s *state) mapped(v any, c call) any {
	items := slices.Clone(s.lazily(v, c))
	if len(c.args) == 0 && slices.Contains(c.names, "attribute") {
		return &iterator{rest: s.each(items, s.getter(s.bind("map", c, "attribute")[0]))}
	}
	name, _ := append(c.args, nil)[0].(string)
	if name == "" {
		s.fail("map without a filter")
	}
	rest := call{c.args[1:], c.names, c.named}
	return &iterator{rest: s.each(items, func(v any) any { return s.filter(name, v, rest) })}
}

func (s *state) selected(name string, v any, c call) any {
	args, get := c.args, itself
	if strings.HasSuffix(name, "attr") {
		if len(args) == 0 {
			s.fail("%s without an attribute", name)
		}
		get, args = s.getter(args[0]), args[1:]
	}
	keep := truth
	if len(args) > 0 {
		test, rest := s.text(args[0]), call{args[1:], c.names, c.named}
		keep = func(v any) bool { return s.test(test, v, rest) }
	}
	if !truth(v) {
		return &iterator{}
	}
	wanted := strings.HasPrefix(name, "select")
	items := slices.Clone(s.lazily(v, c))
	return &iterator{rest: slices.DeleteFunc(items, func(v any) bool { return keep(get(v)) != wanted })}
}

// folded returns the key by which strings are sorted without regard to their case.
func (s *state) folded(key func(any) any) func(any) any {
	return func(v any) any {
		v = key(v)
		if text, ok := v.(string); ok {
			return s.cased(text, "lower")
		}
		return v
	}
}

// sort sorts as Python does: the sort is stable.
func (s *state) sort(items []any, key func(any) any, reverse bool) {
	sort.SliceStable(items, func(i, j int) bool {
		s.spend(1)
		n := s.order(key(items[i]), key(items[j]))
		return n < 0 && !reverse || n > 0 && reverse
	})
}
