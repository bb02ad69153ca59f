package repo

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// manyNotes is how many paths a note names.
const manyNotes = 8

// Notes say what somebody who works in the sandbox should know of its copy: what of it git ignores, and what is
// missing. One line each.
func (s *Snapshot) Notes() []string {
	var notes, dependencies []string
	for _, name := range s.Aside {
		if base := path.Base(name); installed(base) && base != "__pycache__" {
			dependencies = append(dependencies, name)
		}
	}
	if len(dependencies) > 0 {
		notes = append(notes, fmt.Sprintf("Ignored by git and available here, so that programs and tests run: %s. "+
			"Changes to ignored files are not part of the patch, and searches leave out ignored directories unless they start "+
			"inside one.", several(dependencies)))
	}
	if len(s.Omitted) > 0 {
		var missing []string
		for _, o := range s.Omitted {
			missing = append(missing, o.Path)
		}
		notes = append(notes, fmt.Sprintf("In the user's repository, but not available here: %s.", several(missing)))
	}
	return notes
}

func several(names []string) string {
	names = slices.Clone(names)
	for i, n := range names {
		names[i] = fmt.Sprintf("%q", n)
	}
	if more := len(names) - manyNotes; more > 0 {
		return strings.Join(names[:manyNotes], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}
