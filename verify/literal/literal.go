// Package literal reads values as Python, JavaScript and Go write them in source code, and compares them as these
// languages do.
package literal

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// Value is a value that consists of numbers, strings, truth values, nothing, and collections of these.
type Value struct {
	kind kind
	// number is also 1 or 0 for Python's True and False, which equal these numbers.
	number *big.Rat
	text   string // of strings, and of words such as true and null
	items  []Value
	values []Value // of a map, whose keys are items
}

type kind byte

const (
	number kind = iota + 1
	text
	word
	list
	tuple
	set
	dict
)

// errLiteral means that a text is not a literal.
var errLiteral = errors.New("not a literal")

// Parse reads a literal. Names, calls, operators, and strings with placeholders or prefixes are not literals.
func Parse(source string) (Value, error) {
	p := &parser{rest: source}
	v, err := p.value()
	if err == nil && p.space() != "" {
		err = fmt.Errorf("%w: %q follows", errLiteral, p.rest)
	}
	return v, err
}

// Equal reports whether two values are equal. The order of sets and of the entries of maps does not matter.
func Equal(a, b Value) bool {
	switch {
	case a.kind != b.kind || len(a.items) != len(b.items) || a.text != b.text:
		return false
	case a.kind == number:
		return a.number.Cmp(b.number) == 0
	case a.kind == set, a.kind == dict:
		return within(a, b) && within(b, a)
	}
	for i := range a.items {
		if !Equal(a.items[i], b.items[i]) {
			return false
		}
	}
	return true
}

// Common reports whether a value is one that code often returns whatever it is asked: a truth value, nothing, -1, 0,
// 1, an empty string, and collections that are empty or have one item, which is such a value.
func (v Value) Common() bool {
	other := func(one Value) bool { return !one.Common() }
	switch v.kind {
	case number:
		return v.number.IsInt() && v.number.Num().IsInt64() && v.number.Num().Int64()/2 == 0
	case text:
		return v.text == ""
	}
	return len(v.items) < 2 && !slices.ContainsFunc(slices.Concat(v.items, v.values), other)
}

// Counts reports whether a value is a number, or contains one.
func (v Value) Counts() bool {
	counts := func(one Value) bool { return one.Counts() }
	return v.kind == number || slices.ContainsFunc(v.items, counts) || slices.ContainsFunc(v.values, counts)
}

// Spells reports whether a number or text is written like another one: JavaScript's loose comparisons take 5 for "5".
func (v Value) Spells(other Value) bool { return v.word() != "" && v.word() == other.word() }

