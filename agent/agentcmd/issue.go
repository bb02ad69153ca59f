package agentcmd

import (
	"bytes"
	"cmp"
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
	"deepswe/env/forge"
	"deepswe/env/repo"
)

// maxStatement is the maximum length of an issue's text in bytes, far above that of any real issue.
const maxStatement = 1 << 20

// issueNumber is how people name an issue: #12 of the repository's own origin, or owner/repo#12 on GitHub.
var issueNumber = regexp.MustCompile(`^([\w.-]+/[\w.-]+)?#(\d+)$`)

// input is what solve works on: a text, or the address of an issue. For an issue of the repository's origin, only the
// number is known at first.
type input struct {
	text   string
	url    string
	number string
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
		in := input{number: m[2]}
		if m[1] != "" {
			in.url = "https://github.com/" + m[1] + "/issues/" + m[2]
		}
		return in, nil
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

// openTask makes the task, and finds or unpacks its repository; a repository on a forge is cloned later.
func (s *solving) openTask(ctx context.Context, in input, open *opened) (*assignment, error) {
	if in.url != "" {
		return s.openIssue(ctx, in.url, open)
	}
	a := &assignment{task: env.Task{Statement: in.text, Image: s.o.Image}}
	var err error
	if s.o.demo {
		a.task.ID, a.task.Source = "demo", "demo"
		if a.target, err = open.makeScratch("demo"); err == nil {
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
	task, err := client.Task(ctx, address)
	switch {
	case err != nil:
		return nil, cli.Usage(err)
	case task.Pull && (s.o.apply != "" || s.o.branch != "" || s.o.Given("repo")):
		return nil, cli.Usagef("work on a pull request happens in a clone of its branch, which gets a further commit with " +
			"--pr: leave out --repo, --apply and --branch")
	}
	a := &assignment{issue: task.URL, task: env.Task{
		ID:     fmt.Sprintf("%s-%d", strings.ReplaceAll(task.Project, "/", "__"), task.Number),
		Source: strings.ToLower(string(task.Kind)), Repo: task.Project, Statement: task.Statement, Image: s.o.Image,
	}}
	if s.o.repoGiven && !task.Pull {
		a.target, err = filepath.Abs(s.o.repo)
		return a, err
	}
	s.o.repoGiven = false
	a.clone = func(ctx context.Context) (string, error) {
		parent, err := open.makeScratch("clone")
		if err != nil {
			return "", err
		}
		dir := filepath.Join(parent, filepath.Base(task.Project))
		s.watch.show(note("cloning " + cmp.Or(task.Branch, task.Project)))
		return dir, cli.Usage(client.Clone(ctx, task, dir))
	}
	return a, nil
}

// openForge returns a client for forges, with the tokens of the environment.
func openForge(d Deps) (*forge.Client, error) {
	client, err := forge.New(forge.Options{
		Getenv: d.Getenv, API: d.Getenv("DEEPSWE_GITHUB_API"), Log: d.Logger(),
	})
	return client, cli.Usage(err)
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
