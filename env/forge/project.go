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
	Path string // owner/name, with all groups on GitLab
	// CloneURL and DefaultBranch are those of git.
	CloneURL      string
	DefaultBranch string
	URL           string
	// Push reports whether the token may push branches.
	Push     bool
	Archived bool

	id    int    // GitLab's
	owner string // the first part of Path
}

type projectJSON struct {
	FullName      string `json:"full_name"`
	CloneURL      string `json:"clone_url"`
	DefaultBranch string `json:"default_branch"`
	HTMLURL       string `json:"html_url"`
	Archived      bool   `json:"archived"`

	// GitLab
	ID        int    `json:"id"`
	Namespace string `json:"path_with_namespace"`
	HTTPURL   string `json:"http_url_to_repo"`
	WebURL    string `json:"web_url"`

	Parent *struct {
		FullName string `json:"full_name"`
	} `json:"parent"`

	Permissions struct {
		Push    bool    `json:"push"`
		Project *access `json:"project_access"`
		Group   *access `json:"group_access"`
	} `json:"permissions"`
}

// access is GitLab's level of rights.
type access struct {
	Level int `json:"access_level"`
}

// developer is the level from which on GitLab lets push.
const developer = 30

func (a *access) pushes() bool { return a != nil && a.Level >= developer }

func (s *session) parsed(got projectJSON, path string) Project {
	p := Project{
		Path: cmp.Or(got.FullName, got.Namespace, path), CloneURL: cmp.Or(got.CloneURL, got.HTTPURL), id: got.ID,
		DefaultBranch: got.DefaultBranch, URL: cmp.Or(got.HTMLURL, got.WebURL), Archived: got.Archived,
		Push: got.Permissions.Push || got.Permissions.Project.pushes() || got.Permissions.Group.pushes(),
	}
	p.owner, _, _ = strings.Cut(p.Path, "/")
	if p.CloneURL == "" {
		p.CloneURL = s.web.String() + "/" + p.Path + ".git"
	}
	return p
}

// path is that of the repository in the API.
func (s *session) path() string { return s.pathOf(s.project) }

func (s *session) pathOf(project string) string {
	if s.kind == GitLab {
		return "/projects/" + url.PathEscape(project)
	}
	return "/repos/" + project
}

func (s *session) repository(ctx context.Context, path string) (Project, error) {
	var got projectJSON
	if _, err := s.get(ctx, s.pathOf(path), "", &got); err != nil {
		return Project{}, err
	}
	return s.parsed(got, path), nil
}

// login is the name of the token's account.
func (s *session) login(ctx context.Context) (string, error) {
	var me user
	if _, err := s.get(ctx, "/user", "", &me); err != nil {
		return "", fmt.Errorf("ask whose token it is: %w", err)
	}
	return me.name(), nil
}

// findFork returns the account's fork of a repository, or false if it is not known.
func (s *session) findFork(ctx context.Context, of Project) (Project, bool, error) {
	if s.kind == GitLab {
		var forks []projectJSON
		_, err := s.get(ctx, s.path()+"/forks", "owned=true&per_page=100", &forks)
		if err != nil || len(forks) == 0 {
			return Project{}, false, err
		}
		return s.parsed(forks[0], ""), true, nil
	}
	me, err := s.login(ctx)
	if err != nil {
		return Project{}, false, err
	}
	path := me + of.Path[strings.LastIndex(of.Path, "/"):]
	var got projectJSON
	_, err = s.get(ctx, s.pathOf(path), "", &got)
	switch {
	case status(err) == http.StatusNotFound:
		return Project{}, false, nil
	case err != nil:
		return Project{}, false, err
	}
	return s.parsed(got, path), got.Parent != nil && got.Parent.FullName == of.Path, nil
}

// forkPath is how Gitea names the fork that is there already.
var forkPath = env.Pattern(`fork path: ([\w.-]+/[\w.-]+)`)

// fork makes a fork, or returns the one that is there. It may not be ready yet.
func (s *session) fork(ctx context.Context, of Project) (Project, error) {
	path := s.path() + "/forks"
	if s.kind == GitLab {
		path = s.path() + "/fork"
	}
	var got projectJSON
	var existing Project
	there := func() (found bool) {
		existing, found, _ = s.findFork(ctx, of)
		return found
	}
	err := s.send(ctx, http.MethodPost, path, map[string]any{}, &got, there)
	if status(err) == http.StatusConflict {
		if m := forkPath().FindStringSubmatch(err.Error()); m != nil {
			return s.repository(ctx, m[1])
		}
		if there() {
			return existing, nil
		}
	}
	if existing.Path != "" {
		return existing, err
	}
	if err != nil {
		return Project{}, fmt.Errorf("fork %s: %w", of.Path, err)
	}
	return s.parsed(got, ""), nil
}
