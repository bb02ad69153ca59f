package forge

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// token returns the token for a site; empty if there is none. A variable's token goes only where it is known to
// belong: to the public sites of its kind, to the server that another variable names, and to this machine.
func (c *Client) token(ctx context.Context, s site) string {
	if !mayCarry(s.api) {
		return ""
	}
	if c.owned(s) {
		names := dialects[s.kind].tokens
		if s.kind == Gitea && c.server("GITHUB_SERVER_URL") == s.web.Host {
			names = append(slices.Clone(names), "GITHUB_TOKEN") // what Gitea's own CI calls it
		}
		for _, name := range names {
			if v := strings.TrimSpace(c.o.Getenv(name)); v != "" {
				return v
			}
		}
	}
	return c.stored(ctx, s)
}

// Login reports whether there is a token for the forge of a git remote, and which variable could hold one. variable
// is empty if that depends on the server's software, because the server is not asked.
func (c *Client) Login(ctx context.Context, remote string) (token bool, variable string) {
	a, ok := ParseRemote(remote)
	if !ok {
		return false, ""
	}
	if wellKnown(a.host) == "" && c.override == nil {
		for kind := range dialects {
			s := newSite(kind, &url.URL{Scheme: a.scheme, Host: a.host}, "")
			if c.owned(s) && c.token(ctx, s) != "" {
				return true, tokenName(kind)
			}
		}
		return false, ""
	}
	s, _, err := c.locate(ctx, a)
	if err != nil {
		return false, ""
	}
	return c.token(ctx, s) != "", tokenName(s.kind)
}

// owned reports whether a site is one to which the tokens in the variables of its kind belong.
func (c *Client) owned(s site) bool {
	host := s.web.Host
	return c.override != nil || wellKnown(host) == s.kind || loopback(s.web.Hostname()) ||
		slices.ContainsFunc(dialects[s.kind].servers, func(name string) bool { return c.server(name) == host })
}

// server returns the host that a variable names, as a URL or as a host alone.
func (c *Client) server(name string) string {
	v := strings.ToLower(strings.TrimSpace(c.o.Getenv(name)))
	if u, err := url.Parse(v); err == nil && u.Host != "" {
		return u.Host
	}
	return v
}

// withheld says that a variable's token was not sent to a site, and how it would be; empty if there is none.
func (c *Client) withheld(s site) string {
	for _, name := range dialects[s.kind].tokens {
		if c.o.Getenv(name) != "" && !c.owned(s) {
			return name + " was not sent to " + s.web.Host + ": " + dialects[s.kind].servers[0] + "=" + s.web.String() +
				" says that it belongs there"
		}
	}
	return ""
}

// stored returns the token that the user's own client for the forge has. Errors mean that there is none.
func (c *Client) stored(ctx context.Context, s site) string {
	if s.kind == Gitea {
		return c.teaToken(s)
	}
	command := append(slices.Clone(dialects[s.kind].client), s.web.Host)
	path, err := exec.LookPath(command[0])
	if err != nil || c.o.Getenv("HOME") == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, perProbe)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, command[1:]...)
	cmd.WaitDelay = time.Second
	said, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(said))
}

// teaToken reads the token that tea keeps for a server in its configuration.
func (c *Client) teaToken(s site) string {
	dir := c.o.Getenv("XDG_CONFIG_HOME")
	if home := c.o.Getenv("HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".config")
	}
	data, err := os.ReadFile(filepath.Join(dir, "tea", "config.yml"))
	if err != nil || dir == "" {
		return ""
	}
	var kept struct {
		Logins []struct{ URL, Token string }
	}
	if yaml.Unmarshal(data, &kept) != nil {
		return ""
	}
	for _, login := range kept.Logins {
		if u, err := url.Parse(login.URL); err == nil && u.Host == s.web.Host {
			return login.Token
		}
	}
	return ""
}
