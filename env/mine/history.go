package mine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepswe/env"
	"deepswe/env/repo"
)

// Commit is a commit of the first-parent history: what it changes is the difference to its first parent, so that a
// merged pull request is one commit, as a squashed one is.
type Commit struct {
	Hash string
	// Base is the first parent; empty at the beginning of the history. Parents counts all of them.
	Base    string
	Parents int
	Author  string // name and address
	Time    time.Time
	Written time.Time // by the author; Time is when it came into this history
	Message string
	Changes []Change
}

// Change is a file that a commit changes. A renamed file is one that is removed and another that is added.
type Change struct {
	Path string
	Kind Kind
	// Status is git's letter: A, M, D or T.
	Status byte
	// Mode is that of the file after the change, in git's octal digits; before it where the file is removed.
	Mode string
	// Added and Removed count lines; Binary files have none.
	Added, Removed int
	Binary         bool
	// Moved is set for a removed source that an added one continues. The lines that both share count for neither.
	Moved bool
}

// ErrHistory reports that a repository has no history to find tasks in. Its text says why.
var ErrHistory = errors.New("there is nothing to mine")

// Walk returns the newest commits of the first-parent history of HEAD, the newest first: up to n, or all if n is 0.
// below limits them to what they change below that path.
func Walk(ctx context.Context, dir, below string, n int) ([]Commit, error) {
	if _, err := repo.Read(ctx, dir, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err != nil {
		if ctx.Err() != nil || errors.Is(err, repo.ErrNoGit) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %s %s", ErrHistory, dir, headless(ctx, dir))
	}
	return log(ctx, dir, "HEAD", below, n)
}

// headless says what is wrong with a directory that has no newest commit.
func headless(ctx context.Context, dir string) string {
	if _, err := repo.Read(ctx, dir, "rev-parse", "--git-dir"); err != nil {
		return "is not a git repository"
	}
	if _, err := repo.Read(ctx, dir, "rev-parse", "--verify", "--quiet", "HEAD"); err == nil {
		return "lacks its newest commit, so it is damaged: git fsck says more, and a fresh clone has all of it"
	}
	out, err := repo.Read(ctx, dir, "for-each-ref", "--count=1", "--format=%(refname)", "refs/heads", "refs/remotes")
	branch := strings.TrimSpace(string(out))
	if err != nil || branch == "" {
		return "has no commits"
	}
	return "has commits, but none on its current branch: git checkout, or for a bare repository " +
		"git symbolic-ref HEAD " + branch + ", chooses another one"
}

// log returns the newest commits of a first-parent history.
func log(ctx context.Context, dir, newest, below string, n int) ([]Commit, error) {
	args := []string{
		"--literal-pathspecs", "log", "--first-parent", "--diff-merges=first-parent", "--no-renames", "--raw", "--numstat",
		"-z", "--abbrev=64", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none",
		"--encoding=UTF-8", "--format=tformat:%H%x00%P%x00%an <%ae>%x00%ct%x00%at%x00%B",
	}
	if n > 0 {
		args = append(args, "-n", strconv.Itoa(n))
	}
	args = append(args, newest, "--")
	if below != "" {
		args = append(args, below)
	}
	out, err := repo.Read(ctx, dir, args...)
	switch {
	case err != nil && strings.Contains(err.Error(), "promisor"):
		return nil, fmt.Errorf("%w: %s is a partial clone, without all files of its history: clone it without --filter",
			ErrHistory, dir)
	case err != nil && strings.Contains(err.Error(), "outside repository"):
		return nil, fmt.Errorf("%w: %s is not below %s", ErrHistory, below, dir)
	case err != nil:
		return nil, fmt.Errorf("read the history of %s: %w", dir, err)
	case len(out) == 0:
		return nil, fmt.Errorf("%w: no commit changes %s, which is a path from the root of %s", ErrHistory, below, dir)
	}
	commits := parse(string(out))
	for _, c := range commits {
		if err := c.move(ctx, dir); err != nil {
			return nil, err
		}
	}
	return commits, nil
}

// move marks the sources that the commit has moved.
func (c Commit) move(ctx context.Context, dir string) error {
	at := map[byte]map[string]int{'A': {}, 'D': {}}
	var names []string
	for i, ch := range c.Changes {
		if paths := at[ch.Status]; ch.Kind == Source && paths != nil {
			paths[ch.Path] = i
			names = append(names, ch.Path)
		}
	}
	if c.Base == "" || len(at['A']) == 0 || len(at['D']) == 0 || len(names) > mostMoved {
		return nil
	}
	out, err := repo.Read(ctx, dir, slices.Concat([]string{"--literal-pathspecs", "diff-tree", "-r", "-M",
		"--diff-filter=R", "--numstat", "-z", "--no-ext-diff", "--no-textconv", c.Base, c.Hash, "--"}, names)...)
	if err != nil {
		return fmt.Errorf("read commit %s: %w", c.Hash, err)
	}
	for parts := strings.Split(string(out), "\x00"); len(parts) > 3; parts = parts[3:] {
		m := numbers().FindStringSubmatch(parts[0])
		from, known := at['D'][parts[1]]
		to, also := at['A'][parts[2]]
		if m == nil || !known || !also {
			continue
		}
		c.Changes[from].Moved, c.Changes[from].Removed = true, 0
		c.Changes[to].Added, _ = strconv.Atoi(m[1]) // a dash is none
		c.Changes[to].Removed, _ = strconv.Atoi(m[2])
	}
	return nil
}

// mostMoved limits the files of a commit among which moved ones are looked for. So many are larger than the bounds.
const mostMoved = 1000

// Shallow reports whether a part of the repository's history was left out when it was cloned.
func Shallow(ctx context.Context, dir string) bool {
	out, err := repo.Read(ctx, dir, "rev-parse", "--is-shallow-repository")
	return err == nil && strings.TrimSpace(string(out)) == "true"
}

// Unfetched returns the paths of the submodules of HEAD whose files are not here, so that tests do without them.
func Unfetched(ctx context.Context, dir string) (names []string) {
	out, err := repo.Read(ctx, dir, "ls-tree", "-r", "-z", "--full-tree", "HEAD")
	if err != nil {
		return nil
	}
	for entry := range strings.SplitSeq(string(out), "\x00") {
		name, module := strings.CutPrefix(entry, repo.ModeSubmodule+" commit ")
		if _, name, _ = strings.Cut(name, "\t"); !module {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, name, ".git")); err != nil {
			names = append(names, name)
		}
	}
	return names
}

