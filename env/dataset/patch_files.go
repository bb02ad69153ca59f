package dataset

import (
	"strconv"
	"strings"
)

// patchFile is a file in a patch, by its name on either side; empty where there is none.
type patchFile struct {
	old, new string
}

// patchFiles returns the files of a patch in git's format, in order.
func patchFiles(patch string) []patchFile {
	var files []patchFile
	var h hunk
	var current *patchFile
	for line := range strings.Lines(patch) {
		if h.old > 0 || h.new > 0 {
			if _, err := h.reverse(line); err != nil {
				h = hunk{}
			}
			continue
		}
		line = strings.TrimRight(line, "\r\n")
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case word == "diff":
			files = append(files, headerFile(rest))
			current = &files[len(files)-1]
		case word == "---" && (current == nil || current.old != "" && current.old != sideName(rest)):
			files = append(files, patchFile{old: sideName(rest)})
			current = &files[len(files)-1]
		case word == "@@":
			if _, err := h.begin(rest + "\n"); err != nil {
				h = hunk{}
			}
		case current == nil:
		case word == "---":
			current.old = sideName(rest)
		case word == "+++":
			current.new = sideName(rest)
		case strings.HasPrefix(line, "rename from "):
			current.old = unquoted(strings.TrimPrefix(line, "rename from "))
		case strings.HasPrefix(line, "rename to "):
			current.new = unquoted(strings.TrimPrefix(line, "rename to "))
		case strings.HasPrefix(line, "new file mode"):
			current.old = ""
		case strings.HasPrefix(line, "deleted file mode"):
			current.new = ""
		}
	}
	return files
}

// headerFile reads what follows "diff ". A name with spaces is only found if it is the same on both sides.
func headerFile(rest string) patchFile {
	names := strings.TrimPrefix(rest, "--git ")
	if half := len(names) / 2; len(names)%2 == 1 && names[half] == ' ' {
		if a, b := sideName(names[:half]), sideName(names[half+1:]); a == b {
			return patchFile{a, b}
		}
	}
	a, b, _ := strings.Cut(names, " ")
	return patchFile{sideName(a), sideName(b)}
}

// sideName returns the name in the repository of a file on one side of a patch; empty for /dev/null.
func sideName(name string) string {
	name = unquoted(name)
	if name == "/dev/null" {
		return ""
	}
	if strings.HasPrefix(name, "a/") || strings.HasPrefix(name, "b/") {
		return name[2:]
	}
	return name
}

// unquoted returns a name without quotes, and without what some programs write after it.
func unquoted(name string) string {
	name, _, _ = strings.Cut(name, "\t")
	if plain, err := strconv.Unquote(name); err == nil {
		return plain
	}
	return name
}

// hiddenTests returns the commands by which a test script puts the tests of a patch in place, whatever a solution did
// to them: files that existed at the commit are restored, and the patch is applied by the git command.
func hiddenTests(commit, patch, apply string) []string {
	var old []string
	for _, file := range patchFiles(patch) {
		if file.old != "" {
			old = append(old, file.old)
		}
	}
	var lines []string
	if len(old) > 0 {
		lines = append(lines, "git checkout "+commit+" -- "+quoted(old))
	}
	return append(lines, apply+" - "+heredoc(patch))
}
