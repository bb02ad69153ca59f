package harness

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// object is a JSON object whose members keep their order.
type object []member

type member struct {
	key   string
	value any // bool, int, string, []string or object
}

// appendJSON writes a value like Python's json.dumps with an indent of four: all characters except printable ASCII
// are escaped with lower-case digits, and empty lists and objects are on one line.
func appendJSON(b []byte, value any, depth int) []byte {
	switch v := value.(type) {
	case bool:
		return strconv.AppendBool(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case string:
		return appendString(b, v)
	case []string:
		if len(v) == 0 {
			return append(b, "[]"...)
		}
		for i, s := range v {
			b = appendString(appendItem(b, "[", i, depth), s)
		}
		return append(appendLine(b, depth), ']')
	case object:
		if len(v) == 0 {
			return append(b, "{}"...)
		}
		for i, m := range v {
			b = append(appendString(appendItem(b, "{", i, depth), m.key), ": "...)
			b = appendJSON(b, m.value, depth+1)
		}
		return append(appendLine(b, depth), '}')
	}
	panic(fmt.Sprintf("harness: no JSON form for %T", value))
}

// appendItem starts item i of a list or object.
func appendItem(b []byte, open string, i, depth int) []byte {
	if i > 0 {
		open = ","
	}
	return appendLine(append(b, open...), depth+1)
}

func appendLine(b []byte, depth int) []byte {
	return append(append(b, '\n'), strings.Repeat("    ", depth)...)
}

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		i := strings.IndexRune("\"\\\n\r\t\b\f", r)
		switch {
		case i >= 0:
			b = append(b, '\\', `"\nrtbf`[i])
		case ' ' <= r && r <= '~':
			b = append(b, byte(r))
		case utf8.RuneLen(r) == utf8.UTFMax:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return append(b, '"')
}
