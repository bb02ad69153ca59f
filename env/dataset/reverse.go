package dataset

import (
	"errors"
	"fmt"
	"strings"

	"deepswe/env"
	"deepswe/env/diff"
)

var errHunk = errors.New("the patch is truncated, or a hunk's line counts are wrong")

// hunkRanges matches the lines that a hunk replaces, and those that it replaces them with.
var hunkRanges = env.Pattern(`^@@ -(\S+) \+(\S+)`)

// reversePatch returns the patch that undoes patch, for git apply. It rejects renames and binary files.
func reversePatch(patch string) (string, error) {
	var b strings.Builder
	old := ""
	for line := range diff.Lines(patch) {
		switch line.Kind {
		case diff.Added:
			b.WriteString("-" + line.Text[1:])
		case diff.Removed:
			b.WriteString("+" + line.Text[1:])
		case diff.Context, diff.Mark:
			b.WriteString(line.Text)
		case diff.Hunk:
			b.WriteString(hunkRanges().ReplaceAllString(line.Text, "@@ -$2 +$1"))
		case diff.Broken:
			return "", errHunk
		case diff.Header, diff.Binary:
			word, rest, _ := strings.Cut(line.Text, " ")
			switch {
			case word == "diff":
				b.WriteString(line.Text)
			case word == "---":
				old = rest
			case word == "+++" && old != "" && strings.HasSuffix(rest, "\n"):
				b.WriteString("--- " + otherSide(rest) + "+++ " + otherSide(old))
				old = ""
			case word == "new":
				b.WriteString("deleted " + rest)
			case word == "deleted":
				b.WriteString("new " + rest)
			case word != "index" && strings.TrimSpace(line.Text) != "": // git apply does not need hashes
				return "", fmt.Errorf("cannot be reversed: %q", strings.TrimSpace(line.Text))
			}
		}
	}
	if old != "" {
		return "", errHunk
	}
	return b.String(), nil
}

// otherSide converts a/name to b/name and vice versa.
func otherSide(name string) string {
	switch {
	case strings.HasPrefix(name, "a/"):
		return "b/" + name[2:]
	case strings.HasPrefix(name, "b/"):
		return "a/" + name[2:]
	}
	return name
}
