package agentcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"deepswe/agent/cli"
	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/forge"
	"deepswe/env/repo"
)

// maxStatement is the most that is read of an issue's text: far above any issue, far below any context.
const maxStatement = 1 << 20

// issueNumber is how people name an issue: #12 of the repository's own origin, or owner/repo#12 on GitHub.
var issueNumber = regexp.MustCompile(`^([\w.-]+/[\w.-]+)?#(\d+)$`)

// issueURL returns the address of an issue on GitHub; empty if the repository is not named.
func issueURL(repository, number string) string {
	if repository == "" {
		return ""
	}
	return "https://github.com/" + repository + "/issues/" + number
}

// input is what solve works on: a text, or the address of an issue. For an issue of the repository's origin, only the
// number is known at first.
type input struct {
	text   string
	url    string
	number string
}

// findOrigin turns the number of an issue into its address, by the repository's remote.
func (j *job) findOrigin(ctx context.Context) error {
	if j.in.number == "" || j.in.url != "" {
		return nil
	}
	remote, err := repo.Remote(ctx, j.o.repo)
	if err != nil {
		return cli.Usage(err)
	}
	origin, ok := forge.ParseRemote(remote)
	if !ok {
		return cli.Usagef("#%s is an issue of the repository's origin, and %s has no origin on a host: give the issue's URL",
			j.in.number, j.o.repo)
	}
	if origin.Number, err = strconv.Atoi(j.in.number); err != nil {
		return cli.Usage(err)
	}
	j.in.url = origin.String()
	j.o.repoGiven = true
	return nil
}

// readInput reads the issue that the command line names: an argument, a file, or standard input for "-".
func readInput(args []string, file string, stdin io.Reader) (input, error) {
	switch {
	case len(args) > 0 && file != "":
		return input{}, errors.New("give the issue once: as an argument or with --issue-file")
	case file == "-" || len(args) == 1 && args[0] == "-":
		return statement(stdin, "standard input")
	case file != "":
		f, err := os.Open(file)
		if err != nil {
			return input{}, err
		}
		defer f.Close()
		return statement(f, file)
	case len(args) == 0:
		return input{}, errors.New("nothing to solve: give an issue's URL, its text, - for standard input, " +
			"or --issue-file FILE; --demo shows how it works")
	}
	text := strings.Join(args, " ")
	if info, err := os.Stat(text); err == nil && info.Mode().IsRegular() {
		return input{}, fmt.Errorf("%s is a file: is its content the issue? To fix: --issue-file %s", text, text)
	}
	if m := issueNumber.FindStringSubmatch(text); m != nil {
		return input{number: m[2], url: issueURL(m[1], m[2])}, nil
	}
	if u, err := url.Parse(text); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
		!strings.ContainsAny(text, " \n") {
		if _, err := forge.Parse(text); err != nil {
			return input{}, err
		}
		return input{url: text}, nil
	}
	return statement(strings.NewReader(text), "the argument")
}

func statement(r io.Reader, where string) (input, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxStatement+1))
	if err != nil {
		return input{}, fmt.Errorf("read the issue from %s: %w", where, err)
	}
	switch {
	case len(data) > maxStatement:
		return input{}, fmt.Errorf("the issue from %s is longer than %d bytes: give the part that matters",
			where, maxStatement)
	case len(bytes.TrimSpace(data)) == 0:
		return input{}, fmt.Errorf("the issue from %s is empty", where)
	case !utf8.Valid(data):
		return input{}, fmt.Errorf("the issue from %s is not UTF-8 text", where)
	}
	return input{text: string(data)}, nil
}

// openTask makes the task, and finds or unpacks its repository; one that is to be cloned is left to fetch.
func (j *job) openTask(ctx context.Context) error {
	var err error
	if j.id == "" {
		j.id = j.d.RunID()
	}
	switch {
	case j.o.demo:
		j.task = env.Task{ID: "demo", Source: "demo", Statement: j.in.text, Image: j.o.Image}
		j.target, err = j.scratch("demo")
		if err != nil {
			return err
		}
		return writeDemo(j.d.Demo, j.target)
	case j.in.url != "":
		return j.openIssue(ctx)
	}
	if j.target, err = filepath.Abs(j.o.repo); err != nil {
		return cli.Usage(err)
	}
	j.task = env.Task{ID: filepath.Base(j.target), Source: "text", Statement: j.in.text, Image: j.o.Image}
	return nil
}

