package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// escape matches an escape of JSON, or two that form a surrogate pair. beyondJSON matches strings, and the numbers
// that only Python reads.
var (
	escape     = regexp.MustCompile(`\\(u[dD][89abAB]..\\u[dD][c-fC-F]|u[dD][89a-fA-F]|.)`)
	beyondJSON = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?Infinity|NaN`)
)

// pythons reports whether a JSON text has a value that Python reads and that has no counterpart here: NaN, an
// infinity by name, or a lone surrogate.
func pythons(raw []byte) bool {
	plain := beyondJSON.ReplaceAllFunc(raw, func(found []byte) []byte {
		if found[0] == '"' {
			return found
		}
		return []byte("0")
	})
	half := func(e []byte) bool { return len(e) == len(`\ud8`) }
	return json.Valid(plain) && (len(plain) != len(raw) || slices.ContainsFunc(escape.FindAll(raw, -1), half))
}

// JSON reads a value as Python's json.loads does. The error wraps [ErrUnknown] if the value has no counterpart
// here.
func JSON(raw []byte) (any, error) {
	if pythons(raw) {
		return nil, fmt.Errorf("%w: JSON with NaN, Infinity, or half of a character", ErrUnknown)
	}
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
	switch t := t.(type) {
	case json.Number:
		text := t.String()
		if strings.ContainsAny(text, ".eE") {
			f, _ := strconv.ParseFloat(text, 64) // out of range gives an infinity, as in Python
			return f, nil
		}
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
		const most = 4300 // digits of a number in Python
		if len(strings.TrimPrefix(text, "-")) > most {
			return nil, fmt.Errorf("a number of more than %d digits", most)
		}
		return bigint(text), nil
	case json.Delim:
		members, items := NewDict(), List{}
		for err == nil && d.More() {
			var key, v any
			if t == '{' {
				key, err = d.Token()
			}
			if err == nil {
				v, err = decode(d)
			}
			if t == '{' {
				members.Set(key, v)
			} else {
				items = append(items, v)
			}
		}
		if err == nil {
			_, err = d.Token()
		}
		if t == '{' {
			return members, err
		}
		return items, err
	}
	return t, err
}
