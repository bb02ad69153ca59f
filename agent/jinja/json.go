package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// JSON reads a value as Python's json.loads does.
func JSON(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := decode(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text after the JSON value")
	}
	return v, nil
}

func decode(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		text := t.String()
		if strings.ContainsAny(text, ".eE") {
			f, _ := strconv.ParseFloat(text, 64) // out of range is an infinity, to Python as well
			return f, nil
		}
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
		return bigint(text), nil
	case json.Delim:
		if t == '[' {
			out := List{}
			for d.More() {
				v, err := decode(d)
				if err != nil {
					return nil, err
				}
				out = append(out, v)
			}
			_, err := d.Token()
			return out, err
		}
		out := NewDict()
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := decode(d)
			if err != nil {
				return nil, err
			}
			out.Set(key, v)
		}
		_, err := d.Token()
		return out, err
	}
	return t, nil
}

// dumps is json.dumps.
type dumps struct {
	*state
	strings.Builder

	ascii, sorted bool
	indented      bool
	indent        string
	comma, colon  string
}

func (d *dumps) value(v any, depth int) {
	d.spend(1)
	if depth > deepest {
		d.refuse("JSON that is nested too deeply")
	}
	switch v := v.(type) {
	case nil:
		d.WriteString("null")
	case bool:
		d.WriteString(strconv.FormatBool(v))
	case float64:
		d.WriteString(jsonFloat(v))
	case int64, bigint:
		d.WriteString(d.text(v))
	case string:
		d.string(v)
	case markup:
		d.string(string(v))
	case List:
		d.members('[', ']', len(v), depth, func(i int) { d.value(v[i], depth+1) })
	case tuple:
		d.value(List(v), depth)
	case *Dict:
		keys := v.keys
		if d.sorted {
			keys = slices.Clone(keys)
			d.sort(keys, func(k any) any { return k }, false)
		}
		d.members('{', '}', len(keys), depth, func(i int) {
			key, ok := keys[i].(string)
			if !ok {
				d.refuse("a key of JSON that is %s", kind(keys[i]))
			}
			d.string(key)
			d.WriteString(d.colon)
			d.value(v.values[key], depth+1)
		})
	default:
		d.fail("%s is not JSON serializable", kind(v))
	}
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatText(f)
}

func (d *dumps) members(open, end byte, n, depth int, member func(int)) {
	line := func(depth int) {
		if d.indented && n > 0 {
			d.WriteString("\n" + strings.Repeat(d.indent, depth))
		}
	}
	d.WriteByte(open)
	for i := range n {
		if i > 0 {
			d.WriteString(d.comma)
		}
		line(depth + 1)
		member(i)
	}
	line(depth)
	d.WriteByte(end)
}

// string writes a string with the escapes of Python's JSON.
func (d *dumps) string(text string) {
	d.spend(len(text))
	d.WriteByte('"')
	for _, r := range text {
		at := strings.IndexRune("\"\\\n\r\t\b\f", r)
		switch {
		case at >= 0:
			d.WriteByte('\\')
			d.WriteByte(`"\nrtbf`[at])
		case r < ' ' || d.ascii && r > '~' && r < 0x10000:
			d.WriteString(`\u` + hex(r, 4))
		case d.ascii && r > '~':
			r -= 0x10000
			d.WriteString(`\u` + hex(0xd800+r>>10, 4) + `\u` + hex(0xdc00+r&0x3ff, 4))
		default:
			d.WriteRune(r)
		}
	}
	d.WriteByte('"')
}
