package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
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