// openIssue reads the issue from its host, or the review of a pull request.
func (j *job) openIssue(ctx context.Context) error {
	if !j.o.repoGiven && (j.o.apply != "" || j.o.branch != "") {
		return cli.Usagef("--apply and --branch require --repo DIR")
	}
	client, err := openForge(j.d)
	if err != nil {
		return err
	}
	address, err := forge.Parse(j.in.url)
	if err != nil {
		return cli.Usage(err)
	}
	j.watch.show(note("reading " + j.in.url))
	if address.Pull {
		return j.openReview(ctx, client, address)
	}
	issue, err := client.Issue(ctx, address)
	if errors.Is(err, forge.ErrPull) {
		address.Pull = true
		return j.openReview(ctx, client, address)
	}
	if err != nil {
		return cli.Usage(err)
	}
	j.in.url = issue.URL
	j.task = env.Task{
		ID:     fmt.Sprintf("%s__%s-%d", strings.ReplaceAll(issue.Owner, "/", "__"), issue.Repo, issue.Number),
		Source: strings.ToLower(string(issue.Kind)),
		Repo:   issue.Owner + "/" + issue.Repo, Statement: issue.Statement(), Image: j.o.Image,
	}
	if j.o.repoGiven {
		j.target, err = filepath.Abs(j.o.repo)
		return err
	}
	j.fetch = func(ctx context.Context) error {
		parent, err := j.scratch("clone")
		if err != nil {
			return err
		}
		j.target = filepath.Join(parent, issue.Repo)
		j.watch.show(note("cloning " + j.task.Repo))
		if err := client.Clone(ctx, issue, j.target); err != nil {
			return cli.Usage(err)
		}
		return j.checkTest()
	}
	return nil
}

// openReview makes the task of a pull request's open threads and failed checks. It is worked on in a clone of its
// branch.
func (j *job) openReview(ctx context.Context, client *forge.Client, a forge.Address) error {
	if j.o.apply != "" || j.o.branch != "" || j.o.Given("repo") {
		return cli.Usagef("a pull request is worked on in a clone of its branch, which gets a further commit with " +
			"--pr: leave out --repo, --apply and --branch")
	}
	j.o.repoGiven = false
	review, err := client.Review(ctx, a)
	switch {
	case err != nil:
		return cli.Usage(err)
	case review.Pull.State != "open":
		return cli.Usagef("%s is %s", review.Pull.URL, review.Pull.State)
	case len(review.Threads)+len(review.Checks) == 0:
		return cli.Usagef("%s has no open thread and no failed check", review.Pull.URL)
	}
	j.in.url = review.Pull.URL
	j.task = env.Task{
		ID:     fmt.Sprintf("%s-%d", strings.ReplaceAll(review.Project, "/", "__"), a.Number),
		Source: strings.ToLower(string(review.Kind)), Repo: review.Project, Statement: review.Statement(), Image: j.o.Image,
	}
	j.fetch = func(ctx context.Context) error {
		parent, err := j.scratch("clone")
		if err != nil {
			return err
		}
		j.target = filepath.Join(parent, filepath.Base(review.Project))
		j.watch.show(note("cloning " + review.Pull.Head))
		if err := client.ClonePull(ctx, a, review.Pull, j.target); err != nil {
			return cli.Usage(err)
		}
		return j.checkTest()
	}
	return nil
}

// openForge returns a client for forges, with the tokens of the environment.
func openForge(d Deps) (*forge.Client, error) {
	client, err := forge.New(forge.Options{
		Getenv: d.Getenv, API: d.Getenv("DEEPSWE_GITHUB_API"), Log: d.Logger(),
	})
	return client, cli.Usage(err)
}

// scratch makes a directory that goes away with the job.
func (j *job) scratch(what string) (string, error) {
	dir, err := disk.MakeScratch("", what)
	if err == nil {
		j.onClose(func() error { return disk.RemoveScratch(dir) })
	}
	return dir, err
}

// The parts of the demo. Its go.mod is stored under another name, because a folder with a go.mod of its own cannot be
// embedded.
const (
	demoRepo       = "repo"
	demoStatement  = "issue.md"
	demoTrajectory = "trajectory.json"
	storedSuffix   = ".txt"
)

func openDemo(demo fs.FS) (*trajectory.Recording, error) {
	data, err := fs.ReadFile(demo, demoTrajectory)
	if err != nil {
		return nil, err
	}
	return trajectory.Parse(data)
}

// writeDemo puts the demo's repository into the directory.
func writeDemo(demo fs.FS, dir string) error {
	return fs.WalkDir(demo, demoRepo, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(demo, path)
		if err != nil {
			return err
		}
		name := filepath.FromSlash(strings.TrimPrefix(path, demoRepo+"/"))
		to := filepath.Join(dir, strings.TrimSuffix(name, storedSuffix))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	})
}
