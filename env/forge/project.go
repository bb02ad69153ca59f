package forge

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"deepswe/env"
)

// Project is a repository on a forge.
type Project struct {
	Path string `json:"full_name"` // owner/name, with all groups on GitLab
	// CloneURL and DefaultBranch are for git.
	CloneURL      string `json:"clone_url"`
	DefaultBranch string `json:"default_branch"`
	Archived      bool   `json:"archived"`
	ID            int    `json:"id"`
	Parent        *struct {
		Path string `json:"full_name"`
	} `json:"parent"` // of a fork
	Permissions struct {
		Push    bool    `json:"push"`
		Project *access `json:"project_access"` // GitLab
		Group   *access `json:"group_access"`   // GitLab
	} `json:"permissions"`
}

// access is GitLab's level of rights.
type access struct {
	Level int `json:"access_level"`
}

// developer is the lowest level at which GitLab allows pushing.
const developer = 30

func (a *access) pushes() bool { return a != nil && a.Level >= developer }

// pushes reports whether the token may push branches.
func (p Project) pushes() bool {
	return p.Permissions.Push || p.Permissions.Project.pushes() || p.Permissions.Group.pushes()
}

// owner returns the first element of the path.
func (p Project) owner() string {
	owner, _, _ := strings.Cut(p.Path, "/")
	return owner
}

// path returns the repository's path in the API.
func (s *session) path() string { return s.pathOf(s.project) }

func (s *session) pathOf(project string) string {
	if s.kind == GitLab {
		project = url.PathEscape(project)
	}
	return dialects[s.kind].projects + project
}

func (s *session) repository(ctx context.Context, path string) (Project, error) {
	var p Project
	_, err := s.get(ctx, s.pathOf(path), "", &p)
	p.Path = cmp.Or(p.Path, path)
	p.CloneURL = cmp.Or(p.CloneURL, s.web.String()+"/"+p.Path+".git")
	return p, err
}

// login returns the name of the token's account.
func (s *session) login(ctx context.Context) (string, error) {
	var me user
	if _, err := s.get(ctx, "/user", "", &me); err != nil {
		return "", fmt.Errorf("look up the account of the token: %w", err)
	}
	return me.name(), nil
}

// findFork returns the account's fork of a repository, or false if none is found.
func (s *session) findFork(ctx context.Context, of Project) (Project, bool, error) {
	if s.kind == GitLab {
		var forks []Project
		_, err := s.get(ctx, s.path()+"/forks", "owned=true&per_page=100", &forks)
		if err != nil || len(forks) == 0 {
			return Project{}, false, err
		}
		return forks[0], true, nil
	}
	me, err := s.login(ctx)
	if err != nil {
		return Project{}, false, err
	}
	for _, name := range []string{of.Path[strings.LastIndex(of.Path, "/")+1:], of.otherName()} {
		p, err := s.repository(ctx, me+"/"+name)
		switch {
		case status(err) == http.StatusNotFound:
		case err != nil:
			return p, false, err
		case p.Parent != nil && p.Parent.Path == of.Path:
			return p, true, nil
		}
	}
	return Project{}, false, nil
}

// otherName returns the name for a fork whose usual name is taken.
func (p Project) otherName() string { return strings.ReplaceAll(p.Path, "/", "-") }

// forkPath matches the name of the existing fork in Gitea's message.
var forkPath = env.Pattern(`fork path: ([\w.-]+/[\w.-]+)`)

// fork makes a fork, or returns the existing one. A new fork may not be ready yet.
func (s *session) fork(ctx context.Context, of Project) (Project, error) {
	fork := func(body map[string]any) (Project, error) {
		find := func() (Project, bool, error) { return s.findFork(ctx, of) }
		return create(ctx, s, s.path()+dialects[s.kind].forks, body, find)
	}
	got, err := fork(map[string]any{})
	if status(err) == http.StatusConflict {
		if m := forkPath().FindStringSubmatch(err.Error()); m != nil {
			return s.repository(ctx, m[1])
		}
		got, err = fork(map[string]any{"name": of.otherName(), "path": of.otherName()})
	}
	if err != nil {
		return Project{}, fmt.Errorf("fork %s: %w", of.Path, err)
	}
	return got, nil
}
