package forge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env/repo"
)

// Via is how a change gets to a forge.
type Via string

// The ways. Auto means Branch if the token may push to the repository, and Fork otherwise.
const (
	Auto   Via = "auto"
	Branch Via = "branch"
	Fork   Via = "fork"
	AGit   Via = "agit" // a push alone opens it: on Gitea without a fork, on GitLab by push options
)

// Proposal is a change that is to become a pull request or, if To is a pull request, a further commit of that. Title,
// Summary, Verified and Made are text that may have been generated.
type Proposal struct {
	// To is an issue, which the pull request will close, a repository, or a pull request.
	To    Address
	Patch []byte
	// Base is the branch to merge into; empty means the default branch. Branch is the branch to push; empty means one
	// that is named after the issue or the run.
	Base, Branch string
	Via          Via
	Ready        bool // no draft
	Run          string
	Title        string
	Summary      string
	Verified     string
	Made         string
	// Name and Email are the committer's.
	Name, Email string
	// Allow holds the classes of [Concern] that a person has agreed to.
	Allow []string
	// Answers are what to reply to threads, by their IDs.
	Answers map[string]string
}

// Draft is a change that is ready to be pushed. Nothing has left the machine yet.
type Draft struct {
	// Project and Into are the repository and the branch that the change is for; From and Branch are those that it is
	// pushed to. From is empty if the fork does not exist yet.
	Project, Into, From, Branch string
	Via                         Via
	Title, Body, Message        string
	Commit                      string
	// Changes are all changes that the branch will contain, including those of earlier runs.
	Changes []repo.Change
	// Concerns are what a person has to agree to, and has not.
	Concerns []Concern
	// Updates is the page of the pull request that gets a further commit; empty for a new one.
	Updates   string
	SignedOff bool

	p       Proposal
	s       *session
	dir     string
	to      Project
	from    Project
	fresh   bool // the fork is still to be made
	nothing bool // the branch has this content already
	old     *Pull
	threads []Thread
	opens   int // the number of the pull request that the push has opened, with AGit
}

// Published is a pull request that was opened or updated.
type Published struct {
	Number int    `json:"number"`
	URL    string `json:"url"`
	Branch string `json:"branch"`
	Commit string `json:"commit"`
	Draft  bool   `json:"draft"`
	// Updated is set where the pull request was there before.
	Updated bool `json:"updated,omitempty"`
	// Answered counts the threads that got a reply.
	Answered int `json:"answered,omitempty"`
}

// ErrForeign is the error of a branch that holds commits of others: they are never overwritten.
var ErrForeign = errors.New("the branch holds commits that are not deepswe's")

// CheckToken returns an error if there is no token to open a pull request with.
func (c *Client) CheckToken(ctx context.Context, to Address) error {
	_, err := c.openToWrite(ctx, to)
	return err
}

func (c *Client) openToWrite(ctx context.Context, to Address) (*session, error) {
	s, err := c.open(ctx, to)
	if err == nil && s.secret == "" {
		text := fmt.Sprintf("a pull request on %s needs a token: set %s, or log in with %s; %s", s.web.Host,
			tokenName(s.kind), dialects[s.kind].client[0], s.withheld(s.site))
		err = errors.New(strings.TrimSuffix(text, "; "))
	}
	return s, err
}

// Prepare makes the commit in a new clone in dir, and decides where it goes. dir must be empty, and stays the
// caller's. Prepare reads from the forge, and writes nothing there.
func (c *Client) Prepare(ctx context.Context, p Proposal, dir string) (*Draft, error) {
	s, err := c.openToWrite(ctx, p.To)
	if err != nil {
		return nil, err
	}
	said := append(slices.Collect(maps.Values(p.Answers)), string(p.Patch), p.Title, p.Summary, p.Verified)
	if slices.ContainsFunc(said, func(text string) bool { return strings.Contains(text, s.secret) }) {
		return nil, fmt.Errorf("the change contains the token for %s: nothing leaves this machine", s.web.Host)
	}
	d := &Draft{p: p, s: s, dir: filepath.Join(dir, "clone"), Via: cmp.Or(p.Via, Auto)}
	if d.to, err = s.repository(ctx, s.project); err != nil {
		return nil, fmt.Errorf("read the repository %s: %w", s.project, err)
	}
	d.Project, s.project = d.to.Path, d.to.Path // a write needs the new address of what was moved
	if d.to.Archived {
		return nil, fmt.Errorf("%s is archived: nothing can be changed there", d.Project)
	}
	d.Title = clip(inert(oneLine(p.Title)), 72)
	if p.To.Pull {
		err = d.further(ctx)
	} else {
		err = d.fromIssue(ctx)
	}
	if err != nil {
		return nil, err
	}
	all, err := concerns(ctx, d.dir, d.Changes)
	for _, found := range all {
		if !slices.Contains(p.Allow, found.Class) {
			d.Concerns = append(d.Concerns, found)
		}
	}
	return d, err
}

