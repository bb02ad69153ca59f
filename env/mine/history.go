package mine

import (
	"context"
	"errors"
	"fmt"
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
		if _, inside := repo.Read(ctx, dir, "rev-parse", "--git-dir"); inside != nil {
			return nil, fmt.Errorf("%w: %s is not a git repository", ErrHistory, dir)
		}
		return nil, fmt.Errorf("%w: %s has no commits", ErrHistory, dir)
	}
	args := []string{
		"log", "--first-parent", "--diff-merges=first-parent", "--no-renames", "--raw", "--numstat", "-z", "--abbrev=64",
		"--no-color", "--no-ext-diff", "--no-textconv", "--format=tformat:%x01%H%x1f%P%x1f%an <%ae>%x1f%ct%x1f%B%x02",
	}
	if n > 0 {
		args = append(args, "-n", strconv.Itoa(n))
	}
	args = append(args, "HEAD", "--")
	if below != "" {
		args = append(args, below)
	}
	out, err := repo.Read(ctx, dir, args...)
	if err != nil {
		return nil, fmt.Errorf("read the history of %s: %w", dir, err)
	}
	var all []Commit
	for entry := range strings.SplitSeq(string(out), "\x01") {
		if c, ok := parse(entry); ok {
			all = append(all, c)
		}
	}
	return all, nil
}

// Shallow reports whether a part of the repository's history was left out when it was cloned.
func Shallow(ctx context.Context, dir string) bool {
	out, err := repo.Read(ctx, dir, "rev-parse", "--is-shallow-repository")
	return err == nil && strings.TrimSpace(string(out)) == "true"
}

// numbers matches the line counts of a file: a dash each for a binary one.
var numbers = env.Pattern(`^\n?(\d+|-)\t(\d+|-)\t(.*)$`)

// parse reads an entry of the log.
func parse(entry string) (Commit, bool) {
	header, rest, ok := strings.Cut(entry, "\x02")
	fields := strings.SplitN(header, "\x1f", 5)
	if !ok || len(fields) < 5 {
		return Commit{}, false
	}
	seconds, _ := strconv.ParseInt(fields[3], 10, 64) // git has written it
	parents := strings.Fields(fields[1])
	c := Commit{
		Hash: fields[0], Parents: len(parents), Author: fields[2], Time: time.Unix(seconds, 0).UTC(),
		Message: strings.TrimSpace(strings.ToValidUTF8(fields[4], "\uFFFD")),
	}
	if len(parents) > 0 {
		c.Base = parents[0]
	}
	at := map[string]int{}
	parts := strings.Split(rest, "\x00")
	for i := 0; i < len(parts); i++ {
		part := strings.TrimPrefix(parts[i], "\n")
		if f := strings.Fields(part); strings.HasPrefix(part, ":") && len(f) == 5 && i+1 < len(parts) {
			i++
			ch := Change{Path: parts[i], Kind: kindOf(parts[i]), Status: f[4][0], Mode: f[1]}
			if ch.Status == 'D' {
				ch.Mode = f[0][1:]
			}
			at[ch.Path] = len(c.Changes)
			c.Changes = append(c.Changes, ch)
			continue
		}
		if m := numbers().FindStringSubmatch(part); m != nil {
			if n, known := at[m[3]]; known {
				ch := &c.Changes[n]
				ch.Binary = m[1] == "-"
				ch.Added, _ = strconv.Atoi(m[1]) // a dash is none
				ch.Removed, _ = strconv.Atoi(m[2])
			}
		}
	}
	return c, true
}
