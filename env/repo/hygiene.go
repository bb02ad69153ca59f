package repo

import (
	_ "embed"

	"deepswe/env"
)

//go:embed hygiene.sh
var hygiene string

// Hygiene returns the command line that takes the future out of a repository in a sandbox: every commit, tag, branch,
// stash, reflog and packed object that is not an ancestor of the base commit, and every hook, filter and other
// configuration. It belongs among Spec.Prepare of tasks whose image was built after the fix was known. An empty base is
// the commit that is checked out. It needs git in the sandbox; without one, it removes the whole history.
func Hygiene(base string) string {
	if base == "" {
		base = "HEAD"
	}
	return "set -- " + env.ShellQuote(base) + "\n" + hygiene
}
