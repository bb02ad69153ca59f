package forge

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

type site struct {
	kind Kind
	web  *url.URL // its root, without a slash at the end
	api  *url.URL
}

var publicSites = map[string]Kind{"github.com": GitHub, "gitlab.com": GitLab, "codeberg.org": Gitea, "gitea.com": Gitea}

// wellKnown returns the kind of a host that need not be asked for it; empty for any other.
func wellKnown(host string) Kind {
	if strings.HasSuffix(host, ".ghe.com") {
		return GitHub
	}
	return publicSites[host]
}

// locate returns the site of an address, and the path of the repository there.
func (c *Client) locate(ctx context.Context, a Address) (site, string, error) {
	root := &url.URL{Scheme: a.scheme, Host: a.host}
	var s site
	switch known := wellKnown(a.host); {
	case c.override != nil:
		s = site{kind: GitHub, web: root, api: c.override}
		for kind, d := range dialects {
			if strings.HasSuffix(c.override.Path, d.api) {
				s.kind = kind
			}
		}
	case known == GitHub:
		s = site{kind: GitHub, web: root, api: &url.URL{Scheme: "https", Host: "api." + a.host}}
	case known != "":
		s = newSite(known, root, "")
	default:
		s, err := c.probed(ctx, a, root)
		if err != nil {
			return site{}, "", err
		}
		return s, strings.TrimPrefix("/"+strings.Join(a.names, "/"), s.web.Path+"/"), nil
	}
	names := a.names
	if s.kind != GitLab { // only GitLab has groups in groups
		names = names[len(names)-2:]
	}
	return s, strings.Join(names, "/"), nil
}

func newSite(kind Kind, root *url.URL, prefix string) site {
	web, api := *root, *root
	web.Path = strings.TrimSuffix("/"+prefix, "/")
	api.Path = web.Path + dialects[kind].api
	return site{kind: kind, web: &web, api: &api}
}

// probed is probe, once for each host.
func (c *Client) probed(ctx context.Context, a Address, root *url.URL) (site, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.sites[root.String()]; ok {
		return s, nil
	}
	s, err := c.probe(ctx, a, root)
	if err == nil {
		c.sites[root.String()] = s
	}
	return s, err
}

// probe asks a host what it is. It sends no token, because the host is not known yet.
func (c *Client) probe(ctx context.Context, a Address, root *url.URL) (site, error) {
	own := []int{0} // how many elements of the path may be the server's
	if n := len(a.names) - 2; n > 0 {
		own = slices.Compact([]int{0, n, 1})
	}
	var failed error
	for _, n := range own {
		for _, kind := range []Kind{Gitea, GitLab, GitHub} {
			if a.kind != "" && a.kind != kind || kind != GitLab && len(a.names)-n != 2 {
				continue
			}
			s := newSite(kind, root, strings.Join(a.names[:n], "/"))
			is, err := answers(ctx, s)
			if is || ctx.Err() != nil {
				return s, ctx.Err()
			}
			if err != nil {
				failed = err
			}
		}
	}
	if failed != nil {
		return site{}, failed
	}
	return site{}, fmt.Errorf("%s answers neither as GitHub nor as Gitea, Forgejo or GitLab do; DEEPSWE_GITHUB_API sets "+
		"the address of its API", a.host)
}

// perProbe limits each request that asks a host what it is.
const perProbe = 5 * time.Second

// answers reports whether a site is of the kind that it is taken for. An error means that it could not be asked.
func answers(ctx context.Context, s site) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, perProbe)
	defer cancel()
	path := "/version"
	if s.kind == GitHub {
		path = "/meta"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.api.String()+path, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("User-Agent", userAgent)
	resp, err := http.DefaultTransport.RoundTrip(req) // follows no redirect
	if err != nil {
		return false, fmt.Errorf("reach %s: %w", s.api.Host, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return false, fmt.Errorf("read from %s: %w", s.api.Host, err)
	}
	var said struct {
		Version, Message, URL string
		Installed             string `json:"installed_version"`
	}
	isJSON := json.Unmarshal(body, &said) == nil
	closed := resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden
	switch s.kind {
	case GitHub:
		return said.Installed != "" || resp.Header.Get("X-GitHub-Request-Id") != "" ||
			resp.Header.Get("X-GitHub-Enterprise-Version") != "", nil
	case Gitea: // one that shows nothing to strangers says so, and where its documentation is
		return isJSON && (said.Version != "" || closed && strings.HasSuffix(said.URL, "/api/swagger") ||
			closed && strings.Contains(said.Message, "signed in")), nil
	default:
		return isJSON && (said.Version != "" || closed && strings.Contains(said.Message, "401")), nil
	}
}