// word returns a number or text without quotes; empty for collections.
func (v Value) word() string {
	if v.kind != number {
		return v.text
	}
	f, _ := v.number.Float64()
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// within reports whether every item of a set or map is also in another one.
func within(a, b Value) bool {
	for i, item := range a.items {
		found := false
		for j := range b.items {
			if Equal(item, b.items[j]) && (a.kind == set || Equal(a.values[i], b.values[j])) {
				found = true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// parser is what is left of a text.
type parser struct {
	rest  string
	depth int
}

// deepest is how deep collections may be nested.
const deepest = 100

// space skips white space, and returns what is left.
func (p *parser) space() string {
	p.rest = strings.TrimLeft(p.rest, " \t\r\n")
	return p.rest
}

// letters are those that words consist of.
const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// words maps the names of values to the values.
var words = map[string]Value{
	"True": {kind: number, number: big.NewRat(1, 1)}, "False": {kind: number, number: new(big.Rat)},
	"None": {kind: word, text: "None"}, "true": {kind: word, text: "true"}, "false": {kind: word, text: "false"},
	"null": {kind: word, text: "null"}, "undefined": {kind: word, text: "undefined"}, "nil": {kind: word, text: "nil"},
}

func (p *parser) value() (Value, error) {
	if p.space() == "" {
		return Value{}, fmt.Errorf("%w: it is empty", errLiteral)
	}
	switch c := p.rest[0]; {
	case c == '"' || c == '\'' || c == '`':
		return p.string(c)
	case c == '[' || c == '(' || c == '{':
		return p.collection(c)
	case '0' <= c && c <= '9' || c == '-' || c == '.':
		return p.number()
	}
	end := len(p.rest) - len(strings.TrimLeft(p.rest, letters))
	v, ok := words[p.rest[:end]]
	if !ok {
		return Value{}, fmt.Errorf("%w: %q", errLiteral, p.rest)
	}
	p.rest = p.rest[end:]
	return v, nil
}

func (p *parser) number() (Value, error) {
	end := 1
	for end < len(p.rest) {
		c := p.rest[end]
		exponent := (c == '-' || c == '+') && (p.rest[end-1] == 'e' || p.rest[end-1] == 'E')
		if !exponent && strings.IndexByte("0123456789._eE", c) < 0 {
			break
		}
		end++
	}
	const longest = 400 // an exponent of a few digits could take all memory
	n := strings.ReplaceAll(p.rest[:end], "_", "")
	if at := strings.IndexAny(n, "eE"); end > longest || at >= 0 && len(n)-at > 5 {
		return Value{}, fmt.Errorf("%w: the number %q is too long", errLiteral, n[:min(len(n), longest)])
	}
	r, ok := new(big.Rat).SetString(n)
	if !ok {
		return Value{}, fmt.Errorf("%w: %q is not a number", errLiteral, n)
	}
	p.rest = p.rest[end:]
	return Value{kind: number, number: r}, nil
}

// string reads a string, or several that follow each other, which Python joins.
func (p *parser) string(quote byte) (Value, error) {
	v := Value{kind: text}
	for {
		opening := string(quote)
		if strings.HasPrefix(p.rest, strings.Repeat(opening, 3)) {
			return v, fmt.Errorf("%w: a string of several lines", errLiteral)
		}
		at := 1
		for at < len(p.rest) && p.rest[at] != quote {
			switch {
			case p.rest[at] == '\n', quote == '`' && strings.HasPrefix(p.rest[at:], "${"):
				return v, fmt.Errorf("%w: %q", errLiteral, p.rest[:at])
			case p.rest[at] != '\\':
				v.text += p.rest[at : at+1]
				at++
				continue
			}
			r, _, tail, err := strconv.UnquoteChar(escaped(p.rest[at:]), quote)
			if err != nil {
				return v, fmt.Errorf("%w: an escape in %q", errLiteral, p.rest)
			}
			v.text += string(r)
			at = len(p.rest) - len(tail)
		}
		if at >= len(p.rest) {
			return v, fmt.Errorf("%w: a string does not end", errLiteral)
		}
		p.rest = p.rest[at+1:]
		if next := p.space(); next == "" || next[0] != '"' && next[0] != '\'' {
			return v, nil
		}
		quote = p.rest[0]
	}
}

// escaped replaces the escape at the beginning of a text by one that Go has.
func escaped(s string) string {
	if len(s) > 1 && (s[1] == '\'' || s[1] == '"' || s[1] == '`') {
		return `\x` + strconv.FormatInt(int64(s[1]), 16) + s[2:]
	}
	return s
}

var closing = map[byte]byte{'[': ']', '(': ')', '{': '}'}

func (p *parser) collection(open byte) (Value, error) {
	if p.depth++; p.depth > deepest {
		return Value{}, fmt.Errorf("%w: it is nested too deeply", errLiteral)
	}
	defer func() { p.depth-- }()
	v := Value{kind: map[byte]kind{'[': list, '(': tuple, '{': dict}[open]}
	p.rest = p.rest[1:]
	comma := false
	for {
		next := p.space()
		if next == "" {
			return v, fmt.Errorf("%w: a bracket is not closed", errLiteral)
		}
		if next[0] == closing[open] {
			p.rest = p.rest[1:]
			break
		}
		if len(v.items) > 0 && !comma {
			return v, fmt.Errorf("%w: %q", errLiteral, next)
		}
		if err := p.item(&v, open); err != nil {
			return v, err
		}
		if comma = strings.HasPrefix(p.space(), ","); comma {
			p.rest = p.rest[1:]
		}
	}
	if v.kind == tuple && len(v.items) == 1 && !comma { // only parentheses
		return v.items[0], nil
	}
	return v, nil
}

// item reads an item of a collection, or an entry of a map. Keys of objects may be names.
func (p *parser) item(v *Value, open byte) error {
	name := len(p.rest) - len(strings.TrimLeft(p.rest, letters+"0123456789_$"))
	var key Value
	if colon := strings.TrimLeft(p.rest[name:], " "); open == '{' && name > 0 && strings.HasPrefix(colon, ":") &&
		(p.rest[0] < '0' || p.rest[0] > '9') {
		key = Value{kind: text, text: p.rest[:name]}
		p.rest = p.rest[name:]
	} else {
		var err error
		if key, err = p.value(); err != nil {
			return err
		}
	}
	if open != '{' {
		v.items = append(v.items, key)
		return nil
	}
	entry := strings.HasPrefix(p.space(), ":")
	if len(v.items) == 0 && !entry {
		v.kind = set
	}
	if v.items = append(v.items, key); entry != (v.kind == dict) {
		return fmt.Errorf("%w: %q", errLiteral, p.rest)
	}
	if !entry {
		return nil
	}
	p.rest = p.rest[1:]
	value, err := p.value()
	v.values = append(v.values, value)
	return err
}
