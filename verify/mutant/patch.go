package mutant

import (
	"path"
	"regexp"
	"strconv"
	"strings"
)

// added is a line that a patch adds.
type added struct {
	file   string
	number int // in the file with the patch
	at     int // the offset of the text in the patch
	text   string
}

var hunk = regexp.MustCompile(`^@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@`)

// addedLines returns the lines that a unified diff adds.
func addedLines(patch []byte) (all []added) {
	file, number, gone, come := "", 0, 0, 0
	at := 0
	for line := range strings.Lines(string(patch)) {
		text := strings.TrimSuffix(line, "\n")
		switch {
		case gone > 0 || come > 0:
			switch {
			case strings.HasPrefix(text, "+"):
				all = append(all, added{file, number, at + 1, text[1:]})
				number, come = number+1, come-1
			case strings.HasPrefix(text, "-"):
				gone--
			case !strings.HasPrefix(text, `\`):
				number, gone, come = number+1, gone-1, come-1
			}
		case strings.HasPrefix(text, "+++ "):
			file = nameOf(text[4:])
		default:
			if m := hunk.FindStringSubmatch(text); m != nil {
				gone, number, come = count(m[1]), count(m[2]), count(m[3])
			}
		}
		at += len(line)
	}
	return all
}

// count is the number in a hunk's header, where a missing one is 1.
func count(text string) int {
	if text == "" {
		return 1
	}
	n, _ := strconv.Atoi(text) // digits, and a number that is too large has no lines
	return n
}

// nameOf returns the path in a header, without its first directory.
func nameOf(header string) string {
	if quoted, err := strconv.QuotedPrefix(header); err == nil {
		header, _ = strconv.Unquote(quoted) // it is valid
	}
	name, _, _ := strings.Cut(strings.TrimRight(header, "\r"), "\t")
	_, rest, _ := strings.Cut(name, "/")
	return path.Clean(rest)
}
