package forge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Issue is an issue with its discussion.
type Issue struct {
	Kind Kind
	// Owner, Repo and Number are the current ones, even if the issue was moved.
	Owner  string // with all groups on GitLab
	Repo   string
	Number int
	URL    string
	State  string // open or closed
	Title  string
	// Body and the comments are the original Markdown, with LF line ends, but without invisible characters and without
	// HTML comments, which templates leave and the web page does not show.
	Body   string
	Author string
	// Comments are the first 500 comments of people, oldest first.
	Comments []Comment
	CloneURL string
}

// Comment is one of an issue's comments.
type Comment struct {
	Author string
	// Role is the author's association with the repository (OWNER, MEMBER, COLLABORATOR, CONTRIBUTOR), or empty.
	Role string
	Time time.Time
	Body string
}

// maxPages limits how many pages of 100 items, of comments for example, are read.
const maxPages = 5

// user, issueJSON and commentJSON are the parts of the forges' objects that deepswe reads.
type user struct {
	Login string `json:"login"`
	Type  string `json:"type"`
	Bot   bool   `json:"bot"`
}

// name returns the login. GitHub shows deleted accounts as "ghost".
func (u *user) name() string {
	if u == nil {
		return "ghost"
	}
	return cmp.Or(visible(u.Login), "ghost")
}

func (u *user) bot() bool {
	return u != nil && (u.Type == "Bot" || u.Bot || strings.HasSuffix(u.Login, "[bot]"))
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
	Repository    *struct {
		FullName string `json:"full_name"`
	} `json:"repository"` // Gitea
}

// commentJSON is a comment on an issue or, with its place, of a review.
type commentJSON struct {
	ID        int64     `json:"id"`
	Body      string    `json:"body"`
	User      *user     `json:"user"`
	Role      string    `json:"author_association"`
	CreatedAt time.Time `json:"created_at"`
	System    bool      `json:"system"` // GitLab's own notes
}

// openState converts a state to GitHub's words: GitLab says opened instead of open.
func openState(state string) string { return strings.Replace(state, "opened", "open", 1) }

// ErrPull refuses to read a pull request as an issue.
var ErrPull = errors.New("it is a pull request")

// Issue reads an issue.
func (c *Client) Issue(ctx context.Context, a Address) (Issue, error) {
	s, err := c.open(ctx, a)
	if err != nil {
		return Issue{}, err
	}
	issue, err := s.issue(ctx, a.Number)
	if err != nil {
		return Issue{}, fmt.Errorf("read issue %s#%d: %w", s.project, a.Number, err)
	}
	if issue.State == "closed" {
		c.o.Log.Warn("the issue is closed", "issue", issue.URL)
	}
	return issue, nil
}

func (s *session) numbered(number int) string { return fmt.Sprintf("%s/issues/%d", s.path(), number) }

func (s *session) issue(ctx context.Context, number int) (Issue, error) {
	var got issueJSON
	if _, err := s.get(ctx, s.numbered(number), "", &got); err != nil {
		return Issue{}, err
	}
	if got.PullRequest != nil {
		return Issue{}, ErrPull
	}
	if got.Title == "" {
		return Issue{}, fmt.Errorf("the response of %s is not an issue of %s; DEEPSWE_GITHUB_API sets the API's address",
			s.api.Host, s.kind)
	}
	s.project = s.moved(got)
	out := Issue{
		Kind: s.kind, Number: cmp.Or(got.Number, number), URL: got.HTMLURL, Author: got.User.name(),
		State: openState(got.State), Title: oneLine(got.Title), Body: clean(got.Body),
	}
	number = out.Number
	out.URL = cmp.Or(out.URL, fmt.Sprintf("%s/%s/issues/%d", s.web, s.project, number))
	p, err := s.repository(ctx, s.project)
	if err != nil {
		return Issue{}, fmt.Errorf("read the repository: %w", err)
	}
	cut := strings.LastIndex(s.project, "/")
	out.Owner, out.Repo = s.project[:cut], s.project[cut+1:]
	if out.CloneURL = p.CloneURL; got.Comments == 0 {
		return out, nil
	}
	out.Comments, err = s.comments(ctx, number)
	return out, err
}

// comments reads the discussion, without what bots and the forge itself said.
func (s *session) comments(ctx context.Context, number int) ([]Comment, error) {
	how := dialects[s.kind]
	var all []Comment
	for c, err := range list[commentJSON](ctx, s, s.numbered(number)+how.comments, how.page) {
		if err != nil {
			return nil, fmt.Errorf("read the comments: %w", err)
		}
		if one := c.comment(); !c.System && !c.User.bot() && one.Body != "" {
			all = append(all, one)
		}
	}
	return all, nil
}

func (c commentJSON) comment() Comment {
	return Comment{Author: c.User.name(), Role: strings.TrimPrefix(c.Role, "NONE"), Time: c.CreatedAt, Body: clean(c.Body)}
}

// moved returns the repository in the host's response, which differs after it was renamed or an issue transferred.
func (s *session) moved(got issueJSON) string {
	path := ""
	if u, err := url.Parse(got.RepositoryURL); err == nil {
		path = u.Path
	}
	if got.Repository != nil {
		path = got.Repository.FullName
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if n := len(parts); n >= 2 && nameForm().MatchString(parts[n-2]) && nameForm().MatchString(parts[n-1]) {
		return parts[n-2] + "/" + parts[n-1]
	}
	return s.project
}
