package rank

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"deepswe/env/diff"
)

// PatchKey identifies the effect of a patch. It ignores the order of files, git's "diff" and "index" header lines, the
// similarity of renamed files, the text after the second @@ of a hunk, time stamps after file names, line endings of
// header lines, and anything before the first file. The key of a patch without changes is "".
func PatchKey(patch []byte) string {
	files := normalized(patch)
	if len(files) == 0 {
		if len(bytes.TrimSpace(patch)) == 0 {
			return ""
		}
		files = []string{string(bytes.TrimSpace(patch))} // not a diff, so it will not apply
	}
	slices.Sort(files)
	h := sha256.New()
	for _, f := range files {
		h.Write([]byte(f))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))
}

// normalized splits a patch into files, each without what PatchKey ignores. Files without any change are left out.
func normalized(patch []byte) []string {
	var files []string
	var current strings.Builder
	named, changes := false, false
	flush := func() {
		if changes {
			text := current.String()
			if named { // redundant with the other headers
				_, rest, _ := strings.Cut(text, "\n")
				if strings.HasPrefix(text, "diff --git ") {
					text = rest
				}
			}
			files = append(files, text)
		}
		current.Reset()
		named, changes = false, false
	}
	for line := range diff.Lines(string(patch)) {
		text := strings.TrimSuffix(line.Text, "\n")
		if slices.Contains([]diff.Kind{diff.Context, diff.Added, diff.Removed, diff.Mark}, line.Kind) {
			current.WriteString(text + "\n")
			continue
		}
		text = strings.TrimSuffix(text, "\r")
		switch {
		case strings.HasPrefix(text, "diff --git "):
			flush()
		case strings.HasPrefix(text, "--- "):
			if named { // a diff without git's headers
				flush()
			}
			text = withoutStamp(text)
		case strings.HasPrefix(text, "+++ "):
			text, named = withoutStamp(text), true
		case strings.HasPrefix(text, "@@ "):
			if end := strings.Index(text[3:], "@@"); end >= 0 {
				text = text[:end+5]
			}
			changes = true
		case text == "" || current.Len() == 0 || irrelevant(text):
			continue
		default: // modes, renames and binary patches: every line counts
			changes = true
		}
		current.WriteString(text + "\n")
	}
	flush()
	return files
}

// irrelevant reports whether PatchKey ignores a header line.
func irrelevant(line string) bool {
	return strings.HasPrefix(line, "index ") || strings.HasPrefix(line, "similarity index ") ||
		strings.HasPrefix(line, "dissimilarity index ")
}

// withoutStamp removes the time stamp after a file's name.
func withoutStamp(header string) string {
	name, _, _ := strings.Cut(header, "\t")
	return strings.TrimRight(name, " ")
}
