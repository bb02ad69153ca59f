package forge

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Pull is a pull request.
type Pull struct {
	Number int
	URL    string
	Title  string
	Body   string
	State  string // open, or closed or merged
	Author string
	Draft  bool
	// Base and Head are branches; HeadSHA is the commit at the head.
	Base, Head, HeadSHA string
	// From is the repository of the head; its path is empty if that is gone.
	From Project
}

type pullJSON struct {
	Number  int    `json:"number"`
	HTMLURL string `json:"html_url"`
	Title   string `json:"title"`
	Body    string `json:"body"`
	State   string `json:"state"`
	User    *user  `json:"user"`
	Draft   bool   `json:"draft"`
	Base    struct {
		Ref string `json:"ref"`
	} `json:"base"`
	Head struct {
		Ref   string       `json:"ref"`
		Label string       `json:"label"`
		SHA   string       `json:"sha"`
		Repo  *projectJSON `json:"repo"`
	} `json:"head"`

	// GitLab
	IID          int    `json:"iid"`
	WebURL       string `json:"web_url"`
	Description  string `json:"description"`
	Author       *user  `json:"author"`
	SourceBranch string `json:"source_branch"`
	TargetBranch string `json:"target_branch"`
	Source       int    `json:"source_project_id"`
	SHA          string `json:"sha"`
}

func (s *session) pullOf(got pullJSON) Pull {
	p := Pull{
		Number: cmp.Or(got.Number, got.IID), URL: cmp.Or(got.HTMLURL, got.WebURL), Title: oneLine(got.Title),
		Body: cmp.Or(got.Body, got.Description), State: strings.Replace(got.State, "opened", "open", 1), Draft: got.Draft,
		Author: cmp.Or(got.User, got.Author).name(), Base: cmp.Or(got.Base.Ref, got.TargetBranch),
		Head: cmp.Or(got.Head.Ref, got.SourceBranch), HeadSHA: cmp.Or(got.Head.SHA, got.SHA),
	}
	if got.Head.Repo != nil {
		p.From = s.parsed(*got.Head.Repo, "")
	}
	p.From.id = cmp.Or(p.From.id, got.Source)
	return p
}

// pulls is the path of the repository's pull requests, or of one of them.
func (s *session) pulls(number int) string {
	path := s.path() + "/pulls"
	if s.kind == GitLab {
		path = s.path() + "/merge_requests"
	}
	if number != 0 {
		path += fmt.Sprintf("/%d", number)
	}
	return path
}

// pull reads a pull request.
func (s *session) pull(ctx context.Context, number int) (Pull, error) {
	var got pullJSON
	if _, err := s.get(ctx, s.pulls(number), "", &got); err != nil {
		return Pull{}, err
	}
	p := s.pullOf(got)
	if p.Title == "" || p.HeadSHA == "" {
		return Pull{}, fmt.Errorf("the response of %s is not a pull request of %s", s.api.Host, s.kind)
	}
	if s.kind == GitLab {
		var from projectJSON
		if _, err := s.get(ctx, fmt.Sprintf("/projects/%d", got.Source), "", &from); err != nil {
			return Pull{}, fmt.Errorf("read the repository of the branch: %w", err)
		}
		p.From = s.parsed(from, "")
	}
	return p, nil
}

// findPull returns the open pull request from a branch of a repository, or false.
func (s *session) findPull(ctx context.Context, from Project, branch string) (Pull, bool, error) {
	query := url.Values{"state": {"open"}, "head": {from.owner + ":" + branch}, "per_page": {"100"}}
	if s.kind == GitLab {
		query = url.Values{"state": {"opened"}, "source_branch": {branch}, "per_page": {"100"}}
	}
	next := query.Encode()
	for range maxPages {
		var page []pullJSON
		var err error
		if next, err = s.get(ctx, s.pulls(0), next, &page); err != nil {
			return Pull{}, false, fmt.Errorf("look for the pull request: %w", err)
		}
		for _, got := range page {
			p := s.pullOf(got)
			same := p.From.Path == from.Path && from.Path != "" || from.id != 0 && p.From.id == from.id
			m := sealMark().FindStringSubmatch(strings.ReplaceAll(p.Body, "\r\n", "\n"))
			pushed := strings.HasPrefix(p.Head, "refs/pull/") && m != nil && m[1] == branch // by AGit
			if same && pushed {
				me, err := s.login(ctx)
				if err != nil {
					return Pull{}, false, err
				}
				pushed = p.Author == me
			}
			if same && (p.Head == branch || pushed) {
				return p, true, nil
			}
		}
		if next == "" {
			break
		}
	}
	return Pull{}, false, nil
}

// openPull opens a pull request from a branch.
func (s *session) openPull(ctx context.Context, to, from Project, branch string, d *Draft) (Pull, error) {
	title, head := d.Title, branch
	if from.Path != to.Path {
		head = from.owner + ":" + branch
	}
	body := map[string]any{"title": title, "head": head, "base": d.Into, "body": d.Body}
	path := s.pulls(0)
	switch s.kind {
	case GitHub:
		body["draft"], body["maintainer_can_modify"] = !d.p.Ready, from.Path != to.Path
	case Gitea:
		body["title"] = d.marked(s.kind)
		body["allow_maintainer_edit"] = from.Path != to.Path
	case GitLab:
		path = fmt.Sprintf("/projects/%d/merge_requests", from.id)
		body = map[string]any{"title": d.marked(s.kind), "source_branch": branch,
			"target_branch": d.Into, "description": d.Body,
			"target_project_id": to.id, "remove_source_branch": true, "allow_collaboration": from.id != to.id}
	}
	var got pullJSON
	var existing Pull
	there := func() (found bool) {
		existing, found, _ = s.findPull(ctx, from, branch)
		return found
	}
	err := s.send(ctx, http.MethodPost, path, body, &got, there)
	if code := status(err); code == http.StatusConflict || code == http.StatusUnprocessableEntity {
		if there() { // since another run
			return existing, nil
		}
	}
	if existing.Number != 0 {
		return existing, err
	}
	if err != nil {
		return Pull{}, fmt.Errorf("open the pull request: %w", err)
	}
	return s.pullOf(got), nil
}

// marked is the title with the mark by which a forge knows a draft.
func (d *Draft) marked(k Kind) string {
	if d.p.Ready {
		return d.Title
	}
	return map[Kind]string{Gitea: "WIP: ", GitLab: "Draft: "}[k] + d.Title
}

// setBody replaces a pull request's text.
func (s *session) setBody(ctx context.Context, number int, text string) error {
	method, field := http.MethodPatch, "body"
	if s.kind == GitLab {
		method, field = http.MethodPut, "description"
	}
	if err := s.send(ctx, method, s.pulls(number), map[string]any{field: text}, nil, nil); err != nil {
		return fmt.Errorf("update the text of #%d: %w", number, err)
	}
	return nil
}
