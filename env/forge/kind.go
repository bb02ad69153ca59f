package forge

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Kind is the software of a forge.
type Kind string

// The kinds. Gitea includes Forgejo.
const (
	GitHub Kind = "GitHub"
	Gitea  Kind = "Gitea"
	GitLab Kind = "GitLab"
)

// dialect is how the API of a kind of forge differs from the others.
type dialect struct {
	api      string // the path of the API, below the root
	issues   string // in the addresses of pages
	pulls    string // in the addresses of pages
	projects string // in the API, before the path of a repository
	forks    string // in the API, where forks are created
	changes  string // in the API, where pull requests are
	comments string // of an issue
	page     string // the query of a first page of comments
	// method is the HTTP method that updates a pull request, text the member with its text.
	method, text string
	edits        string // the member that lets the project's people push to the branch
	draft        string // what a title of a draft begins with
	user         string // for git
	client       []string
	scopes       string // that a token needs
	// tokens are the variables that may hold a token, servers those that name its server.
	tokens, servers []string
	// names are the names that GitHub has for members of this forge's objects; a dot leads into an object.
	names map[string]string
}

var dialects = map[Kind]dialect{
	GitHub: {
		api: "/api/v3", issues: "/issues/", pulls: "/pull/", projects: "/repos/", forks: "/forks", changes: "/pulls",
		comments: "/comments", page: "per_page=100", method: http.MethodPatch, text: "body",
		edits: "maintainer_can_modify", user: "x-access-token",
		client: []string{"gh", "auth", "token", "--hostname"}, scopes: "contents and pull requests (write), issues (read)",
		tokens: tokenNames[:4], servers: []string{"GITHUB_SERVER_URL", "GH_HOST"},
		names: map[string]string{"author": "user", "databaseId": "id", "authorAssociation": "author_association",
			"createdAt": "created_at"}, // of GraphQL
	},
	Gitea: {
		api: "/api/v1", issues: "/issues/", pulls: "/pulls/", projects: "/repos/", forks: "/forks", changes: "/pulls",
		comments: "/comments", page: "per_page=100", method: http.MethodPatch, text: "body", draft: "WIP: ",
		edits: "allow_maintainer_edit", user: "x-access-token", client: []string{"tea"},
		scopes: "write:repository, write:issue and read:user",
		tokens: tokenNames[4:6], servers: []string{"GITEA_SERVER_URL", "GITHUB_SERVER_URL"},
	},
	GitLab: {
		api: "/api/v4", issues: "/-/issues/", pulls: "/-/merge_requests/", projects: "/projects/", forks: "/fork",
		changes: "/merge_requests", comments: "/notes", page: "per_page=100&sort=asc&order_by=created_at",
		method: http.MethodPut, text: "description", edits: "allow_collaboration", draft: "Draft: ", user: "oauth2",
		client: []string{"glab", "config", "get", "token", "--host"}, scopes: "the scope api",
		tokens: tokenNames[6:], servers: []string{"CI_SERVER_URL", "GITLAB_HOST"},
		names: map[string]string{"iid": "number", "description": "body", "web_url": "html_url", "author": "user",
			"username": "login", "user_notes_count": "comments",
			"path_with_namespace": "full_name", "http_url_to_repo": "clone_url", "source_branch": "head.ref",
			"target_branch": "base.ref", "sha": "head.sha", "source_project_id": "head.repo.id"},
	},
}

// tokenNames are the variables that may hold a token.
var tokenNames = []string{
	"GITHUB_TOKEN", "GH_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GITEA_TOKEN", "FORGEJO_TOKEN",
	"GITLAB_TOKEN",
}

// tokenName returns the variable that messages name if a token is missing.
func tokenName(k Kind) string { return dialects[k].tokens[0] }

// decode decodes a response of the API, after renaming its members to GitHub's names.
func (d dialect) decode(data []byte, into any) error {
	var all any
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	d.rename(all)
	data, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

func (d dialect) rename(v any) {
	switch v := v.(type) {
	case []any:
		for _, part := range v {
			d.rename(part)
		}
	case map[string]any:
		for _, part := range v {
			d.rename(part)
		}
		for from, to := range d.names {
			value, ok := v[from]
			if !ok {
				continue
			}
			at, steps := v, strings.Split(to, ".")
			for _, step := range steps[:len(steps)-1] {
				next, ok := at[step].(map[string]any)
				if !ok {
					next = map[string]any{}
					at[step] = next
				}
				at = next
			}
			at[steps[len(steps)-1]] = value
		}
	}
}
