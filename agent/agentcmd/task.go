package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/forge"
	"deepswe/env/repo"
)

// assignment is what a run works on.
type assignment struct {
	id, run string // the run's ID, and its directory
	issue   string // its address; empty for a text
	task    env.Task
	target  string // the repository on this machine; empty until it is cloned
	// clone makes the repository, and returns where it is; nil if it is there.
	clone func(ctx context.Context) (string, error)
	test  testCommand
	past  *resumed // the run that goes on; nil for a new one
}

// admit judges all that the command line names, before the endpoint is asked and anything is cloned or copied.
func (s *solving) admit(ctx context.Context, args []string, open *opened) (*assignment, error) {
	var past *resumed
	var err error
	if s.o.resume != "" || s.o.further != "" {
		if past, err = s.takeUp(args, open); err != nil {
			return nil, err
		}
	}
	if err := s.o.complete(s.d.World); err != nil {
		return nil, err
	}
	in, err := s.o.input(args, past, s.d)
	if err != nil {
		return nil, cli.Usage(err)
	}
	if err := s.findOrigin(ctx, &in); err != nil {
		return nil, err
	}
	if err := s.check(ctx, in); err != nil {
		return nil, err
	}
	a, err := s.openTask(ctx, in, open)
	if err != nil {
		return nil, err
	}
	if a.past = past; past != nil {
		a.id, a.run = past.Manifest.ID, past.path
		a.task.ID, a.task.Source, a.task.Statement = past.settings.Task, past.settings.Source, past.settings.Statement
	} else if a.id, a.run, err = s.nameRun(); err != nil {
		return nil, cli.Usage(err)
	}
	if a.clone != nil {
		return a, nil
	}
	if err := s.checkTree(ctx, a.target); err != nil {
		return nil, err
	}
	a.test, err = s.findTest(a.target)
	return a, err
}

// findOrigin turns the number of an issue into its address, by the repository's remote.
func (s *solving) findOrigin(ctx context.Context, in *input) error {
	if in.number == "" || in.url != "" {
		return nil
	}
	remote, err := repo.Remote(ctx, s.o.repo)
	if err != nil {
		return cli.Usage(err)
	}
	origin, ok := forge.ParseRemote(remote)
	if !ok {
		return cli.Usagef("#%s is an issue of the repository's origin, and %s has no origin on a host: give the issue's URL",
			in.number, s.o.repo)
	}
	if origin.Number, err = strconv.Atoi(in.number); err != nil {
		return cli.Usage(err)
	}
	in.url = origin.String()
	s.o.repoGiven = true
	return nil
}

// check validates what the command line names.
func (s *solving) check(ctx context.Context, in input) error {
	if _, err := exec.LookPath("git"); err != nil {
		return cli.Usage(repo.ErrNoGit)
	}
	if _, err := exec.LookPath("go"); err != nil && s.o.demo && s.o.Image == "" {
		return cli.Usagef("the demo's tests are Go tests, and go is not installed, or not on PATH")
	}
	if info, err := os.Stat(s.o.dockerfile); s.o.dockerfile != "" && (err != nil || !info.Mode().IsRegular()) {
		return cli.Usage(cmp.Or(err, fmt.Errorf("--dockerfile %s is not a file", s.o.dockerfile)))
	}
	if s.o.demo || in.url != "" && !s.o.repoGiven {
		return nil // the repository is still to come
	}
	if info, err := os.Stat(s.o.repo); err != nil {
		return cli.Usagef("--repo: %w", err)
	} else if !info.IsDir() {
		return cli.Usagef("--repo %s is not a directory", s.o.repo)
	}
	if s.o.branch != "" {
		return cli.Usage(repo.CheckBranch(ctx, s.o.repo, s.o.branch))
	}
	return nil
}

// nameRun chooses the run's ID and its directory: the one that --out names, or a new one in the default location.
func (s *solving) nameRun() (id, path string, err error) {
	id = s.id
	if id == "" {
		id = s.d.RunID()
	}
	path, err = filepath.Abs(cmp.Or(s.o.out, s.d.RunDir(id)))
	if err == nil && run.Exists(path) {
		err = fmt.Errorf("%s holds a run already: choose another --out", path)
	}
	return id, path, err
}

// checkTree warns of uncommitted changes where a branch is asked for, which cannot carry them.
func (s *solving) checkTree(ctx context.Context, target string) error {
	if s.o.branch == "" || s.o.demo {
		return nil
	}
	changed, err := repo.Modified(ctx, target)
	if err != nil || len(changed) == 0 {
		return err
	}
	s.d.Logger().Warn("the repository has uncommitted changes, which the branch will not hold: where the fix touches "+
		"the same lines, it cannot be committed; commit or stash them first",
		"files", cli.Cut(strings.Join(changed, " "), 200))
	return nil
}

