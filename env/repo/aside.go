package repo

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"deepswe/env"
)

// manyNotes is how many paths a note names.
const manyNotes = 8

// Notes returns what the agent should know about its copy, one line each: which ignored files it has, and what is
// missing.
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

// quiet is a sandbox whose searches skip the ignored directories, unless they start inside one.
type quiet struct {
	env.Sandbox
	aside []string
}

// Quiet returns the sandbox with searches that skip the directories in aside, such as installed dependencies, whose
// matches would bury the repository's own. A search that starts inside one of them is unaffected.
func Quiet(sb env.Sandbox, aside []string) env.Sandbox {
	if len(aside) == 0 {
		return sb
	}
	all := make([]string, len(aside))
	for i, name := range aside {
		all[i] = path.Join(sb.Dir(), name)
	}
	return quiet{sb, bounded(all)}
}

func (q quiet) Search(ctx context.Context, query env.Query) (env.Matches, error) {
	for _, dir := range q.aside {
		if query.Path == dir || strings.HasPrefix(query.Path, dir+"/") {
			return q.Sandbox.Search(ctx, query)
		}
	}
	query.Skip = append(query.Skip, q.aside...)
	return q.Sandbox.Search(ctx, query)
}
