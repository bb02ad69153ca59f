package mine

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"deepswe/env"
	history "deepswe/env/mine"
)

// shortestShown is the length from which on a line of a change is not likely to be written twice by chance.
const shortestShown = 20

// searchTimeout limits the search for copies of a change.
const searchTimeout = 2 * time.Minute

// search prints the first file outside of the repository that has at least half of the lines in /tmp/lines. It looks at
// files with the names of those that were changed, and at those below directories with the project's name.
const search = `export LC_ALL=C; find / \( -path /proc -o -path /sys -o -path /dev -o -path %s/.git \) -prune -o \
-type f \( %s \) \
-size -2000k -print0 2>/dev/null | xargs -0 -r grep -lIF -f /tmp/lines 2>/dev/null | sort | while read -r name; do
if [ $((2 * $(grep -oF -f /tmp/lines -- "$name" | sort -u | wc -l))) -ge %d ]; then echo "$name"; break; fi; done`

// libraries are the directories in which package managers install what a program loads, a directory for each package.
var libraries = []string{"site-packages", "dist-packages", "node_modules", "gems"}

// installedAt returns the directory of the installed package that a file belongs to; empty if it is in none.
func installedAt(file string) string {
	parts := strings.Split(file, "/")
	for i := len(parts) - 1; i > 0; i-- {
		if !slices.Contains(libraries, parts[i-1]) {
			continue
		}
		end := i + 1
		if strings.HasPrefix(parts[i], "@") {
			end++
		}
		if end < len(parts) {
			return strings.Join(parts[:end], "/")
		}
	}
	return ""
}

// mostHidden is the maximum number of installed copies that a task hides.
const mostHidden = 4

// hide makes a task hide the packages that have a copy of its change. It returns the path of a file with a copy that
// cannot be hidden, or an empty string.
func (m *Miner) hide(ctx context.Context, c history.Candidate, t *env.Task) (string, error) {
	lines, err := m.Builder.NewLines(ctx, c, shortestShown)
	if err != nil || len(lines) == 0 {
		return "", err
	}
	for {
		file, err := m.exposed(ctx, c, *t, lines)
		if err != nil || file == "" {
			return "", err
		}
		dir := installedAt(file)
		shown := func(name string) bool { return strings.HasPrefix(dir, path.Join(t.Dir, name)+"/") }
		own := strings.HasPrefix(dir, t.Dir+"/") && !slices.ContainsFunc(t.Shows, shown)
		if dir == "" || own || slices.Contains(t.Hides, dir) || len(t.Hides) == mostHidden {
			return file, nil
		}
		t.Hides = append(t.Hides, dir)
	}
}

// exposed returns the path of a file in the sandbox of a task that contains half of the lines or more, or an empty
// string.
func (m *Miner) exposed(
	ctx context.Context, c history.Candidate, t env.Task, lines []string,
) (file string, err error) {
	s := t.Spec()
	s.Run, s.Prepare, s.Grading = m.name(), t.Prepare, true
	sb, err := m.Provider.Start(ctx, s)
	if err != nil {
		return "", fmt.Errorf("look for copies of the change: %w", err)
	}
	defer func() { err = errors.Join(err, sb.Close(context.WithoutCancel(ctx))) }()
	where := []string{fmt.Sprintf("-path %s", env.ShellQuote("*/"+m.Builder.Name+"[@/-]*"))}
	for _, name := range c.SourceFiles() {
		if is := "-name " + env.ShellQuote(path.Base(name)); !slices.Contains(where, is) {
			where = append(where, is)
		}
	}
	r, err := sb.Run(ctx, env.Command{
		Line:    "cat >/tmp/lines; " + fmt.Sprintf(search, env.ShellQuote(t.Dir), strings.Join(where, " -o "), len(lines)),
		Stdin:   []byte(strings.Join(lines, "\n") + "\n"),
		Timeout: searchTimeout,
	})
	if err != nil {
		return "", fmt.Errorf("look for copies of the change: %w", err)
	}
	return strings.TrimSpace(string(r.Stdout.Head)), nil
}