// openTask makes the task, and finds or unpacks its repository; one of a forge is left to be cloned.
func (s *solving) openTask(ctx context.Context, in input, open *opened) (*assignment, error) {
	if in.url != "" {
		return s.openIssue(ctx, in.url, open)
	}
	a := &assignment{task: env.Task{Statement: in.text, Image: s.o.Image}}
	var err error
	if s.o.demo {
		a.task.ID, a.task.Source = "demo", "demo"
		if a.target, err = open.scratch("demo"); err == nil {
			err = writeDemo(s.d.Demo, a.target)
		}
		return a, err
	}
	if a.target, err = filepath.Abs(s.o.repo); err != nil {
		return nil, cli.Usage(err)
	}
	a.task.ID, a.task.Source = filepath.Base(a.target), "text"
	return a, nil
}

// openIssue reads the issue from its host, or the review of a pull request.
func (s *solving) openIssue(ctx context.Context, url string, open *opened) (*assignment, error) {
	if !s.o.repoGiven && (s.o.apply != "" || s.o.branch != "") {
		return nil, cli.Usagef("--apply and --branch require --repo DIR")
	}
	client, err := openForge(s.d)
	if err != nil {
		return nil, err
	}
	address, err := forge.Parse(url)
	if err != nil {
		return nil, cli.Usage(err)
	}
	s.watch.show(note("reading " + url))
	if address.Pull {
		return s.openReview(ctx, client, address, open)
	}
	issue, err := client.Issue(ctx, address)
	if errors.Is(err, forge.ErrPull) {
		address.Pull = true
		return s.openReview(ctx, client, address, open)
	}
	if err != nil {
		return nil, cli.Usage(err)
	}
	a := &assignment{issue: issue.URL, task: env.Task{
		ID:     fmt.Sprintf("%s__%s-%d", strings.ReplaceAll(issue.Owner, "/", "__"), issue.Repo, issue.Number),
		Source: strings.ToLower(string(issue.Kind)),
		Repo:   issue.Owner + "/" + issue.Repo, Statement: issue.Statement(), Image: s.o.Image,
	}}
	if s.o.repoGiven {
		a.target, err = filepath.Abs(s.o.repo)
		return a, err
	}
	a.clone = s.cloner(open, a.task.Repo, issue.Repo, func(ctx context.Context, dir string) error {
		return client.Clone(ctx, issue, dir)
	})
	return a, nil
}

// openReview makes the task of a pull request's open threads and failed checks. It is worked on in a clone of its
// branch.
func (s *solving) openReview(
	ctx context.Context, client *forge.Client, address forge.Address, open *opened,
) (*assignment, error) {
	if s.o.apply != "" || s.o.branch != "" || s.o.Given("repo") {
		return nil, cli.Usagef("a pull request is worked on in a clone of its branch, which gets a further commit with " +
			"--pr: leave out --repo, --apply and --branch")
	}
	s.o.repoGiven = false
	review, err := client.Review(ctx, address)
	switch {
	case err != nil:
		return nil, cli.Usage(err)
	case review.Pull.State != "open":
		return nil, cli.Usagef("%s is %s", review.Pull.URL, review.Pull.State)
	case len(review.Threads)+len(review.Checks) == 0:
		return nil, cli.Usagef("%s has no open thread and no failed check", review.Pull.URL)
	}
	return &assignment{
		issue: review.Pull.URL,
		task: env.Task{
			ID:     fmt.Sprintf("%s-%d", strings.ReplaceAll(review.Project, "/", "__"), address.Number),
			Source: strings.ToLower(string(review.Kind)), Repo: review.Project, Statement: review.Statement(), Image: s.o.Image,
		},
		clone: s.cloner(open, review.Pull.Head, filepath.Base(review.Project), func(ctx context.Context, dir string) error {
			return client.ClonePull(ctx, address, review.Pull, dir)
		}),
	}, nil
}

// cloner returns what clones what into a directory of the name.
func (s *solving) cloner(
	open *opened, what, name string, clone func(ctx context.Context, dir string) error,
) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		parent, err := open.scratch("clone")
		if err != nil {
			return "", err
		}
		dir := filepath.Join(parent, name)
		s.watch.show(note("cloning " + what))
		return dir, cli.Usage(clone(ctx, dir))
	}
}
