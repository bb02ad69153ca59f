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

// Clone clones the issue's repository into dir, which must not exist or be empty, at the tip of its default branch.
//
// Nothing in the repository is executed: no hooks, filters or submodules. Git receives the token in its
// environment, for the repository's own host only, and not in its arguments or the clone's configuration. It never
// prompts. If Clone fails or ctx ends, it removes what it has written.
func (c *Client) Clone(ctx context.Context, i Issue, dir string) error {
	a, err := Parse(i.URL)
	var s *session
	if err == nil {
		s, err = c.open(ctx, a)
	}
	if err == nil {
		err = s.clone(ctx, i.CloneURL, "", dir)
	}
	if err != nil {
		return fmt.Errorf("clone %s/%s: %w", i.Owner, i.Repo, err)
	}
	return nil
}

// clone clones a branch, or the default branch, into a directory that must not exist or be empty.
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
