package rank

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// PatchKey identifies what a patch does: patches that differ only in what does not matter have the same key. That is
// the order of files, git's own first header line and its index lines, how similar a renamed file is, what follows the
// second @@ of a hunk, time stamps after a file's name, line ends of the header lines, and anything in front of the
// first file. A patch that changes nothing has the key "".
func PatchKey(patch []byte) string {
	files := normalized(patch)
	if len(files) == 0 {
		if len(bytes.TrimSpace(patch)) == 0 {
			return ""
		}
		files = []string{string(bytes.TrimSpace(patch))} // no diff at all: it will not apply
	}
	slices.Sort(files)
	h := sha256.New()
	for _, f := range files {
		h.Write([]byte(f))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))
}

// normalized cuts a patch into its files, each without what does not matter. A file without any change is left out.
func normalized(patch []byte) []string {
	var files []string
	var current strings.Builder
	named, changes := false, false
	flush := func() {
		if changes {
			text := current.String()
			if named { // the other headers say the same
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
	left := hunkSize{} // lines of the hunk that are still to come
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

// irrelevant reports whether a header line follows from the rest of the patch.
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

// take counts one line of the hunk.
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

// sizeOf reads "@@ -1,3 +1,4 @@"; a missing count is 1.
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
