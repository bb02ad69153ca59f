package github

import (
	"regexp"
	"strings"
)

var fencePattern = regexp.MustCompile("^ {0,3}(`{3,}|~{3,})")

// clean is Markdown with line feeds for line ends, without HTML comments, and without the white space around it. Inside
// of code, fenced or inline, a comment is an example and stays.
func clean(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	var out strings.Builder
	block := "" // the fence of the code block that the line is in
	for text != "" {
		end := strings.IndexByte(text, '\n') + 1
		if end == 0 {
			end = len(text)
		}
		line := strings.TrimSuffix(text[:end], "\n")
		fence := fenceOf(line)
		switch {
		case block == "" && fence == "":
			if before, after, ok := cutComment(text, line); ok {
				out.WriteString(before)
				text = afterComment(out.String(), after)
				continue
			}
		case block == "":
			block = fence
		case strings.HasPrefix(fence, block) && strings.Trim(line, " "+block[:1]) == "":
			block = ""
		}
		out.WriteString(text[:end])
		text = text[end:]
	}
	return strings.TrimSpace(out.String())
}

// fenceOf is the fence that begins or ends a code block in this line; empty where none does.
func fenceOf(line string) string {
	m := fencePattern.FindStringSubmatch(line)
	if m == nil || m[1][0] == '`' && strings.Contains(line[len(m[0]):], "`") { // inline code that begins a line
		return ""
	}
	return m[1]
}

// cutComment cuts a comment that begins in the text's first line, and may end in another one.
func cutComment(text, line string) (before, after string, ok bool) {
	at := comment(line)
	if at < 0 {
		return "", "", false
	}
	_, after, ok = strings.Cut(text[at:], "-->")
	return text[:at], after, ok
}

// afterComment is the text behind a comment, without the end of a line that held nothing but the comment.
func afterComment(before, after string) string {
	if lineBlank(before) {
		if rest, ok := strings.CutPrefix(strings.TrimLeft(after, " \t"), "\n"); ok {
			return rest
		}
	}
	return after
}

// comment is where an HTML comment begins in a line, outside of inline code; -1 where none does.
func comment(line string) int {
	at := strings.Index(line, "<!--")
	if at >= 0 && strings.Count(line[:at], "`")%2 == 1 && strings.Contains(line[at:], "`") {
		return -1
	}
	return at
}

// lineBlank reports whether the text ends with the beginning of a line that holds white space only.
func lineBlank(text string) bool {
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]) == ""
}
