package chatml

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"deepswe/tools"
)

// describe writes a tool as templates do: OpenAI's function object in Python's JSON.
func describe(s tools.Spec) (string, error) {
	var b strings.Builder
	b.WriteString(`{"type": "function", "function": {"name": `)
	pythonString(&b, s.Name)
	b.WriteString(`, "description": `)
	pythonString(&b, s.Description)
	b.WriteString(`, "parameters": `)
	parameters := s.Parameters
	if len(parameters) == 0 {
		parameters = json.RawMessage("null")
	}
	if err := pythonJSON(&b, parameters); err != nil {
		return "", err
	}
	b.WriteString("}}")
	return b.String(), nil
}

// pythonObject is a JSON object as Python writes it, and {} for a text that is none.
func pythonObject(text string) string {
	if !strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") {
		return "{}"
	}
	var b strings.Builder
	if pythonJSON(&b, []byte(text)) != nil {
		return "{}"
	}
	return b.String()
}

// pythonJSON writes JSON as json.dumps(…, ensure_ascii=False) does after json.loads: a space after commas and colons,
// and members in order. A repeated member has the first position and the last value.
func pythonJSON(b *strings.Builder, raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := pythonValue(d)
	if err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text after the JSON value")
	}
	b.WriteString(v)
	return nil
}

// pythonValue reads one value and returns it as Python writes it.
func pythonValue(d *json.Decoder) (string, error) {
	token, err := d.Token()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	switch v := token.(type) {
	case nil:
		return "null", nil
	case bool:
		return strconv.FormatBool(v), nil
	case string:
		pythonString(&b, v)
		return b.String(), nil
	case json.Number:
		return pythonNumber(v.String()), nil
	case json.Delim:
		if v == '[' {
			return pythonList(d)
		}
		return pythonMembers(d)
	}
	return "", errors.New("not JSON")
}

func pythonList(d *json.Decoder) (string, error) {
	var items []string
	for d.More() {
		v, err := pythonValue(d)
		if err != nil {
			return "", err
		}
		items = append(items, v)
	}
	_, err := d.Token()
	return "[" + strings.Join(items, ", ") + "]", err
}

func pythonMembers(d *json.Decoder) (string, error) {
	var keys []string
	values := map[string]string{}
	for d.More() {
		key, err := pythonValue(d)
		if err != nil {
			return "", err
		}
		if _, again := values[key]; !again {
			keys = append(keys, key)
		}
		if values[key], err = pythonValue(d); err != nil {
			return "", err
		}
	}
	for i, key := range keys {
		keys[i] = key + ": " + values[key]
	}
	_, err := d.Token()
	return "{" + strings.Join(keys, ", ") + "}", err
}

// pythonNumber writes a whole number as it is and any other as Python's repr of a float.
func pythonNumber(text string) string {
	if !strings.ContainsAny(text, ".eE") {
		if text == "-0" {
			return "0"
		}
		return text
	}
	f, _ := strconv.ParseFloat(text, 64) // out of range is an infinity, to Python as well
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	text = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// pythonString writes a string with the escapes of Python's JSON, which leaves everything beyond ASCII as it is.
func pythonString(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch r {
		case '"':
			b.WriteString(`\"`)
		case '\\':
			b.WriteString(`\\`)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		case '\b':
			b.WriteString(`\b`)
		case '\f':
			b.WriteString(`\f`)
		default:
			if r < ' ' {
				b.WriteString(`\u00`)
				b.WriteByte("0123456789abcdef"[r>>4])
				b.WriteByte("0123456789abcdef"[r&15])
				continue
			}
			b.WriteString(string(utf8.AppendRune(nil, r)))
		}
	}
	b.WriteByte('"')
}
