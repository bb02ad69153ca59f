package github

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Issue is an issue with its discussion.
type Issue struct {
	// Host is the host of the web page. Owner, Repo and Number are the current ones, even if the issue was moved.
	Host   string
	Owner  string
	Repo   string
	Number int
	URL    string
	State  string // open or closed
	Title  string
	// Body and the comments are the original Markdown, with LF line ends and without HTML comments, which templates
	// leave and the web page does not show.
	Body   string
	Author string
	// Comments are the comments of people, oldest first.
	Comments []Comment
	// Skipped counts comments of bots, and those beyond the 500th.
	Skipped int
	// CloneURL and DefaultBranch belong to the repository.
	CloneURL      string
	DefaultBranch string
}

// Comment is one of an issue's comments.
type Comment struct {
	Author string
	// Role is the author's association with the repository (OWNER, MEMBER, COLLABORATOR, CONTRIBUTOR), or empty.
	Role string
	Time time.Time
	Body string
}

// maxPages limits how many pages of 100 comments are read.
const maxPages = 5

// user, issueJSON and commentJSON are the parts of GitHub's objects that deepswe reads.
type user struct {
	Login string `json:"login"`
	Type  string `json:"type"`
}

// name returns the login. GitHub shows deleted accounts as "ghost".
func (u *user) name() string {
	if u == nil || u.Login == "" {
		return "ghost"
	}
	return u.Login
}

func (u *user) bot() bool {
	return u != nil && (u.Type == "Bot" || strings.HasSuffix(u.Login, "[bot]"))
}

type issueJSON struct {
	Number        int       `json:"number"`
	Title         string    `json:"title"`
	State         string    `json:"state"`
	Body          string    `json:"body"`
	User          *user     `json:"user"`
	Comments      int       `json:"comments"`
	HTMLURL       string    `json:"html_url"`
	RepositoryURL string    `json:"repository_url"`
	PullRequest   *struct{} `json:"pull_request"`
}

type commentJSON struct {
	Body      string    `json:"body"`
	User      *user     `json:"user"`
	Role      string    `json:"author_association"`
	CreatedAt time.Time `json:"created_at"`
}

// Issue reads the issue whose web page has the given URL.
func (c *Client) Issue(ctx context.Context, rawURL string) (Issue, error) {
	a, err := parseAddress(rawURL)
	if err != nil {
		return Issue{}, err
	}
	issue, err := c.session(a).issue(ctx, a)
	if err != nil {
		return Issue{}, fmt.Errorf("read issue %s/%s#%d: %w", a.owner, a.repo, a.number, err)
	}
	if issue.State == "closed" {
		c.o.Log.Warn("the issue is closed", "issue", issue.URL)
	}
	return issue, nil
}

func (s *session) issue(ctx context.Context, a address) (Issue, error) {
	var got issueJSON
	if _, err := s.get(ctx, a.path(), "", &got); err != nil {
		return Issue{}, err
	}
	if got.PullRequest != nil {
		return Issue{}, errors.New("it is a pull request; pass the URL of its issue")
	}
	if got.Title == "" {
		return Issue{}, fmt.Errorf("the response of %s is not an issue; is this a GitHub host? "+
			"DEEPSWE_GITHUB_API sets the API's address", s.root.Host)
	}
	a = a.moved(got)
	out := Issue{
		Host: a.host, Owner: a.owner, Repo: a.repo, Number: a.number, URL: got.HTMLURL, State: got.State,
		Title: strings.Join(strings.Fields(got.Title), " "), Body: clean(got.Body), Author: got.User.name(),
	}
	if out.URL == "" {
		out.URL = fmt.Sprintf("%s://%s/%s/%s/issues/%d", a.scheme, a.host, a.owner, a.repo, a.number)
	}
	var repo struct {
		CloneURL      string `json:"clone_url"`
		DefaultBranch string `json:"default_branch"`
	}
	if _, err := s.get(ctx, "/repos/"+a.owner+"/"+a.repo, "", &repo); err != nil {
		return Issue{}, fmt.Errorf("read the repository: %w", err)
	}
	out.CloneURL, out.DefaultBranch = repo.CloneURL, repo.DefaultBranch
	if out.CloneURL == "" {
		out.CloneURL = a.scheme + "://" + a.host + "/" + a.owner + "/" + a.repo + ".git"
	}
	if got.Comments == 0 {
		return out, nil
	}
	return out, s.comments(ctx, a, got.Comments, &out)
}

// comments reads the discussion, page by page.
func (s *session) comments(ctx context.Context, a address, total int, out *Issue) error {
	next, read := "per_page=100", 0
	for range maxPages {
		var page []commentJSON
		var err error
		if next, err = s.get(ctx, a.path()+"/comments", next, &page); err != nil {
			return fmt.Errorf("read the comments: %w", err)
		}
		read += len(page)
		for _, c := range page {
			body := clean(c.Body)
			if c.User.bot() || body == "" {
				out.Skipped++
				continue
			}
			role := strings.TrimPrefix(c.Role, "NONE")
			out.Comments = append(out.Comments, Comment{Author: c.User.name(), Role: role, Time: c.CreatedAt, Body: body})
		}
		if next == "" {
			return nil
		}
	}
	out.Skipped += max(total-read, 0)
	return nil
}

func (a address) path() string {
	return fmt.Sprintf("/repos/%s/%s/issues/%d", a.owner, a.repo, a.number)
}

// moved returns the address in the host's response, which differs after a repository was renamed or an issue
// transferred.
func (a address) moved(got issueJSON) address {
	if u, err := url.Parse(got.RepositoryURL); err == nil {
		parts := strings.Split(strings.Trim(u.Path, "/"), "/")
		if n := len(parts); n >= 2 && nameForm.MatchString(parts[n-2]) && nameForm.MatchString(parts[n-1]) {
			a.owner, a.repo = parts[n-2], parts[n-1]
		}
	}
	if got.Number > 0 {
		a.number = got.Number
	}
	return a
}
