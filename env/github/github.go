package github

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"deepswe/env"
)

// Options configure a [Client]. The zero value reads public issues.
type Options struct {
	// Token is the value of GITHUB_TOKEN or GH_TOKEN. Public issues need none, but have a low rate limit without
	// it.
	Token string
	// API replaces the API's URL (DEEPSWE_GITHUB_API), for proxies and tests. By default it follows from the
	// issue's: https://api.github.com for github.com, https://HOST/api/v3 for other hosts.
	API string
	// Sleep waits before a retry; nil means env.Sleep.
	Sleep func(ctx context.Context, d time.Duration) error
	// Log receives warnings for the user; nil discards them.
	Log *slog.Logger
}

// Client reads issues.
type Client struct {
	o   Options
	api *url.URL // nil: by the issue's host
}

// New returns a client. It does not send anything yet.
func New(o Options) (*Client, error) {
	c := &Client{o: o}
	c.o.Token = strings.TrimSpace(o.Token)
	if strings.ContainsFunc(c.o.Token, func(r rune) bool { return r < '!' || r > '~' }) {
		return nil, errors.New("GITHUB_TOKEN contains invalid characters")
	}
	if o.API != "" {
		u, err := url.Parse(strings.TrimRight(o.API, "/"))
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
			return nil, fmt.Errorf("invalid DEEPSWE_GITHUB_API %q (for example https://api.github.com)", o.API)
		}
		c.api = u
	}
	if o.Sleep == nil {
		c.o.Sleep = env.Sleep
	}
	if o.Log == nil {
		c.o.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// address is a parsed issue URL.
type address struct {
	scheme, host string // of the issue's web page
	owner, repo  string
	number       int
}

var (
	issuePath = regexp.MustCompile(`^/([^/]+)/([^/]+)/(issues|pull|pulls|discussions)/(\d{1,10})(/.*)?$`)
	nameForm  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`)
)

// parseAddress parses an issue's URL: https://HOST/OWNER/REPO/issues/NUMBER.
func parseAddress(raw string) (address, error) {
	const want = "want https://HOST/OWNER/REPO/issues/NUMBER"
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return address{}, fmt.Errorf("%q is not the URL of an issue: %s", raw, want)
	}
	if u.User != nil {
		return address{}, fmt.Errorf("the issue's URL contains a user name or password: set GITHUB_TOKEN instead; %s", want)
	}
	m := issuePath.FindStringSubmatch(u.Path)
	if m == nil {
		return address{}, fmt.Errorf("%s is not the URL of an issue: %s", u, want)
	}
	owner, repo, kind := m[1], m[2], m[3]
	if !nameForm.MatchString(owner) || !nameForm.MatchString(repo) ||
		strings.Trim(owner, ".") == "" || strings.Trim(repo, ".") == "" {
		return address{}, fmt.Errorf("%s does not name a repository: %s", u, want)
	}
	switch kind {
	case "pull", "pulls":
		return address{}, fmt.Errorf("%s is a pull request; pass the URL of its issue", u)
	case "discussions":
		return address{}, fmt.Errorf("%s is a discussion; pass the URL of an issue, or paste the text", u)
	}
	number, err := strconv.Atoi(m[4])
	if err != nil || number == 0 {
		return address{}, fmt.Errorf("%s has no issue number: %s", u, want)
	}
	host := strings.TrimPrefix(strings.ToLower(u.Host), "www.")
	return address{scheme: u.Scheme, host: host, owner: owner, repo: repo, number: number}, nil
}

// apiFor returns the root URL of the API that serves the issue.
func (c *Client) apiFor(a address) *url.URL {
	if c.api != nil {
		return c.api
	}
	switch {
	case a.host == "github.com":
		return &url.URL{Scheme: "https", Host: "api.github.com"}
	case strings.HasSuffix(a.host, ".ghe.com"):
		return &url.URL{Scheme: "https", Host: "api." + a.host}
	}
	return &url.URL{Scheme: a.scheme, Host: a.host, Path: "/api/v3"}
}

// mayCarry reports whether the token may be sent to u: over an encrypted connection, or to this machine.
func mayCarry(u *url.URL) bool {
	if u.Scheme == "https" {
		return true
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
