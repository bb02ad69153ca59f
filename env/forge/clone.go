package forge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// depth is how many commits of history a clone gets.
const depth = "50"

// Task is what an issue or the review of a pull request asks for.
type Task struct {
	Kind      Kind
	Project   string // owner/name, with all groups on GitLab
	Number    int
	URL       string
	Pull      bool
	Statement string
	// CloneURL and Branch say what to work on; an empty Branch is the default branch.
	CloneURL, Branch string
}

// Task reads an issue, or the open threads and failed checks of an open pull request. A pull request without either is
// an error.
func (c *Client) Task(ctx context.Context, a Address) (Task, error) {
	if !a.Pull {
		i, err := c.Issue(ctx, a)
		if !errors.Is(err, ErrPull) {
			return Task{Kind: i.Kind, Project: i.Owner + "/" + i.Repo, Number: i.Number, URL: i.URL, Statement: i.Statement(),
				CloneURL: i.CloneURL}, err
		}
	}
	r, err := c.Review(ctx, a)
	p := r.Pull
	switch {
	case err != nil:
	case p.State != "open":
		err = fmt.Errorf("%s is %s: only an open pull request can be worked on", p.URL, p.State)
	case len(r.Threads)+len(r.Checks) == 0:
		err = fmt.Errorf("%s has no open thread and no failed check", p.URL)
	}
	return Task{Kind: r.Kind, Project: r.Project, Number: p.Number, URL: p.URL, Pull: true, Statement: r.Statement(),
		CloneURL: p.Head.Repo.CloneURL, Branch: p.Head.Ref}, err
}

// Clone clones the repository of a task into dir, which must either not exist or be empty.
//
// Nothing in the repository is executed: no hooks, filters or submodules. Git receives the token in its
// environment, for the repository's own host only, and not in its arguments or the clone's configuration. It never
// prompts. If Clone fails or ctx ends, it removes what it has written.
func (c *Client) Clone(ctx context.Context, t Task, dir string) error {
	a, err := Parse(t.URL)
	var s *session
	if err == nil {
		s, err = c.open(ctx, a)
	}
	if err == nil {
		err = s.clone(ctx, t.CloneURL, t.Branch, dir)
	}
	if err != nil {
		return fmt.Errorf("clone %s: %w", t.Project, err)
	}
	return nil
}

// clone clones a branch, or the default branch, into a directory that must either not exist or be empty.
func (s *session) clone(ctx context.Context, address, branch, dir string) error {
	there, err := os.ReadDir(dir)
	fresh := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !fresh:
		return err
	case len(there) > 0:
		return fmt.Errorf("%s is not empty", dir)
	}
	r, err := s.remote(address)
	if err != nil {
		return err
	}
	args := []string{"clone", "--quiet", "--no-recurse-submodules", "--template=", "--depth", depth}
	if branch != "" {
		args = append(args, "--branch", branch)
	}
	if _, err = r.git(ctx, "", append(args, "--", r.url.String(), dir)...); err != nil {
		discard(dir, fresh)
	}
	return err
}

// discard removes what a failed clone left behind, because a killed git does not clean up.
func discard(dir string, whole bool) {
	if whole {
		os.RemoveAll(dir)
		return
	}
	left, _ := os.ReadDir(dir)
	for _, e := range left {
		os.RemoveAll(filepath.Join(dir, e.Name()))
	}
}
