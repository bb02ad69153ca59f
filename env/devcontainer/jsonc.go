package devcontainer

import "bytes"

// plain converts JSON with comments and trailing commas to JSON. Comments become blanks, so that the offsets of errors
// stay the same.
func plain(data []byte) []byte {
	out := bytes.Clone(data)
	comma := -1 // the last comma, if only blanks and comments have followed it
	for i := 0; i < len(out); {
		switch c := out[i]; {
		case c == '"':
			comma = -1
			i = endOfString(out, i)
		case c == '/' && i+1 < len(out) && (out[i+1] == '/' || out[i+1] == '*'):
			i = blank(out, i)
		case c == ',':
			comma = i
			i++
		case c == '}' || c == ']':
			if comma >= 0 {
				out[comma] = ' '
			}
			comma = -1
			i++
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		default:
			comma = -1
			i++
		}
	}
	return out
}

func endOfString(text []byte, from int) int {
	for i := from + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// blank overwrites a comment with blanks, and returns where it ends.
func blank(text []byte, from int) int {
	long := text[from+1] == '*'
	text[from], text[from+1] = ' ', ' '
	for i := from + 2; i < len(text); i++ {
		switch {
		case !long && text[i] == '\n':
			return i
		case long && text[i] == '*' && i+1 < len(text) && text[i+1] == '/':
			text[i], text[i+1] = ' ', ' '
			return i + 2
		case text[i] != '\n':
			text[i] = ' '
		}
	}
	return len(text)
}
