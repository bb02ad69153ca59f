package verify

import (
	"bytes"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// patchedPaths returns every path that a patch could write to, sorted and relative to the repository's root. It
// includes everything that git or the patch command might take for a file name, also in lines that only look like
// headers: an additional name does no harm, but a missing one would be a way around package allowlist.
func patchedPaths(patch []byte) []string {
	names := map[string]bool{}
	add := func(name string) {
		if name = path.Clean(unquoted(strings.TrimSpace(name))); filepath.IsLocal(name) && name != "." {
			names[name] = true
		}
	}
	for line := range bytes.Lines(patch) {
		// The patch command also accepts patches that are indented or quoted in a mail ("- " before dashes).
		text := strings.TrimLeft(strings.TrimRight(string(line), "\r\n"), " \tX")
		for strings.HasPrefix(text, "- -") {
			text = text[2:]
		}
		for _, header := range []string{"--- ", "+++ ", "*** ", "Index: "} {
			if rest, ok := strings.CutPrefix(text, header); ok {
				add(stripped(rest))
			}
		}
		for _, header := range []string{"rename from ", "rename to ", "copy from ", "copy to "} {
			if rest, ok := strings.CutPrefix(text, header); ok {
				add(rest)
			}
		}
		if rest, ok := strings.CutPrefix(text, "diff --git "); ok {
			for _, name := range gitNames(rest) {
				add(name)
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// stripped removes the time stamp from a header's name, and its first directory, as -p1 does.
func stripped(name string) string {
	if !strings.HasPrefix(name, `"`) {
		name, _, _ = strings.Cut(name, "\t")
	}
	name = unquoted(strings.TrimSpace(name))
	if name == "/dev/null" {
		return ""
	}
	_, rest, found := strings.Cut(name, "/")
	if !found {
		return name
	}
	return strings.TrimLeft(rest, "/")
}

// gitNames parses "a/x b/y". If the names contain spaces, it returns every way to split the line.
func gitNames(rest string) []string {
	var names []string
	if strings.HasPrefix(rest, `"`) || strings.HasSuffix(rest, `"`) {
		for i := range len(rest) {
			if rest[i] == ' ' {
				names = append(names, stripped(rest[:i]), stripped(rest[i+1:]))
			}
		}
		return names
	}
	for i := range len(rest) {
		if rest[i] == ' ' && i+1 < len(rest) {
			if left, right := stripped(rest[:i]), stripped(rest[i+1:]); left == right {
				names = append(names, left)
			}
		}
	}
	return names
}

// unquoted decodes a name that git has quoted like a C string. A name without valid quotes is returned as it is.
func unquoted(name string) string {
	if len(name) < 2 || name[0] != '"' {
		return name
	}
	end := strings.LastIndexByte(name, '"')
	if end == 0 {
		return name
	}
	if text, err := strconv.Unquote(name[:end+1]); err == nil {
		return text
	}
	return name
}
