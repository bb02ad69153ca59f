package forge

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"deepswe/env"
)

// Address names an issue or a pull request, as its web page does, or the repository alone if Number is 0.
type Address struct {
	scheme, host string
	// names are the elements of the path up to the repository, including the server's own path, if it has one.
	names []string
	// Number is the issue's or the pull request's.
	Number int
	// Pull is set for a pull request. On GitHub, an issue's address may also name a pull request.
	Pull bool
	// kind is the only kind of forge with addresses of this form; empty if there are several.
	kind Kind
}

var (
	pagePath = env.Pattern(
		`^/(.+?)/(-/)?(issues|work_items|pull|pulls|merge_requests|discussions)/(\d{1,10})(/.*)?$`)
	nameForm = env.Pattern(`^[A-Za-z0-9_.-]{1,100}$`)
)

// Parse parses the URL of an issue's or a pull request's web page.
func Parse(raw string) (Address, error) {
	const want = "want https://HOST/OWNER/REPO/issues/NUMBER"
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return Address{}, fmt.Errorf("%q is not the URL of an issue: %s", raw, want)
	}
	if u.User != nil {
		return Address{}, fmt.Errorf("the issue's URL contains a user name or password: set GITHUB_TOKEN instead; %s", want)
	}
	m := pagePath().FindStringSubmatch(u.Path)
	if m == nil {
		return Address{}, fmt.Errorf("%s is not the URL of an issue: %s", u, want)
	}
	a, err := repository(u, m[1])
	if err != nil {
		return Address{}, err
	}
	switch form := m[3]; {
	case form == "discussions":
		return Address{}, fmt.Errorf("%s is a discussion; pass the URL of an issue, or paste the text", u)
	case m[2] != "" || form == "merge_requests" || form == "work_items":
		a.kind, a.Pull = GitLab, form == "merge_requests"
	case form == "pull":
		a.kind, a.Pull = GitHub, true
	case form == "pulls":
		a.kind, a.Pull = Gitea, true
	}
	if a.Number, err = strconv.Atoi(m[4]); err != nil || a.Number == 0 {
		return Address{}, fmt.Errorf("%s has no issue number: %s", u, want)
	}
	return a, nil
}

// repository returns the address of a repository, given by the path of its page.
func repository(u *url.URL, path string) (Address, error) {
	a := Address{scheme: u.Scheme, host: strings.TrimPrefix(strings.ToLower(u.Host), "www."),
		names: strings.Split(path, "/")}
	bad := func(name string) bool { return !nameForm().MatchString(name) || strings.Trim(name, ".") == "" }
	if len(a.names) < 2 || slices.ContainsFunc(a.names, bad) {
		return Address{}, fmt.Errorf("%s does not name a repository: want https://HOST/OWNER/REPO", u)
	}
	return a, nil
}

// remoteForm extracts the host and the path of a repository from any form of a remote's address.
var remoteForm = env.Pattern(
	`^(?:https?://|ssh://|git://)?(?:[^@/]+@)?([^/:]+(?::\d+)?)[:/]([^/]+/.+?)(?:\.git)?/?$`)

// ParseRemote returns the address of the repository that a git remote's URL names, or false if the URL has no host.
// The caller may set Number to that of an issue there.
func ParseRemote(remote string) (Address, bool) {
	m := remoteForm().FindStringSubmatch(remote)
	if m == nil {
		return Address{}, false
	}
	u := &url.URL{Scheme: "https", Host: m[1]}
	switch {
	case strings.HasPrefix(remote, "http://"):
		u.Scheme = "http"
	case !strings.HasPrefix(remote, "https://"):
		u.Host, _, _ = strings.Cut(u.Host, ":") // the port is that of ssh or git, not of the web page
	}
	a, err := repository(u, m[2])
	return a, err == nil
}

// String returns the URL of the web page, in a form that Parse accepts unless Number is 0.
func (a Address) String() string {
	page := a.scheme + "://" + a.host + "/" + strings.Join(a.names, "/")
	if a.Number == 0 {
		return page
	}
	d := dialects[cmp.Or(a.kind, GitHub)]
	form := d.issues
	if a.Pull {
		form = d.pulls
	}
	return page + form + strconv.Itoa(a.Number)
}
