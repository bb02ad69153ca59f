package github

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"deepswe/env"
)

const (
	attempts    = 3
	perRequest  = 30 * time.Second
	longestWait = 30 * time.Second // waiting longer for a rate limit is an error
	maxPage     = 32 << 20
)

// session accesses the API of one host, and sends the token to that origin only.
type session struct {
	*Client
	root *url.URL
	http *http.Client
}

func (c *Client) session(a address) *session {
	root := c.apiFor(a)
	return &session{Client: c, root: root, http: &http.Client{Transport: &authorized{origin: root, token: c.o.Token}}}
}

// authorized adds the token to requests for one origin. Go's own client would keep it when redirected to other
// ports or to subdomains.
type authorized struct {
	origin *url.URL
	token  string
}

func (t *authorized) RoundTrip(req *http.Request) (*http.Response, error) {
	sameOrigin := req.URL.Scheme == t.origin.Scheme && strings.EqualFold(req.URL.Host, t.origin.Host)
	if t.token != "" && sameOrigin && mayCarry(req.URL) {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	return http.DefaultTransport.RoundTrip(req)
}

// get reads one page of a resource, and returns the query of the next page, or "" after the last.
func (s *session) get(ctx context.Context, path, query string, into any) (next string, err error) {
	target := s.root.String() + path
	if query != "" {
		target += "?" + query
	}
	for attempt := 1; ; attempt++ {
		next, wait, err := s.try(ctx, target, into)
		if err == nil || ctx.Err() != nil || wait < 0 || attempt == attempts {
			return next, err
		}
		if wait == 0 {
			wait = env.Backoff(attempt, time.Second, longestWait)
		}
		s.o.Log.Warn("the issue's host failed, retrying", "error", err, "wait", wait)
		if err := s.o.Sleep(ctx, wait); err != nil {
			return "", err
		}
	}
}

// try makes one request. A negative wait means that retrying cannot help.
func (s *session) try(ctx context.Context, target string, into any) (next string, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, perRequest)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return "", -1, err
	}
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	req.Header.Set("User-Agent", "deepswe")
	resp, err := s.http.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL, which the message already contains
		}
		return "", 0, fmt.Errorf("reach %s: %w", s.root.Host, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage+1))
	if err != nil {
		return "", 0, fmt.Errorf("read from %s: %w", s.root.Host, err)
	}
	if resp.StatusCode != http.StatusOK {
		wait, err := s.explain(resp, body)
		return "", wait, err
	}
	if len(body) > maxPage {
		return "", -1, fmt.Errorf("%s sent a response of more than %d MiB", s.root.Host, maxPage>>20)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return "", -1, fmt.Errorf("the response of %s is not that of GitHub's API: %w; is this a GitHub host? "+
			"DEEPSWE_GITHUB_API sets the API's address", s.root.Host, err)
	}
	return nextPage(resp.Header), 0, nil
}

var nextLink = regexp.MustCompile(`<([^>]*)>\s*;[^,]*\brel="?next"?`)

// nextPage returns the query of the next page from the Link header (RFC 8288), or "" on the last page. It ignores
// the link's host: behind a proxy it differs from ours, and the server must not decide where requests go.
func nextPage(h http.Header) string {
	m := nextLink.FindStringSubmatch(strings.Join(h.Values("Link"), ", "))
	if m == nil {
		return ""
	}
	u, err := url.Parse(m[1])
	if err != nil {
		return ""
	}
	return u.RawQuery
}

// explain turns an error response into an error, with the wait before the next attempt; negative if retrying cannot
// help.
func (s *session) explain(resp *http.Response, body []byte) (time.Duration, error) {
	var said struct{ Message string }
	_ = json.Unmarshal(body, &said) // stays empty if a proxy sent the page
	text := fmt.Sprintf("%s answered %d %s", s.root.Host, resp.StatusCode, http.StatusText(resp.StatusCode))
	if said.Message != "" {
		text += " (" + clip(strings.Join(strings.Fields(said.Message), " "), 300) + ")"
	}
	noToken := s.o.Token == ""
	limited := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusForbidden &&
		(resp.Header.Get("X-RateLimit-Remaining") == "0" || resp.Header.Get("Retry-After") != "" ||
			strings.Contains(strings.ToLower(said.Message), "rate limit"))
	switch code := resp.StatusCode; {
	case limited:
		return s.limited(resp)
	case code == http.StatusUnauthorized && noToken:
		return -1, errors.New(text + "; set GITHUB_TOKEN")
	case code == http.StatusUnauthorized:
		return -1, errors.New(text + "; GITHUB_TOKEN is not valid there")
	case code == http.StatusNotFound && noToken:
		return -1, errors.New(text + "; there is no such issue, or the repository is private: then set GITHUB_TOKEN")
	case code == http.StatusNotFound, code == http.StatusForbidden:
		return -1, errors.New(text + "; there is no such issue, or GITHUB_TOKEN may not read the repository " +
			"(it needs read access to contents and issues)")
	case code == http.StatusGone:
		return -1, errors.New(text + "; the issue was deleted")
	case code >= 500:
		return 0, errors.New(text)
	}
	return -1, errors.New(text)
}

// limited explains a rate limit, and waits if the limit ends soon.
func (s *session) limited(resp *http.Response) (time.Duration, error) {
	text := s.root.Host + " limits the rate of requests"
	wait := time.Duration(-1)
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds >= 0 {
		wait = max(time.Duration(min(seconds, 1<<20))*time.Second, time.Millisecond)
	} else if reset, err := strconv.ParseInt(resp.Header.Get("X-RateLimit-Reset"), 10, 64); err == nil {
		at := time.Unix(reset, 0)
		wait = max(time.Until(at), time.Millisecond)
		text += ", until " + at.Format("15:04")
	}
	if s.o.Token == "" {
		text += "; set GITHUB_TOKEN for a higher limit"
	}
	if wait > longestWait {
		wait = -1
	}
	return wait, errors.New(text)
}

// clip shortens a text to the given number of runes.
func clip(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most]) + "…"
}
