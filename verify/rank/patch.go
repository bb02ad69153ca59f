package rank

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
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
	left := hunkSize{} // remaining lines of the hunk
	for line := range bytes.Lines(patch) {
		text := strings.TrimSuffix(string(line), "\n")
		if left.any() {
			left.take(text)
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
			left, changes = sizeOf(text), true
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

// hunkSize counts the lines of a hunk, before and after the change.
type hunkSize struct{ before, after int }

func (h hunkSize) any() bool { return h.before > 0 || h.after > 0 }

// take subtracts one line of the hunk.
func (h *hunkSize) take(line string) {
	switch {
	case strings.HasPrefix(line, "\\"): // no newline at the end of the file
	case strings.HasPrefix(line, "-"):
		h.before--
	case strings.HasPrefix(line, "+"):
		h.after--
	default:
		h.before--
		h.after--
	}
}

// sizeOf parses "@@ -1,3 +1,4 @@"; a missing count means 1.
func sizeOf(header string) hunkSize {
	fields := strings.Fields(header)
	if len(fields) < 3 {
		return hunkSize{}
	}
	count := func(field string) int {
		_, n, ok := strings.Cut(field, ",")
		if !ok {
			return 1
		}
		total := 0
		for _, c := range []byte(n) {
			if c < '0' || c > '9' || total > 1<<30 {
				return 0
			}
			total = total*10 + int(c-'0')
		}
		return total
	}
	return hunkSize{count(fields[1]), count(fields[2])}
}
