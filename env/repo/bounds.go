package repo

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"deepswe/env"
)

// The limits of a patch: bytes of one file, bytes of all files together (before and after the change), changed
// files, and new files.
const (
	maxFile    = 16 << 20
	maxTotal   = 64 << 20
	maxChanges = 20_000
	maxNew     = 5_000
)

// bound omits whole directories, those with the most new files first, until the patch is within its limits. Changes
// to existing files are omitted last.
func (b *Base) bound(changes []change) ([]change, []Omission) {
	kept, crowds := thin(changes, cmp.Or(b.maxNew, maxNew), "new files", func(c change) (group string, counts bool) {
		return b.newBelow(c.path), c.before == nil
	})
	kept, more := thin(kept, maxChanges, "changed files", func(c change) (string, bool) { return path.Dir(c.path), true })
	return kept, append(crowds, more...)
}

// thin omits groups of the changes that groupOf selects, largest group first, until no more than most of them are left.
func thin(changes []change, most int, what string, groupOf func(change) (string, bool)) ([]change, []Omission) {
	sizes := map[string]int{}
	total := 0
	for _, c := range changes {
		if group, counts := groupOf(c); counts {
			sizes[group]++
			total++
		}
	}
	if total <= most {
		return changes, nil
	}
	largestFirst := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(sizes[b]-sizes[a], strings.Compare(a, b))
	})
	gone := map[string]bool{}
	var omitted []Omission
	for _, dir := range largestFirst {
		if total <= most {
			break
		}
		gone[dir], total = true, total-sizes[dir]
		omitted = append(omitted, Omission{
			Path: directory(dir), Reason: fmt.Sprintf("%d %s: a patch contains at most %d", sizes[dir], what, most),
		})
	}
	kept := slices.DeleteFunc(slices.Clone(changes), func(c change) bool {
		group, counts := groupOf(c)
		return counts && gone[group]
	})
	return kept, omitted
}

// newBelow returns the highest new directory above a new file, or the file's directory if that is not new.
func (b *Base) newBelow(name string) string {
	for i := range len(name) {
		if name[i] == '/' && !b.hadDir(name[:i]) {
			return name[:i]
		}
	}
	return path.Dir(name)
}

// hadDir reports whether the base had a file below a directory.
func (b *Base) hadDir(dir string) bool {
	b.dirsOnce.Do(func() {
		b.dirs = map[string]bool{}
		for name := range b.files {
			for d := path.Dir(name); d != "." && !b.dirs[d]; d = path.Dir(d) {
				b.dirs[d] = true
			}
		}
	})
	return b.dirs[dir]
}

// directory formats a directory of the repository for an Omission.
func directory(dir string) string {
	if dir == "." {
		return "./"
	}
	return dir + "/"
}

// condense shortens a long list of omissions: those with the same directory and reason become one.
func condense(all []Omission) []Omission {
	const most = 100
	if len(all) <= most {
		return all
	}
	type kind struct{ dir, reason string }
	groups := map[kind][]Omission{}
	var order []kind
	for _, o := range all {
		dir, _, nested := strings.Cut(o.Path, "/")
		if !nested {
			dir = "."
		}
		k := kind{dir, o.Reason}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], o)
	}
	var short []Omission
	for i, k := range order {
		switch group := groups[k]; {
		case i >= most:
			short[most-1] = Omission{Path: "./", Reason: fmt.Sprintf("and more: %d changes in all are left out", len(all))}
			return short
		case len(group) == 1:
			short = append(short, group[0])
		default:
			short = append(short, Omission{Path: directory(k.dir), Reason: fmt.Sprintf("%d files: %s", len(group), k.reason)})
		}
	}
	return short
}

// size formats a number of bytes.
func size(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
}

// unfit returns why git would refuse to apply a change, or "".
func (c change) unfit() string {
	link := c.after != nil && c.after.Kind == env.KindSymlink || c.before != nil && c.before.Kind == env.KindSymlink
	if link && slices.ContainsFunc(strings.FieldsFunc(c.path, separates), isModules) {
		return "git refuses a symbolic link called .gitmodules"
	}
	return unfit(c.path)
}

// unfit returns why git would refuse a path, or "". On every system, git refuses what Windows or macOS would treat
// as .git.
func unfit(path string) string {
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			return "git cannot store this path"
		}
	}
	if slices.ContainsFunc(strings.FieldsFunc(path, separates), isGit) {
		return "git refuses paths with a part that some systems take for .git"
	}
	return ""
}

// separates reports whether a character separates the parts of a path, on any system.
func separates(r rune) bool { return r == '/' || r == '\\' }

// isGit reports whether a path element means .git on some system: on NTFS also its short name, with an alternate
// stream (":name") or with trailing dots and spaces; on HFS+ with ignored characters in it.
func isGit(part string) bool {
	return aliases(part, ".git", "git~1")
}

// isModules does the same for .gitmodules.
func isModules(part string) bool {
	short := strings.ToLower(part)
	return aliases(part, ".gitmodules", "gitmod~1", "gitmod~2", "gitmod~3", "gitmod~4") ||
		strings.HasPrefix(short, "gi7eba~")
}

func aliases(part string, names ...string) bool {
	part, _, _ = strings.Cut(strings.ToValidUTF8(part, ":"), ":") // git's check for HFS+ stops at the first invalid byte
	part = strings.TrimRight(strings.Map(visible, part), ". ")
	return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(part, name) })
}

// visible removes the characters that HFS+ ignores in names.
func visible(r rune) rune {
	switch {
	case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
		return -1
	}
	return r
}
