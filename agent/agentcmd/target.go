package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/env/github"
)

// openTask makes the task and finds, clones or unpacks its repository.
func (j *job) openTask(ctx context.Context) error {
	var err error
	j.id = j.d.RunID()
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

// openIssue reads the issue from its host, and clones its repository unless --repo names a copy.
func (j *job) openIssue(ctx context.Context) error {
	client, err := github.New(github.Options{
		Token: cli.First(j.d.Getenv("GITHUB_TOKEN"), j.d.Getenv("GH_TOKEN")), API: j.d.Getenv("DEEPSWE_GITHUB_API"), Log: j.d.Log,
	})
	if err != nil {
		return cli.Usage(err)
	}
	j.watch.show(note("reading " + j.in.url))
	issue, err := client.Issue(ctx, j.in.url)
	if err != nil {
		return cli.Usage(err)
	}
	j.task = env.Task{
		ID: fmt.Sprintf("%s__%s-%d", issue.Owner, issue.Repo, issue.Number), Source: "github",
		Repo: issue.Owner + "/" + issue.Repo, Statement: issue.Statement(), Image: j.o.Image,
	}
	if j.o.repoGiven {
		j.target, err = filepath.Abs(j.o.repo)
		return err
	}
	if j.o.apply || j.o.branch != "" {
		return cli.Usage(errors.New("--apply and --branch need a repository of yours: say --repo DIR"))
	}
	parent, err := j.scratch("clone")
	if err != nil {
		return err
	}
	j.target = filepath.Join(parent, issue.Repo)
	j.watch.show(note("cloning " + j.task.Repo))
	if err := client.Clone(ctx, issue, j.target); err != nil {
		return cli.Usage(err)
	}
	return nil
}

// scratch makes a directory that goes away with the job.
func (j *job) scratch(what string) (string, error) {
	dir, err := disk.MakeScratch("", what)
	if err != nil {
		return "", err
	}
	j.onClose(func() error { return disk.RemoveScratch(dir) })
	return dir, nil
}
