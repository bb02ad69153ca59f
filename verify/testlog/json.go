package testlog

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// prismCommand precedes each JSON report in the shell's trace.
const prismCommand = "./node_modules/.bin/mocha tests/run.js --reporter json"

// prism reads Mocha's JSON reports, each from the first brace after a command to the last one.
func prism(log string, _ Task) (*Results, error) {
	var r Results
	for _, report := range afterFirsts(log, prismCommand) {
		if _, body, ok := strings.Cut(report, "{"); ok {
			report = body
		}
		value, err := readJSON("{" + untilLast(report, "}") + "}")
		if err != nil {
			return nil, err
		}
		lists := value.(map[string]any)
		for _, list := range []struct {
			key    string
			status Status
		}{{"failures", Failed}, {"passes", Passed}} {
			tests, ok := asList(lists[list.key])
			if !ok {
				return nil, fmt.Errorf("%s is not a list of tests: %w", list.key, ErrMalformed)
			}
			for _, test := range tests {
				fields, _ := test.(map[string]any)
				title, ok := asKey(fields["fullTitle"])
				if _, given := fields["fullTitle"]; !given || !ok {
					return nil, fmt.Errorf("a test in %s has no full title: %w", list.key, ErrMalformed)
				}
				r.set(title, list.status)
			}
		}
	}
	return &r, nil
}

// asList returns the elements that Python would iterate over. Besides lists, it accepts only an empty object and an
// empty string, because the elements of others are not tests.
func asList(v any) (list []any, ok bool) {
	switch v := v.(type) {
	case []any:
		return v, true
	case map[string]any:
		return nil, len(v) == 0
	case string:
		return nil, v == ""
	}
	return nil, false
}

// asKey returns a test's name. Values other than strings that Python accepts as keys become names that are not
// text; true and 1 are the same key.
func asKey(v any) (name string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case nil:
		return notText + "null", true
	case bool:
		if v {
			return asKey(1.0)
		}
		return asKey(0.0)
	case float64:
		return fmt.Sprint(notText, v), true
	}
	return "", false
}

// readJSON decodes JSON like Python's json.loads, which differs from encoding/json: NaN and infinities are numbers,
// the length of integers and the depth of nesting are limited, and unpaired surrogates differ from U+FFFD. Objects
// become map[string]any, where the last of equal keys counts, lists []any, and numbers float64.
func readJSON(text string) (any, error) {
	p := jsonReader{text: text}
	v, ok := p.value(maxJSONDepth)
	p.space()
	if !ok || p.at < len(text) {
		return nil, fmt.Errorf("JSON breaks off at byte %d: %w", p.at, ErrMalformed)
	}
	return v, nil
}

// Limits of Python's parser. The depth is the interpreter's recursion limit minus the frames that are already in
// use.
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

// accept skips a token, and white space before it, if it comes next.
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
		m := map[string]any{}
		return m, p.items("}", func() bool {
			if !p.accept(`"`) {
				return false
			}
			key, ok := p.string()
			if !ok || !p.accept(":") {
				return false
			}
			m[key], ok = p.value(depth - 1)
			return ok
		})
	case p.accept("["):
		l := []any{}
		ok := p.items("]", func() bool {
			v, ok := p.value(depth - 1)
			l = append(l, v)
			return ok
		})
		return l, ok
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

// items reads the content of an object or list up to its end.
func (p *jsonReader) items(end string, item func() bool) bool {
	if p.accept(end) {
		return true
	}
	for item() {
		if p.accept(end) {
			return true
		}
		if !p.accept(",") {
			return false
		}
	}
	return false
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
	f, _ := strconv.ParseFloat(literal, 64) // returns infinity if out of range, like Python
	return f, literal != ""
}

// string reads up to the closing quote, after the opening one.
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

// escape reads one escape sequence, or two that form a surrogate pair.
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
