package testlog

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// readJSON decodes what Python's json.loads decodes, which is not quite what encoding/json does: NaN and the infinities
// are numbers, the length of integers and the depth of nesting are bounded, and half a surrogate pair stays apart from
// U+FFFD. Objects become map[string]any, where the last of equal keys counts, lists []any, and numbers float64.
func readJSON(text string) (any, error) {
	p := jsonReader{text: text}
	v, ok := p.value(maxJSONDepth)
	p.space()
	if !ok || p.at < len(text) {
		return nil, fmt.Errorf("JSON breaks off at byte %d: %w", p.at, ErrMalformed)
	}
	return v, nil
}

// Limits of Python's reader. The depth is the interpreter's limit on recursion, less what a call stack takes of it.
const (
	maxJSONDepth  = 987
	maxJSONDigits = 4300
)

type jsonReader struct {
	text string
	at   int
}

func (p *jsonReader) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\n\r", p.text[p.at]) >= 0 {
		p.at++
	}
}

// accept skips a token, white space before it included, if it comes next.
func (p *jsonReader) accept(token string) bool {
	p.space()
	if !strings.HasPrefix(p.text[p.at:], token) {
		return false
	}
	p.at += len(token)
	return true
}

func (p *jsonReader) value(depth int) (any, bool) {
	if depth == 0 {
		return nil, false
	}
	switch {
	case p.accept("{"):
		return p.object(depth)
	case p.accept("["):
		return p.list(depth)
	case p.accept(`"`):
		return p.string()
	case p.accept("null"):
		return nil, true
	case p.accept("true"):
		return true, true
	case p.accept("false"):
		return false, true
	}
	return p.number()
}

func (p *jsonReader) object(depth int) (any, bool) {
	m := map[string]any{}
	if p.accept("}") {
		return m, true
	}
	for {
		if !p.accept(`"`) {
			return nil, false
		}
		key, ok := p.string()
		if !ok || !p.accept(":") {
			return nil, false
		}
		v, ok := p.value(depth - 1)
		if !ok {
			return nil, false
		}
		m[key] = v
		if p.accept("}") {
			return m, true
		}
		if !p.accept(",") {
			return nil, false
		}
	}
}

func (p *jsonReader) list(depth int) (any, bool) {
	l := []any{}
	if p.accept("]") {
		return l, true
	}
	for {
		v, ok := p.value(depth - 1)
		if !ok {
			return nil, false
		}
		l = append(l, v)
		if p.accept("]") {
			return l, true
		}
		if !p.accept(",") {
			return nil, false
		}
	}
}

var (
	jsonNumber = expression(`^(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?`)
	jsonWords  = []string{"NaN", "Infinity", "-Infinity"}
)

func (p *jsonReader) number() (any, bool) {
	rest := p.text[p.at:]
	literal := ""
	for _, w := range jsonWords {
		if strings.HasPrefix(rest, w) {
			literal = w
		}
	}
	if m := jsonNumber().FindStringSubmatch(rest); literal == "" && m != nil {
		literal = m[0]
		if literal == m[1] && len(strings.TrimPrefix(literal, "-")) > maxJSONDigits {
			return nil, false
		}
	}
	p.at += len(literal)
	f, _ := strconv.ParseFloat(literal, 64) // beyond the range, the infinity that it returns is Python's answer too
	return f, literal != ""
}

// string reads up to the closing quote; the opening one is behind.
func (p *jsonReader) string() (string, bool) {
	var b strings.Builder
	for p.at < len(p.text) {
		n := strings.IndexFunc(p.text[p.at:], func(r rune) bool { return r < 0x20 || r == '"' || r == '\\' })
		if n < 0 {
			break
		}
		b.WriteString(p.text[p.at : p.at+n])
		p.at += n
		switch p.text[p.at] {
		case '"':
			p.at++
			return b.String(), true
		case '\\':
			if !p.escape(&b) {
				return "", false
			}
		default:
			return "", false
		}
	}
	return "", false
}

// escape reads one escape sequence, or two that make a surrogate pair.
func (p *jsonReader) escape(b *strings.Builder) bool {
	if p.at+1 >= len(p.text) {
		return false
	}
	c := p.text[p.at+1]
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		b.WriteByte("\"\\/\b\f\n\r\t"[i])
		p.at += 2
		return true
	}
	unit, ok := p.unit()
	if !ok {
		return false
	}
	if low, paired := p.unit(); paired {
		if r := utf16.DecodeRune(unit, low); r != utf8.RuneError {
			b.WriteRune(r)
			return true
		}
		p.at -= len(`\uXXXX`)
	}
	if utf16.IsSurrogate(unit) {
		b.Write([]byte{0xE0 | byte(unit>>12), 0x80 | byte(unit>>6&0x3F), 0x80 | byte(unit&0x3F)})
	} else {
		b.WriteRune(unit)
	}
	return true
}

// unit reads \uXXXX.
func (p *jsonReader) unit() (rune, bool) {
	rest := p.text[p.at:]
	if len(rest) < len(`\uXXXX`) || rest[:2] != `\u` {
		return 0, false
	}
	n, err := strconv.ParseUint(rest[2:6], 16, 16)
	if err != nil {
		return 0, false
	}
	p.at += len(`\uXXXX`)
	return rune(n), true
}
