package verifycmd

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"deepswe/env"
	"deepswe/env/dataset"
	history "deepswe/env/mine"
	"deepswe/env/repo"
	"deepswe/env/testkit"
)

// The minimum lengths of the lines that are searched for: in the repository, and in the rest of the file system, where
// shorter ones are found by chance.
const (
	shortestHere  = 8
	shortestThere = 20
)

// Shell scripts that search a sandbox for the lines on their standard input: the first in git and the work tree, the
// second in the rest of the file system, also in what is shown in the work tree. The second prints the names of the
// files as well.
const (
	searchHere = `cat >/tmp/lines; { git log --all --reflog -p; git fsck --lost-found; git cat-file --batch-all-objects --batch
git ls-files -z -co%s | xargs -0 -r cat; find .git -type f -exec cat {} +; } 2>/dev/null | grep -aoFf /tmp/lines | sort -u`
	searchThere = `export LC_ALL=C; cat >/tmp/lines; { find / \( -path /proc -o -path /sys -o -path /dev -o -path %s \
-o -path /tmp/lines \) -prune -o -type f -print0; find %s -type f -print0; } 2>/dev/null |
xargs -0 -r grep -oIHFf /tmp/lines 2>/dev/null | sort -u`
)

// installed matches the directory of an installed package, whose files are counted together.
var installed = regexp.MustCompile(
	`^.*(@v(\d[^/]*|)|/(site-packages|dist-packages|node_modules|gems)/(@[^/]+/)?[^/]+)/`)

// mined are tasks of a folder whose sandboxes differ only in the commit, with the lines of their solutions.
type mined struct {
	tasks []env.Task
	lines map[string][]string // by the tasks' ids
}

// Neither the sandbox's repository (log, objects, files) nor the statement of a mined task has a line of the solution
// that its base commit does not have. In the rest of the file system, no file and no package has half of these lines.
// DEEPSWE_TEST_MINED names the folders of the tasks, separated by colons.
func TestMinedTasksTellNothing(t *testing.T) {
	folders := os.Getenv("DEEPSWE_TEST_MINED")
	if folders == "" {
		testkit.Skip(t, "mined", "DEEPSWE_TEST_MINED is not set")
	}
	p := openBwrap(t)
	for _, folder := range filepath.SplitList(folders) {
		groups := map[string]*mined{}
		for task, err := range dataset.Read(folder, dataset.Options{Strict: true}) {
			if err != nil {
				t.Fatal(err)
			}
			key := fmt.Sprint(task.Installed, task.Shows, task.Hides)
			if groups[key] == nil {
				groups[key] = &mined{lines: map[string][]string{}}
			}
			groups[key].add(t, p, task)
		}
		for _, key := range slices.Sorted(maps.Keys(groups)) {
			groups[key].searchThere(t, p)
		}
	}
}

// add searches the repository and the statement of one task.
func (m *mined) add(t *testing.T, p env.Provider, task env.Task) {
	t.Helper()
	of := history.Candidate{Commit: history.Commit{Base: task.BaseCommit}, Sources: task.Tests.GoldPatch}
	lines, err := history.Builder{Repository: task.Repository}.NewLines(t.Context(), of, shortestHere)
	if err != nil {
		t.Fatal(err)
	}
	shown := ""
	for _, name := range task.Shows {
		shown += " --exclude=" + env.ShellQuote("/"+name)
	}
	found := searched(t, p, task, fmt.Sprintf(searchHere, shown), lines)
	said, signatures, _ := strings.Cut(task.Statement, "These are called by name:")
	for _, line := range lines {
		if strings.Contains(said, line) || strings.Contains(signatures, "    "+line+"\n") {
			found = append(found, "the statement: "+line)
		}
	}
	for _, line := range found {
		t.Errorf("%s: %s", task.ID, line)
	}
	t.Logf("%s: %d lines of the solution, %d found", task.ID, len(lines), len(found))
	m.tasks = append(m.tasks, task)
	m.lines[task.ID] = slices.DeleteFunc(lines, func(line string) bool { return len(line) < shortestThere })
}

// searchThere searches the rest of the file system once for all of the tasks.
func (m *mined) searchThere(t *testing.T, p env.Provider) {
	t.Helper()
	first, all := m.tasks[0], slices.Concat(slices.Collect(maps.Values(m.lines))...)
	shown := []string{"/nowhere"}
	for _, name := range first.Shows {
		shown = append(shown, path.Join(first.Dir, name)+"/")
	}
	script := fmt.Sprintf(searchThere, env.ShellQuote(first.Dir), env.ShellQuote(shown...))
	files := map[string][]string{}
	for _, found := range searched(t, p, first, script, all) {
		file, line, _ := strings.Cut(found, ":")
		if in := installed.FindString(file); in != "" {
			file = in
		}
		files[file] = append(files[file], line)
	}
	for _, task := range m.tasks {
		lines := m.lines[task.ID]
		for _, file := range slices.Sorted(maps.Keys(files)) {
			has := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !slices.Contains(files[file], line) })
			switch {
			case 2*len(has) >= len(lines) && len(has) > 0:
				t.Errorf("%s: %s has %d of %d lines: %q", task.ID, file, len(has), len(lines), has)
			case len(has) > 0:
				t.Logf("%s: %s has %d of %d lines: %q", task.ID, file, len(has), len(lines), has)
			}
		}
	}
}

// searched runs a search in a sandbox as an agent gets it.
func searched(t *testing.T, p env.Provider, task env.Task, script string, lines []string) (found []string) {
	t.Helper()
	if len(lines) == 0 {
		return nil
	}
	s := task.Spec()
	s.Prepare = append(slices.Clip(task.Prepare), repo.Hygiene(""))
	sb, err := p.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	r, err := sb.Run(t.Context(), env.Command{
		Line: script, Stdin: []byte(strings.Join(lines, "\n") + "\n"), Timeout: time.Hour, Head: 64 << 20,
	})
	if err = errors.Join(err, sb.Close(t.Context())); err != nil || r.TimedOut {
		t.Fatal(err, r)
	}
	for line := range strings.Lines(string(r.Stdout.Head)) {
		found = append(found, strings.TrimSuffix(line, "\n"))
	}
	return found
}
