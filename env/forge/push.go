package forge

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"deepswe/env"
)

// forkPatience is how long a new fork may take until it can be pushed to.
const forkPatience = 5 * time.Minute

var (
	// shallowRefused matches the message of a server that lacks the commits before those of a shallow clone.
	shallowRefused = env.Pattern(`(?i)shallow update not allowed|unpack`)
	// pullNamed finds the pull request that a server names after a push.
	pullNamed = env.Pattern(`/(?:pulls|merge_requests)/(\d+)\s`)
	// failing matches the message of a server that is itself at fault, so that a later try may succeed.
	failing = env.Pattern(`(?i)internal server error|exited abnormally|error: 50[0-4]|timed out|connection reset`)
	// behind matches git's message if the branch has moved.
	behind = env.Pattern(`(?i)non-fast-forward|fetch first|stale info|cannot lock ref|\[rejected\]`)
)

// push pushes the commit. It retries while a new fork does not take it yet, and when the server fails. It never forces.
func (d *Draft) push(ctx context.Context) error {
	r, err := d.s.remote(d.from.CloneURL)
	if err != nil {
		return err
	}
	args := []string{"push", "--no-verify", "--porcelain", "--no-follow-tags"}
	ref := "refs/heads/" + d.Branch
	switch title := d.marked(); {
	case d.Via == AGit && d.s.kind == Gitea:
		ref = "refs/for/" + d.Into
		args = append(args, "-o", "topic="+d.Branch, "-o", "title="+title)
	case d.Via == AGit && d.old == nil:
		args = append(args, "-o", "merge_request.create", "-o", "merge_request.target="+d.Into,
			"-o", "merge_request.target_project="+d.to.Path, // else that of a fork's parent
			"-o", "merge_request.title="+title, "-o", "merge_request.remove_source_branch")
	}
	args = append(args, r.url.String(), d.Commit+":"+ref)
	whole := false
	for began, wait, left := time.Now(), time.Second, attempts; ; wait = min(2*wait, 20*time.Second) {
		var said string
		left--
		_, said, err = r.run(ctx, d.dir, args...)
		switch {
		case err == nil:
			if m := pullNamed().FindStringSubmatch(said); m != nil {
				d.opens, err = strconv.Atoi(m[1])
			}
			return err
		case ctx.Err() != nil:
			return err
		case says(err, behind()):
			return fmt.Errorf("%w: the branch has moved meanwhile, and is never overwritten: try again", err)
		case says(err, shallowRefused()) && !whole:
			whole = true
			if err = d.deepenBase(ctx); err != nil {
				return err
			}
		case d.fresh && time.Since(began) > forkPatience, !d.fresh && (left == 0 || !says(err, failing())):
			return err
		default:
			if err = d.s.o.Sleep(ctx, wait); err != nil {
				return err
			}
		}
	}
}

// deepen fetches the history that the clone lacks.
func (d *Draft) deepen(ctx context.Context, r *remote, ref string) error {
	shallow, err := r.git(ctx, d.dir, "rev-parse", "--is-shallow-repository")
	if err != nil || shallow != "true" {
		return err
	}
	_, err = r.git(ctx, d.dir, "fetch", "--quiet", "--no-tags", "--unshallow", r.url.String(), ref)
	return err
}

// deepenBase fetches the whole history of the branch that the pull request is for.
func (d *Draft) deepenBase(ctx context.Context) error {
	r, err := d.s.remote(d.to.CloneURL)
	if err != nil {
		return err
	}
	return d.deepen(ctx, r, "refs/heads/"+d.Into)
}
