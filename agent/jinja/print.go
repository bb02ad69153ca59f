package jinja

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
)

// printer writes values: as Python's repr, or as its json.dumps.
type printer struct {
	*state
	strings.Builder

	json, ascii, sorted bool
	indent              *string
	comma, colon        string
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
	p := &printer{state: s, comma: ", ", colon: ": "}
	p.value(v, 0)
	return p.String()
}

// words are the constants of Python and of JSON.
var words = map[bool]map[any]string{
	false: {nil: "None", true: "True", false: "False", "inf": "inf", "nan": "nan"},
	true:  {nil: "null", true: "true", false: "false", "inf": "Infinity", "nan": "NaN"},
}

func (p *printer) value(v any, depth int) {
	if p.spend(1); depth > deepest {
		p.fail("a value that is nested too deeply")
	}
	switch v := v.(type) {
	case nil, bool:
		p.WriteString(words[p.json][v])
	case int64:
		p.WriteString(strconv.FormatInt(v, 10))
	case bigint:
		p.WriteString(string(v))
	case float64:
		p.WriteString(p.float(v))
	case string:
		p.string(v)
	case markup:
		if !p.json {
			p.fail("the repr of a text that is escaped or safe")
		}
		p.string(string(v))
	case List, tuple:
		items, open, end := elements(v), "[", "]"
		if _, ok := v.(tuple); ok && !p.json {
			open, end = "(", ")"
			if len(items) == 1 {
				end = ",)"
			}
		}
		p.members(open, end, len(items), depth, func(i int) { p.value(items[i], depth+1) })
	case *Dict:
		keys := slices.Clone(v.keys)
		if p.sorted {
			p.sort(keys, itself, false)
		}
		p.members("{", "}", len(keys), depth, func(i int) {
			if p.json && !isType[string](keys[i]) {
				p.fail("a key of JSON that is %s", kind(keys[i]))
			}
			p.value(keys[i], depth+1)
			p.WriteString(p.colon)
			p.value(v.values[same(keys[i])], depth+1)
		})
	default:
		if p.json {
			p.fail("%s is not JSON serializable", kind(v))
		}
		if !isType[undefined](v) {
			p.fail("%s as a text", kind(v))
		}
		p.WriteString("Undefined")
	}
}

func (p *printer) members(open, end string, n, depth int, member func(int)) {
	line := func(depth int) {
		if p.indent != nil && n > 0 {
			p.WriteString("\n" + strings.Repeat(*p.indent, depth))
		}
	}
	p.WriteString(open)
	for i := range n {
		if i > 0 {
			p.WriteString(p.comma)
		}
		line(depth + 1)
		member(i)
	}
	line(depth)
	p.WriteString(end)
}

// float writes the shortest digits that give the same number when they are read.
func (p *printer) float(f float64) string {
	switch a := math.Abs(f); {
	case math.IsNaN(f):
		return words[p.json]["nan"]
	case math.IsInf(f, 1):
		return words[p.json]["inf"]
	case math.IsInf(f, -1):
		return "-" + words[p.json]["inf"]
	case a != 0 && (a < 1e-4 || a >= 1e16):
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// string writes a string with the quotes and escapes of Python, or of JSON.
func (p *printer) string(text string) {
	p.spend(len(text))
	mark, short := '"', "\\\n\r\t\"\b\f"
	if !p.json {
		short = short[:4]
		if !strings.Contains(text, "'") || strings.Contains(text, `"`) {
			mark = '\''
		}
	}
	p.WriteRune(mark)
	for _, r := range text {
		at := strings.IndexRune(short, r)
		switch {
		case at >= 0:
			p.WriteString(`\` + `\nrt"bf`[at:at+1])
		case p.json && (r < ' ' || p.ascii && r > '~'):
			p.escaped(r)
		case p.json || r != mark && unicode.IsPrint(r):
			p.WriteRune(r)
		case r == mark:
			p.WriteString(`\` + string(r))
		case !unicode.In(r, unicode.C, unicode.Z):
			p.fail("the character %U, which Unicode may have gained meanwhile, in a list or dict", r)
		case r < 0x100:
			fmt.Fprintf(p, `\x%02x`, r)
		default:
			p.escaped(r)
		}
	}
	p.WriteRune(mark)
}

// escaped writes a character as an escape; JSON needs a surrogate pair for one beyond 16 bits.
func (p *printer) escaped(r rune) {
	switch {
	case r < 0x10000:
		fmt.Fprintf(p, `\u%04x`, r)
	case p.json:
		high, low := utf16.EncodeRune(r)
		fmt.Fprintf(p, `\u%04x\u%04x`, high, low)
	default:
		fmt.Fprintf(p, `\U%08x`, r)
	}
}
