package mutant

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"deepswe/env/diff"
)

// added is a line that a patch adds.
type added struct {
	file   string
	number int // in the file with the patch
	at     int // the offset of the text in the patch
	text   string
}

// begin matches the line that begins a hunk, with the number of its first line in the file with the patch.
var begin = regexp.MustCompile(`^@@ -\S+ \+(\d+)`)

// addedLines returns the lines that a unified diff adds.
func addedLines(patch []byte) (all []added) {
	file, number, at := "", 0, 0
	for line := range diff.Lines(string(patch)) {
		switch text := strings.TrimSuffix(line.Text, "\n"); line.Kind {
		case diff.Header:
			if name, ok := strings.CutPrefix(text, "+++ "); ok {
				file = nameOf(name)
			}
		case diff.Hunk:
			number, _ = strconv.Atoi(begin.FindStringSubmatch(text)[1]) // a number that is too large has no lines
		case diff.Context:
			number++
		case diff.Added:
			all = append(all, added{file, number, at + 1, text[1:]})
			number++
		case diff.Removed, diff.Mark, diff.Binary, diff.Broken:
		}
		at += len(line.Text)
	}
	return all
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
