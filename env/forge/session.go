package forge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"deepswe/env"
)

const (
	attempts    = 5
	perRequest  = 30 * time.Second
	longestWait = 90 * time.Second // waiting longer for a rate limit is an error; GitHub's for writes is a minute
	maxPage     = 32 << 20
	userAgent   = "deepswe"
)

// session accesses the API of one site, for one repository, and sends the token to that origin only.
type session struct {
	*Client
	site
	project string // owner/name, with groups on GitLab
	secret  string // the token; empty if there is none
	http    *http.Client
}

// open finds the site of an address, and its token.
func (c *Client) open(ctx context.Context, a Address) (*session, error) {
	at, project, err := c.locate(ctx, a)
	if err != nil {
		return nil, err
	}
	s := &session{Client: c, site: at, project: project, secret: c.token(ctx, at)}
	s.http = &http.Client{Transport: &authorized{origin: at.api, token: s.secret}}
	return s, nil
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

// list returns the items of a resource, from up to [maxPages] pages. It ends with the first error.
func list[T any](ctx context.Context, s *session, path, query string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for range maxPages {
			var page []T
			next, err := s.get(ctx, path, query, &page)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page {
				if !yield(item, nil) {
					return
				}
			}
			if query = next; query == "" {
				return
			}
		}
	}
}

// get reads one page of a resource, and returns the query of the next page, or "" after the last.
func (s *session) get(ctx context.Context, path, query string, into any) (next string, err error) {
	if query != "" {
		path += "?" + query
	}
	return s.request(ctx, http.MethodGet, s.api.String()+path, nil, into, nil)
}

// send makes a request that changes something. If it creates something, and an error leaves open whether that was
// done, it is repeated only if there reports that nothing was created; with a nil there, never.
func (s *session) send(ctx context.Context, method, path string, body, into any, there func() bool) error {
	_, err := s.request(ctx, method, s.api.String()+path, body, into, there)
	return err
}

// create creates something, or returns what find finds if that exists already: from another run, or from a request
// that took effect although it failed.
func create[T any](ctx context.Context, s *session, path string, body any, find func() (T, bool, error)) (T, error) {
	var got, existing T
	found := false
	there := func() bool {
		existing, found, _ = find()
		return found
	}
	err := s.send(ctx, http.MethodPost, path, body, &got, there)
	if code := status(err); (code == http.StatusConflict || code == http.StatusUnprocessableEntity) && there() {
		err = nil
	}
	if found {
		return existing, err
	}
	return got, err
}

func (s *session) request(
	ctx context.Context, method, target string, body, into any, there func() bool,
) (next string, err error) {
	for attempt := 1; ; attempt++ {
		next, wait, err := s.try(ctx, method, target, body, into)
		if method == http.MethodPatch && status(err) == http.StatusConflict {
			wait = 0 // others change it at the same time
		}
		if err == nil || ctx.Err() != nil || wait < 0 || attempt == attempts {
			return next, err
		}
		if code := status(err); method == http.MethodPost && (code == 0 || code >= 500) {
			if there == nil {
				return "", err
			}
			if there() {
				return "", nil
			}
		}
		if wait == 0 {
			wait = env.Backoff(attempt, time.Second, longestWait)
		}
		s.o.Log.Warn(fmt.Sprintf("the forge failed: %v: trying again in %v", err, wait))
		if err := s.o.Sleep(ctx, wait); err != nil {
			return "", err
		}
	}
}

// statusError is an unsuccessful response.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

// status returns the HTTP status behind an error; 0 if there was no response.
func status(err error) int {
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.status
	}
	return 0
}

// try makes one request. A negative wait means that retrying cannot help.
func (s *session) try(
	ctx context.Context, method, target string, body, into any,
) (next string, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, perRequest)
	defer cancel()
	req, err := s.newRequest(ctx, method, target, body)
	if err != nil {
		return "", -1, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL, which the message already contains
		}
		if name, ok := errors.AsType[*net.DNSError](err); ok && name.IsNotFound {
			wait = -1 // the name does not exist; a resolver that fails reports other errors
		}
		return "", wait, fmt.Errorf("reach %s: %w", s.api.Host, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxPage+1))
	if err != nil {
		return "", 0, fmt.Errorf("read from %s: %w", s.api.Host, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		wait, err := s.explain(resp, data)
		return "", wait, err
	}
	if len(data) > maxPage {
		return "", -1, fmt.Errorf("%s sent a response of more than %d MiB", s.api.Host, maxPage>>20)
	}
	if into == nil {
		return "", 0, nil
	}
	if text, ok := into.(*string); ok {
		*text = string(data)
		return "", 0, nil
	}
	if err := dialects[s.kind].decode(data, into); err != nil {
		return "", -1, fmt.Errorf("the response of %s is not that of %s's API: %w; DEEPSWE_GITHUB_API sets the API's address",
			s.api.Host, s.kind, err)
	}
	return nextPage(resp.Header), 0, nil
}

// newRequest returns a request with a body in JSON, or with none if that is nil.
func (s *session) newRequest(ctx context.Context, method, target string, body any) (*http.Request, error) {
	var sent io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		sent = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, sent)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if s.kind == GitHub {
		req.Header.Set("Accept", "application/vnd.github+json")
		req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", userAgent)
	return req, nil
}

var nextLink = env.Pattern(`<([^>]*)>\s*;[^,]*\brel="?next"?`)

// nextPage returns the query of the next page from the Link header (RFC 8288), or "" on the last page. It ignores
// the link's host: behind a proxy it differs from ours, and the server must not decide where requests go.
func nextPage(h http.Header) string {
	m := nextLink().FindStringSubmatch(strings.Join(h.Values("Link"), ", "))
	if m == nil {
		return ""
	}
	u, err := url.Parse(m[1])
	if err != nil {
		return ""
	}
	return u.RawQuery
}
