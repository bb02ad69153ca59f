package repo

import (
	"context"
	"path"
	"strings"

	"deepswe/env"
)

// quiet is a sandbox whose searches do not enter what is set aside, unless that is where they begin.
type quiet struct {
	env.Sandbox
	aside []string
}

// Quiet returns the sandbox with searches that leave out the directories that are set aside, such as installed
// dependencies: their matches would bury those of the repository. A search that begins in one of them is as before.
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