// fromIssue prepares a new pull request, or a further commit of the one that an earlier run has opened.
func (d *Draft) fromIssue(ctx context.Context) error {
	p, s := &d.p, d.s
	d.Into, d.Branch = cmp.Or(p.Base, d.to.DefaultBranch), cmp.Or(p.Branch, "deepswe/"+p.Run)
	issue, closes := "", ""
	if p.To.Number != 0 {
		found, err := s.issue(ctx, p.To.Number)
		if err != nil {
			return fmt.Errorf("read issue %s#%d: %w", s.project, p.To.Number, err)
		}
		if found.State != "open" {
			s.o.Log.Warn("the issue is "+found.State, "issue", found.URL)
		}
		d.Branch = cmp.Or(p.Branch, fmt.Sprintf("deepswe/issue-%d", found.Number))
		issue, closes = found.URL, fmt.Sprintf("Fixes #%d", found.Number)
	}
	if err := d.choose(ctx); err != nil {
		return err
	}
	if err := s.clone(ctx, d.to.CloneURL, d.Into, d.dir); err != nil {
		return fmt.Errorf("clone %s: %w", d.Project, err)
	}
	base, err := repo.Head(ctx, d.dir)
	if err != nil {
		return err
	}
	start, parent, err := d.existing(ctx, base)
	if err != nil {
		return err
	}
	asked, err := d.commit(ctx, base, start, parent, issue)
	d.Body = p.body(asked, closes, d.Branch)
	return err
}

// further prepares a further commit on the branch of a pull request.
func (d *Draft) further(ctx context.Context) error {
	p, s := &d.p, d.s
	pull, err := s.pull(ctx, p.To.Number)
	switch {
	case err != nil:
		return fmt.Errorf("read pull request %s#%d: %w", s.project, p.To.Number, err)
	case pull.State != "open":
		return fmt.Errorf("%s is %s: only an open pull request can get a further commit", pull.URL, pull.State)
	case pull.Head.Repo.CloneURL == "":
		return fmt.Errorf("the repository of the branch of %s is gone", pull.URL)
	}
	d.old, d.from, d.Updates = &pull, pull.Head.Repo, pull.URL
	d.Into, d.From, d.Branch, d.Via = pull.Base.Ref, pull.Head.Repo.Path, pull.Head.Ref, Branch
	if err = s.clone(ctx, d.from.CloneURL, d.Branch, d.dir); err != nil {
		return fmt.Errorf("clone %s: %w", d.From, err)
	}
	tip, err := repo.Head(ctx, d.dir)
	if err != nil {
		return err
	}
	if d.threads, err = s.threads(ctx, pull); err != nil {
		return err
	}
	_, err = d.commit(ctx, tip, tip, tip, "")
	return err
}

// choose decides where the branch is pushed to.
func (d *Draft) choose(ctx context.Context) error {
	if d.Via == AGit && d.s.kind == GitHub {
		return errors.New("on GitHub, a push alone opens no pull request: choose a branch or a fork")
	}
	if d.Via == Auto {
		if d.Via = Fork; d.to.pushes() {
			d.Via = Branch
		}
	}
	if d.Via != Fork {
		d.from, d.From = d.to, d.to.Path
		return nil
	}
	fork, found, err := d.s.findFork(ctx, d.to)
	if d.fresh = !found; found {
		d.from, d.From = fork, fork.Path
	}
	return err
}

