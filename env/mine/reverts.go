package mine

import (
	"strings"

	"deepswe/env"
)

var (
	revert = env.Pattern(`(?i)^(?:merge [^\n]*\n+)?revert\b|\bthis reverts (?:commit|merge request) `)
	// takesBack matches what a revert says about the commit that it takes back: its hash, the number of its pull request,
	// or its title.
	takesBack = env.Pattern(`(?i)\bthis reverts commit ([0-9a-f]{7})|\breverts (?:merge request )?[\w./-]*[#!](\d+)|` +
		`\brevert-(\d+)-|(?m:^revert "(.+)")`)
	// pulled matches where a commit has the number of its pull request.
	pulled = env.Pattern(`(?i)^merge pull request #(\d+)|^[^\n]*\([#!](\d+)\)\s*(?:\n|$)|\bsee merge request \S*!(\d+)`)
	// number matches the number of a pull request at the end of a title.
	number = env.Pattern(`\s*\([#!]\d+\)$`)
)

// reverts are the names of commits that later ones take back. They are collected from the newest commit to the oldest,
// because a commit takes only earlier ones back.
type reverts map[string]bool

// undo reports whether a later commit takes c back, and notes what c itself takes back. Later ones with the same title
// as c count once.
func (r reverts) undo(c Commit) (undone bool) {
	for _, name := range c.names() {
		undone = undone || r[name]
		delete(r, name)
	}
	for _, m := range takesBack().FindAllStringSubmatch(c.Message, -1) {
		for i, name := range []string{m[1], "#" + m[2], "#" + m[3], title(m[4])} {
			if m[i+1] != "" {
				r[name] = true
			}
		}
	}
	return undone
}

// names are what a revert may call a commit.
func (c Commit) names() []string {
	names := []string{c.Hash[:7]}
	for _, m := range pulled().FindAllStringSubmatch(c.Message, -1) {
		names = append(names, "#"+strings.Join(m[1:], ""))
	}
	subject, rest, _ := strings.Cut(c.Message, "\n")
	if mergeLine().MatchString(subject) { // its title is below
		pulls, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
		names = append(names, title(pulls))
	}
	return append(names, title(subject))
}

func title(subject string) string { return number().ReplaceAllString(strings.TrimSpace(subject), "") }
