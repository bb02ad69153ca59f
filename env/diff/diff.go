// Package diff reads unified diffs, with git's headers or without. What a patch may touch is not decided by it: for
// that, package verify reads more names than a diff has.
package diff

import (
	"cmp"
	"iter"
	"regexp"
	"strconv"
	"strings"
)

// Kind is what a line of a diff is.
type Kind int

// The kinds of lines.
const (
	Header  Kind = iota // names, modes, or anything else between hunks
	Hunk                // "@@ -1,3 +1,4 @@", which begins a hunk
	Context             // a line of a hunk that stays
	Added
	Removed
	Mark   // "\ No newline at end of file"
	Binary // "GIT binary patch", and the encoded content after it
	Broken // an invalid line, which ends its hunk; empty if the diff ends inside a hunk
)

// Line is a line of a diff.
type Line struct {
	Kind Kind
	Text string // with its line break
}

// hunkSizes matches the line that begins a hunk. A size that is missing is 1.
var hunkSizes = regexp.MustCompile(`^@@ -\d+(?:,(\d{1,9}))? \+\d+(?:,(\d{1,9}))? @@`)

// Lines yields the lines of a diff. As the sizes of hunks say where they end, no line of one is taken for a header.
func Lines(diff string) iter.Seq[Line] {
	return func(yield func(Line) bool) {
		before, after, binary := 0, 0, false // lines that remain of the hunk on either side
		for text := range strings.Lines(diff) {
			kind := Header
			switch {
			case text[0] == '\\':
				kind = Mark
			case before > 0 || after > 0:
				kind = hunkLine(text, &before, &after)
			case strings.HasPrefix(text, "@@ "):
				m := hunkSizes.FindStringSubmatch(text)
				if m == nil {
					kind = Broken
					break
				}
				kind = Hunk
				before, _ = strconv.Atoi(cmp.Or(m[1], "1"))
				after, _ = strconv.Atoi(cmp.Or(m[2], "1"))
			case strings.HasPrefix(text, "diff "):
				binary = false
			case binary || strings.TrimRight(text, "\r\n") == "GIT binary patch":
				kind, binary = Binary, true
			}
			if !yield(Line{kind, text}) {
				return
			}
		}
		if before > 0 || after > 0 {
			yield(Line{Kind: Broken})
		}
	}
}

// hunkLine returns the kind of a line of a hunk, and counts it.
func hunkLine(text string, before, after *int) Kind {
	kind := Broken
	switch text[0] {
	case '+':
		kind = Added
		*after--
	case '-':
		kind = Removed
		*before--
	case ' ', '\n', '\r':
		kind = Context
		*before--
		*after--
	}
	if kind == Broken || *before < 0 || *after < 0 {
		*before, *after = 0, 0
		return Broken
	}
	return kind
}
