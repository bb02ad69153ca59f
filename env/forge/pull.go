package forge

import (
	"context"
	"fmt"
	"net/url"
	"strings"
)

// Pull is a pull request.
type Pull struct {
	Number int    `json:"number"`
	URL    string `json:"html_url"`
	Title  string `json:"title"`
	Body   string `json:"body"`
	State  string `json:"state"` // open, or closed or merged
	Author *user  `json:"user"`
	Draft  bool   `json:"draft"`
	Base   end    `json:"base"`
	Head   end    `json:"head"`
}

// end is a branch of a pull request.
type end struct {
	Ref  string  `json:"ref"`
	SHA  string  `json:"sha"`
	Repo Project `json:"repo"` // its path is empty if it is gone
}

// pulls returns the path of the repository's pull requests, or of one of them, in the API.
func (s *session) pulls(number int) string {
	path := s.path() + dialects[s.kind].changes
	if number != 0 {
		path += fmt.Sprintf("/%d", number)
	}
	return path
}

// pull reads a pull request.
func (s *session) pull(ctx context.Context, number int) (Pull, error) {
	var p Pull
	if _, err := s.get(ctx, s.pulls(number), "", &p); err != nil {
		return p, err
	}
	if p.Title == "" || p.Head.SHA == "" {
		return p, fmt.Errorf("the response of %s is not a pull request of %s", s.api.Host, s.kind)
	}
	p.Title, p.State = oneLine(p.Title), openState(p.State)
	if from := &p.Head.Repo; s.kind == GitLab {
		if _, err := s.get(ctx, fmt.Sprintf("/projects/%d", from.ID), "", from); err != nil {
			return p, fmt.Errorf("read the repository of the branch: %w", err)
		}
	}
	return p, nil
}

// findPull returns the open pull request from a branch of a repository, or false.
func (s *session) findPull(ctx context.Context, from Project, branch string) (Pull, bool, error) {
	query := url.Values{"state": {"open"}, "head": {from.owner() + ":" + branch}, "per_page": {"100"}}
	if s.kind == GitLab {
		query = url.Values{"state": {"opened"}, "source_branch": {branch}, "per_page": {"100"}}
	}
	for p, err := range list[Pull](ctx, s, s.pulls(0), query.Encode()) {
		if err != nil {
			return Pull{}, false, fmt.Errorf("look for the pull request: %w", err)
		}
		there := p.Head.Repo
		if there.Path != from.Path && (from.ID == 0 || there.ID != from.ID) {
			continue
		}
		m := sealMark().FindStringSubmatch(strings.ReplaceAll(p.Body, "\r\n", "\n"))
		pushed := strings.HasPrefix(p.Head.Ref, "refs/pull/") && m != nil && m[1] == branch // by AGit
		if pushed {
			me, err := s.login(ctx)
			if err != nil {
				return Pull{}, false, err
			}
			pushed = p.Author.name() == me
		}
		if p.Head.Ref == branch || pushed {
			return p, true, nil
		}
	}
	return Pull{}, false, nil
}

// open opens a new pull request.
func (d *Draft) open(ctx context.Context) (Pull, error) {
	s, head := d.s, d.Branch
	if d.from.Path != d.to.Path {
		head = d.from.owner() + ":" + head
	}
	body := map[string]any{"title": d.marked(), "head": head, "base": d.Into, "body": d.Body,
		"draft": !d.p.Ready, dialects[s.kind].edits: d.from.Path != d.to.Path}
	path := s.pulls(0)
	if s.kind == GitLab {
		path = fmt.Sprintf("/projects/%d/merge_requests", d.from.ID)
		body = map[string]any{"title": d.marked(), "source_branch": d.Branch, "target_branch": d.Into,
			"description": d.Body, "target_project_id": d.to.ID, "remove_source_branch": true,
			dialects[s.kind].edits: d.from.ID != d.to.ID}
	}
	got, err := create(ctx, s, path, body, func() (Pull, bool, error) { return s.findPull(ctx, d.from, d.Branch) })
	if err != nil {
		return Pull{}, fmt.Errorf("open the pull request: %w", err)
	}
	return got, nil
}

// marked returns the title, with the prefix by which the forge recognises a draft unless the change is ready.
func (d *Draft) marked() string {
	if d.p.Ready {
		return d.Title
	}
	return dialects[d.s.kind].draft + d.Title
}

// setBody replaces a pull request's text.
func (s *session) setBody(ctx context.Context, number int, text string) error {
	how := dialects[s.kind]
	if err := s.send(ctx, how.method, s.pulls(number), map[string]any{how.text: text}, nil, nil); err != nil {
		return fmt.Errorf("update the text of #%d: %w", number, err)
	}
	return nil
}
