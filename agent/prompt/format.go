package prompt

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// format fills a template as Python's str.format does for plain names: {name} is replaced, {{ and }} are braces, and a
// brace alone is an error. What was filled in is not looked at again. Attributes, indexes, conversions and format
// specifications are refused: no prompt needs them.
func format(template string, fields map[string]string) (string, error) {
	var out strings.Builder
	for at := 0; at < len(template); {
		next := strings.IndexAny(template[at:], "{}")
		if next < 0 {
			out.WriteString(template[at:])
			break
		}
		out.WriteString(template[at : at+next])
		at += next
		brace := template[at]
		if at+1 < len(template) && template[at+1] == brace {
			out.WriteByte(brace)
			at += 2
			continue
		}
		if brace == '}' {
			return "", fmt.Errorf("%s: single }; write }} for a literal brace", position(template, at))
		}
		end := strings.IndexAny(template[at+1:], "{}")
		if end < 0 || template[at+1+end] == '{' {
			return "", fmt.Errorf("%s: { without }; write {{ for a literal brace", position(template, at))
		}
		name := template[at+1 : at+1+end]
		value, ok := fields[name]
		if !ok {
			return "", fmt.Errorf("%s: unknown placeholder {%s}; the placeholders are %s, and a literal brace is written {{",
				position(template, at), name, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		out.WriteString(value)
		at += end + 2
	}
	return out.String(), nil
}

// position is the line and column of a byte of the template, both counted from 1.
func position(template string, at int) string {
	before := template[:at]
	line := strings.Count(before, "\n") + 1
	column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
	return fmt.Sprintf("line %d, column %d", line, column)
}
