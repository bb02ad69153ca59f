package dataset

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// parsePythonList parses a list of string literals as Python's repr writes it: ['a', "it's", 'b\n'].
func parsePythonList(text string) ([]string, error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), "[")
	if !ok {
		return nil, errors.New(`it does not start with "["`)
	}
	list := []string{}
	for {
		rest = strings.TrimSpace(rest)
		if rest == "]" {
			return list, nil
		}
		s, after, err := pythonString(rest)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", len(list), err)
		}
		list = append(list, s)
		rest = strings.TrimSpace(after)
		if next, ok := strings.CutPrefix(rest, ","); ok {
			rest = next
		} else if rest != "]" {
			return nil, fmt.Errorf(`element %d is not followed by "," or "]"`, len(list)-1)
		}
	}
}

// pythonString parses the string literal at the start of text.
func pythonString(text string) (s, rest string, err error) {
	if text == "" || text[0] != '\'' && text[0] != '"' {
		return "", "", errors.New("is not a text in quotes")
	}
	quote := text[0]
	var b strings.Builder
	for rest = text[1:]; rest != ""; {
		if rest[0] == quote {
			return b.String(), rest[1:], nil
		}
		if rest[0] == '\n' {
			break
		}
		if rest[0] != '\\' {
			b.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		r, after, err := pythonEscape(rest)
		if err != nil {
			return "", "", err
		}
		b.WriteString(r)
		rest = after
	}
	return "", "", errors.New("is a text without its closing quote")
}

// pythonEscape parses the escape sequence at the start of text. In Python, an unknown one stands for itself.
func pythonEscape(text string) (s, rest string, err error) {
	if len(text) < 2 {
		return "", "", errors.New("ends in a backslash")
	}
	if i := strings.IndexByte(`\'"abfnrtv`, text[1]); i >= 0 {
		return "\\'\"\a\b\f\n\r\t\v"[i : i+1], text[2:], nil
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[text[1]]
	if digits == 0 {
		return text[:2], text[2:], nil
	}
	if len(text) < 2+digits {
		return "", "", errors.New("ends inside an escape sequence")
	}
	n, err := strconv.ParseUint(text[2:2+digits], 16, 32)
	if err != nil {
		return "", "", fmt.Errorf("has a bad escape sequence: %w", err)
	}
	return string(rune(n)), text[2+digits:], nil
}
