package diff

import (
	"cmp"
	"strconv"
	"strings"
)

// File is what a diff does to a file.
type File struct {
	Old, New       string // its names in the repository; empty where it does not exist
	Added, Removed int    // lines
	Binary         bool
	Text           string // its part of the diff
}

// Name is the file's name after the change or, if it is removed, before.
func (f File) Name() string { return cmp.Or(f.New, f.Old) }

// Files returns the files of a diff, in order.
func Files(diff string) []File {
	var files []File
	f := &File{} // of lines before the first file
	start, end := 0, 0
	begin := func(one File) {
		files, start = append(files, one), end
		f = &files[len(files)-1]
	}
	for l := range Lines(diff) {
		switch l.Kind {
		case Added:
			f.Added++
		case Removed:
			f.Removed++
		case Binary:
			f.Binary = true
		case Header:
			line := strings.TrimRight(l.Text, "\r\n")
			old, plain := strings.CutPrefix(line, "--- ")
			if names, git := strings.CutPrefix(line, "diff --git "); git {
				begin(named(names))
			} else if plain && (len(files) == 0 || f.Old != "" && f.Old != side(old)) {
				begin(File{Old: side(old)})
			} else {
				f.header(line)
			}
		case Hunk, Context, Mark, Broken:
		}
		end += len(l.Text)
		f.Text = diff[start:end]
	}
	return files
}

// header reads a line of a file's header after the first.
func (f *File) header(line string) {
	word, rest, _ := strings.Cut(line, " ")
	switch {
	case word == "---":
		f.Old = side(rest)
	case word == "+++":
		f.New = side(rest)
	case strings.HasPrefix(line, "rename from "):
		f.Old = unquoted(strings.TrimPrefix(line, "rename from "))
	case strings.HasPrefix(line, "rename to "):
		f.New = unquoted(strings.TrimPrefix(line, "rename to "))
	case strings.HasPrefix(line, "new file mode"):
		f.Old = ""
	case strings.HasPrefix(line, "deleted file mode"):
		f.New = ""
	}
}

// named reads what follows "diff --git ". A name with spaces is only found if it is the same on both sides.
func named(names string) File {
	if half := len(names) / 2; len(names)%2 == 1 && names[half] == ' ' {
		if a, b := side(names[:half]), side(names[half+1:]); a == b {
			return File{Old: a, New: b}
		}
	}
	a, b, _ := strings.Cut(names, " ")
	return File{Old: side(a), New: side(b)}
}

// side returns the name in the repository of a file on one side of a diff; empty for /dev/null.
func side(name string) string {
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
