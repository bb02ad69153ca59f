package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"deepswe/agent/cli"
	"deepswe/agent/llm"
	"deepswe/env/project"
	"deepswe/env/repo"
)

// longestLook bounds the look around.
const longestLook = 1800 * time.Millisecond

// surroundings are what a first look finds.
type surroundings struct {
	servers []cli.ModelServer
	// works are the kinds of sandboxes that start here, lacks those that do not, with the reason and what to do.
	works []string
	lacks []string
	// root is the repository's directory; empty if there is none, or if git is missing (noGit).
	root  string
	noGit bool
	test  string // the command that runs its tests; empty if none was found
	due   []project.Step
	login string // what is known about the login at the repository's forge; empty without one
}

// lookAround finds out what is here. Its parts run at once; what takes too long counts as missing.
func lookAround(ctx context.Context, d Deps, c cli.Config) surroundings {
	ctx, cancel := context.WithTimeout(ctx, longestLook)
	defer cancel()
	var s surroundings
	var looking sync.WaitGroup
	looking.Go(func() { s.servers = d.Servers(ctx, c) })
	looking.Go(func() { s.works, s.lacks = lookForSandboxes(ctx, d) })
	looking.Go(func() { s.lookAtRepository(ctx, d) })
	looking.Wait()
	return s
}

// lookForSandboxes tries the kinds that isolate what runs in them and are on this machine.
func lookForSandboxes(ctx context.Context, d Deps) (works, lacks []string) {
	kinds := slices.DeleteFunc(slices.Clone(d.SandboxKinds()), func(k cli.SandboxKind) bool {
		return k.Elsewhere != nil || k.Name == cli.EnvHost
	})
	errs := make([]error, len(kinds))
	var trying sync.WaitGroup
	for i, k := range kinds {
		trying.Go(func() {
			p, err := k.Open(ctx, nil, cli.SandboxChoice{})
			if err == nil {
				err = p.Close()
			}
			errs[i] = err
		})
	}
	trying.Wait()
	for i, k := range kinds {
		if errs[i] == nil {
			works = append(works, k.Name)
			continue
		}
		f := failure(k.Name, errs[i], k.Fix)
		lacks = append(lacks, fmt.Sprintf("%s: %s\nto fix: %s", k.Name, cli.FirstLine(f.Detail, 0), f.Fix))
	}
	return works, lacks
}

// lookAtRepository finds the repository around the current directory, its tests, what its set-up lacks, and whether its
// forge is known.
func (s *surroundings) lookAtRepository(ctx context.Context, d Deps) {
	remote, err := repo.Remote(ctx, ".")
	if s.noGit = errors.Is(err, repo.ErrNoGit); s.noGit {
		return
	}
	root, err := repo.Root(ctx, ".")
	head, herr := repo.Head(ctx, ".")
	if err != nil || herr != nil || head == "" && remote == "" {
		return
	}
	s.root = root
	machine := project.FindMachine(d.Getenv)
	s.test, s.due = project.TestCommand(root, machine, nil), project.Due(root, machine)
	if s.login = cli.WithoutPassword(remote); remote != "" {
		s.login += loginAt(ctx, d, remote)
	}
}

// loginAt says whether there is a token for a remote's forge.
func loginAt(ctx context.Context, d Deps, remote string) string {
	client, err := openForge(d)
	if err != nil {
		return ""
	}
	token, variable := client.Login(ctx, remote)
	switch {
	case token:
		return ", with a token"
	case variable != "":
		return ", without a token: public issues only (to fix: export " + variable + "=…)"
	}
	return ""
}

// lines returns what was found as a table of labels and texts for display.
func (s *surroundings) lines() [][2]string {
	var rows [][2]string
	label := "models"
	add := func(text string) {
		rows = append(rows, [2]string{label, text})
		label = ""
	}
	for _, server := range s.servers {
		if server.Problem != nil {
			add(fmt.Sprintf("%s (%s): %s", cli.WithoutPassword(server.BaseURL), server.Source, brief(server.Problem)))
			continue
		}
		add(strings.TrimSpace(server.Name + " at " + cli.WithoutPassword(server.BaseURL)))
		const most = 5
		for i, m := range server.Models {
			if i == most {
				add(fmt.Sprintf("  and %d more", len(server.Models)-most))
				break
			}
			add("  " + describeModel(m))
		}
	}
	if len(s.servers) == 0 {
		add("none answers on this machine, and no variable names one")
	}
	label = "sandbox"
	if len(s.works) > 0 {
		add(strings.Join(s.works, ", "))
	}
	for _, l := range s.lacks {
		if len(s.works) == 0 {
			add(l)
		}
	}
	label = "repository"
	switch {
	case s.noGit:
		add("git is not installed")
	case s.root == "":
		add("none here: solve works on the current directory, or --repo DIR")
	default:
		add(s.root)
		add("tests: " + cmp.Or(s.test, "none found (--test CMD names them)"))
	}
	for _, step := range s.due {
		add("not installed: " + missing(step) + ": solve offers to run " + step.Command)
	}
	if s.login != "" {
		label = "forge"
		add(s.login)
	}
	return rows
}

// brief describes an endpoint's error without its address.
func brief(err error) string {
	if own, ok := errors.AsType[*llm.Error](err); ok {
		if own.Status != 0 {
			return fmt.Sprintf("it answers %d", own.Status)
		}
		return own.Message
	}
	return err.Error()
}

// describeModel says what is known of a served model.
func describeModel(m llm.ServedModel) string {
	text := m.ID
	switch {
	case m.Context > 0 && m.Loaded:
		text += fmt.Sprintf(", loaded with a context of %d", m.Context)
	case m.Context > 0:
		text += fmt.Sprintf(", context %d", m.Context)
	case m.Server() == llm.Ollama:
		text += ", not loaded"
	}
	switch {
	case m.Tools == nil:
	case *m.Tools:
		text += ", calls tools"
	default:
		text += ", calls no tools"
	}
	return text
}