// existing looks whether the branch is there already, and returns the commit that the patch is applied to and the one
// that the new commit follows.
func (d *Draft) existing(ctx context.Context, base string) (start, parent string, err error) {
	if d.fresh {
		return base, base, nil
	}
	r, err := d.s.remote(d.from.CloneURL)
	if err != nil {
		return "", "", err
	}
	pull, found, err := d.s.findPull(ctx, d.from, d.Branch)
	if err != nil {
		return "", "", err
	}
	ref := "refs/heads/" + d.Branch
	if found {
		d.old, d.Updates = &pull, pull.URL
		if d.Via == AGit && d.s.kind == Gitea {
			ref = fmt.Sprintf("refs/pull/%d/head", pull.Number)
		}
	}
	listed, err := r.git(ctx, d.dir, "ls-remote", r.url.String(), ref)
	if err != nil || listed == "" {
		return base, base, err
	}
	tip := strings.Fields(listed)[0]
	if _, err = r.git(ctx, d.dir, "fetch", "--quiet", "--no-tags", "--depth", depth, r.url.String(), ref); err != nil {
		return "", "", err
	}
	log, err := repo.Log(ctx, d.dir, base, tip)
	isForeign := func(c repo.Logged) bool { return !ours(c) }
	if err == nil && slices.ContainsFunc(log, isForeign) { // foreign, or the clone is too shallow to tell
		if err = d.deepen(ctx, r, ref); err == nil {
			log, err = repo.Log(ctx, d.dir, base, tip)
		}
	}
	if err != nil {
		return "", "", err
	}
	if i := slices.IndexFunc(log, isForeign); i >= 0 {
		return "", "", fmt.Errorf("%w: %s of %s has %.10s by %s. Nothing was pushed; --branch NAME chooses another",
			ErrForeign, d.Branch, d.from.Path, log[i].ID, clip(oneLine(log[i].Author), 60))
	}
	if len(log) == 0 { // it was merged, or holds nothing yet
		return base, tip, nil
	}
	return log[len(log)-1].Parent, tip, nil
}

// commit makes the commit by the customs that the project's files at the base state, and returns these customs.
func (d *Draft) commit(ctx context.Context, base, start, parent, issue string) (customs, error) {
	asked, err := readCustoms(ctx, d.dir, base, d.s.kind)
	if err != nil {
		return asked, err
	}
	tree, err := repo.Patched(ctx, d.dir, start, d.p.Patch)
	if errors.Is(err, repo.ErrConflict) {
		return asked, fmt.Errorf("%w, which is %s of %s (--base names another branch)", err, d.Into, d.Project)
	}
	if err != nil {
		return asked, err
	}
	d.SignedOff = asked.signOff
	d.Message = d.p.message(issue, tree, d.SignedOff)
	if d.Commit, err = repo.Commit(ctx, d.dir, tree, parent, d.p.Name, d.p.Email, d.Message); err != nil {
		return asked, err
	}
	since, err := repo.Changes(ctx, d.dir, parent, d.Commit)
	if err != nil {
		return asked, err
	}
	if d.nothing = len(since) == 0; d.nothing && d.Updates == "" {
		return asked, fmt.Errorf("%s of %s has these changes already", d.Into, d.Project)
	}
	// What a person sees and agrees to is the whole, not what differs from an earlier run.
	if d.Changes, err = repo.Changes(ctx, d.dir, start, d.Commit); d.nothing {
		d.Commit = parent
	}
	return asked, err
}

// ErrConcerns refuses to publish a draft that still has concerns that nobody has agreed to.
var ErrConcerns = errors.New("the change touches what needs a person's consent")

// Publish pushes the commit, and opens the pull request or updates it.
func (d *Draft) Publish(ctx context.Context) (Published, error) {
	if len(d.Concerns) > 0 {
		return Published{}, ErrConcerns
	}
	s := d.s
	done := Published{Branch: d.Branch, Commit: d.Commit, Updated: d.old != nil}
	if d.fresh {
		fork, err := s.fork(ctx, d.to)
		if err != nil {
			return done, err
		}
		d.from, d.From = fork, fork.Path
	}
	if !d.nothing {
		if err := d.push(ctx); err != nil {
			return done, fmt.Errorf("push %s to %s: %w", d.Branch, d.From, err)
		}
	}
	pull, err := d.opened(ctx)
	if err != nil {
		return done, err
	}
	done.Number, done.URL, done.Draft = pull.Number, pull.URL, pull.Draft
	done.Answered, err = d.answer(ctx)
	return done, err
}

// opened returns the pull request of the branch: the existing one, whose text is replaced if it is still one of ours,
// or a new one.
func (d *Draft) opened(ctx context.Context) (Pull, error) {
	s := d.s
	if d.p.To.Pull {
		return *d.old, nil
	}
	if d.old == nil && d.Via == AGit {
		if d.opens == 0 {
			return Pull{}, errors.New("the forge accepted the push, but names no pull request for it")
		}
		if err := s.setBody(ctx, d.opens, d.Body); err != nil {
			return Pull{}, err
		}
		return s.pull(ctx, d.opens)
	}
	if d.old == nil {
		return d.open(ctx)
	}
	if !sealed(d.old.Body) || d.old.Body == d.Body {
		return *d.old, nil // a person has edited it
	}
	return *d.old, s.setBody(ctx, d.old.Number, d.Body)
}