// numbers matches the line counts of a file: a dash each for a binary one.
var numbers = env.Pattern(`(?s)^(\d+|-)\t(\d+|-)\t(.*)$`)

// parse reads the log. A zero byte, which neither names nor messages contain, ends each of its parts: five of a commit,
// and those of its changes.
func parse(log string) (all []Commit) {
	parts := strings.Split(log, "\x00")
	at := func(seconds string) time.Time {
		n, _ := strconv.ParseInt(seconds, 10, 64) // git has written it
		return time.Unix(n, 0).UTC()
	}
	for len(parts) > 6 {
		parents := strings.Fields(parts[1])
		c := Commit{
			Hash: parts[0], Parents: len(parents), Author: strings.ToValidUTF8(parts[2], "\uFFFD"),
			Time: at(parts[3]), Written: at(parts[4]),
			Message: strings.TrimSpace(strings.ToValidUTF8(parts[5], "\uFFFD")),
		}
		if len(parents) > 0 {
			c.Base = parents[0]
		}
		c.Changes, parts = changes(parts[6:])
		all = append(all, c)
	}
	return all
}

// changes reads the changes of a commit, and returns what follows them.
func changes(parts []string) (all []Change, rest []string) {
	at := map[string]int{}
	for ; len(parts) > 0; parts = parts[1:] {
		part := strings.TrimPrefix(parts[0], "\n")
		if f := strings.Fields(part); strings.HasPrefix(part, ":") && len(f) == 5 && len(parts) > 1 {
			parts = parts[1:]
			ch := Change{Path: parts[0], Kind: kindOf(parts[0]), Status: f[4][0], Mode: f[1]}
			if ch.Status == 'D' {
				ch.Mode = f[0][1:]
			}
			at[ch.Path] = len(all)
			all = append(all, ch)
			continue
		}
		m := numbers().FindStringSubmatch(part)
		if m == nil {
			break
		}
		if n, known := at[m[3]]; known {
			ch := &all[n]
			ch.Binary = m[1] == "-"
			ch.Added, _ = strconv.Atoi(m[1]) // a dash is none
			ch.Removed, _ = strconv.Atoi(m[2])
		}
	}
	return all, parts
}
