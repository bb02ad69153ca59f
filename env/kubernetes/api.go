package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"deepswe/env"
)

// Time limits of requests. A busy API server takes seconds to answer; on a managed cluster, one that restarts is
// away for a minute or two.
const (
	requestTimeout = 30 * time.Second
	outageTimeout  = 2 * time.Minute
	retryFirst     = 250 * time.Millisecond
	retryLongest   = 10 * time.Second
)

// requestsAtOnce limits the concurrent requests to one API server, not counting watches and streams.
const requestsAtOnce = 32

// server is the API server, in a context and a namespace of its configuration.
type server struct {
	context, namespace string
	log                *slog.Logger

	base *url.URL
	// http sends requests; upgrade opens streams.
	http, upgrade *http.Client
	requests      chan struct{} // a semaphore of requestsAtOnce

	allowed atomic.Bool  // whether it has allowed a request before
	skew    atomic.Int64 // how far its clock is ahead, in nanoseconds

	mu        sync.Mutex
	permitted map[string]bool // the rights of requests that it has allowed
	// refusedSince is when it began to refuse credentials that it had accepted; zero if it accepts them. noted is set
	// once the user was told.
	refusedSince time.Time
	noted        bool
}

// request is one call to the API.
type request struct {
	method string
	path   string
	query  url.Values
	body   any // encoded as JSON, unless nil
	into   any // the answer is decoded into it, unless nil
	// once forbids repeating the request after a failure.
	once bool
	// whole forbids cutting the request short when its context ends. It is not repeated then.
	whole bool
	// brief forbids waiting for new credentials: a few tries, however slow the server.
	brief bool
}

// right returns a key for the permission that a request needs: its method and the resource.
func (r request) right() string {
	_, resource, _ := strings.Cut(r.path, "/namespaces/")
	parts := strings.SplitN(resource, "/", 3)
	return r.method + " " + parts[min(1, len(parts)-1)]
}

// call sends a request, and repeats it while the server is unreachable or asks to retry later.
func (s *server) call(ctx context.Context, r request) error {
	const tries = 4 // of a brief request that is refused, each with the latest credentials
	began, refusals := time.Now(), 0
	for try := 1; ; try++ {
		wait, err := s.callOnce(ctx, r)
		if err == nil || r.once || ctx.Err() != nil || time.Since(began) >= s.patience(r, err) {
			return err
		}
		if code := refused(err); code == http.StatusUnauthorized || code == http.StatusForbidden {
			if refusals++; r.brief && refusals == tries {
				return err
			}
		}
		if wait == 0 {
			wait = jitter(env.Backoff(try, retryFirst, retryLongest))
		}
		if env.Sleep(ctx, wait) != nil {
			return err
		}
	}
}

// jitter returns a random duration between half of d and d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// patience returns how long to keep retrying after an error; 0 if retrying cannot help. A server that has just
// started does not know any roles yet, and credentials may be renewed, so a refusal is considered temporary if the
// server has allowed requests before.
func (s *server) patience(r request, err error) time.Duration {
	const settling = 20 * time.Second
	refusal, ok := errors.AsType[*statusError](err)
	if !ok {
		return outageTimeout // not an answer of the server: the connection failed
	}
	switch refusal.Code {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return outageTimeout
	case http.StatusUnauthorized, http.StatusForbidden:
		lost := refusal.Code == http.StatusUnauthorized
		if !s.allowed.Load() || !lost && !strings.Contains(refusal.Message, "cannot ") {
			return 0
		}
		lasts := time.Since(s.refuses(err))
		if !lost && !s.was(r) {
			return settling
		}
		// All requests give up at the same time, and later ones at once.
		if lasts > credentialWait {
			return 0
		}
		return credentialWait
	}
	return 0
}

// callOnce sends a request once. wait is how long the server asks to wait before the next try.
func (s *server) callOnce(ctx context.Context, r request) (wait time.Duration, err error) {
	select {
	case s.requests <- struct{}{}:
		defer func() { <-s.requests }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if r.whole {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := s.send(ctx, r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		s.skew.Store(int64(time.Until(date)))
	}
	if answer.StatusCode >= 300 {
		return retryAfter(answer), readStatus(answer)
	}
	if strings.Contains(r.path, "/namespaces/") {
		s.accepted(r)
	}
	if r.into == nil {
		_, err = io.Copy(io.Discard, answer.Body)
		return 0, err
	}
	if err := json.NewDecoder(answer.Body).Decode(r.into); err != nil {
		return 0, fmt.Errorf("%s %s: read the response: %w", r.method, r.path, err)
	}
	return 0, nil
}

func (s *server) send(ctx context.Context, r request) (*http.Response, error) {
	var body io.Reader
	if r.body != nil {
		encoded, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, s.address(r.path, r.query), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return s.http.Do(req)
}

// address returns the URL of an API path.
func (s *server) address(path string, query url.Values) string {
	u := *s.base
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	u.RawQuery = query.Encode()
	return u.String()
}

// readStatus decodes the API server's error response.
func readStatus(answer *http.Response) error {
	refusal := &statusError{}
	said, _ := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if json.Unmarshal(said, refusal) != nil || refusal.Status == "" {
		text := strings.TrimSpace(string(said[:min(len(said), 300)]))
		refusal = &statusError{Message: cmp.Or(text, answer.Status)}
	}
	refusal.Code = answer.StatusCode
	return refusal
}

// retryAfter returns how long the server asks to wait, plus some jitter.
func retryAfter(answer *http.Response) time.Duration {
	seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if err != nil || seconds <= 0 {
		return 0
	}
	wait := min(time.Duration(seconds)*time.Second, retryLongest)
	return wait + rand.N(wait/2+1)
}

// refused returns the HTTP status code of the API server's error, or 0 for other errors.
func refused(err error) int {
	if refusal, ok := errors.AsType[*statusError](err); ok {
		return refusal.Code
	}
	return 0
}

func (s *server) pods() string { return "/api/v1/namespaces/" + s.namespace + "/pods" }

func (s *server) leases() string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + s.namespace + "/leases"
}

// listPods lists the pods that match a label selector, page by page.
func (s *server) listPods(ctx context.Context, selector string) (all []pod, version string, err error) {
	query := url.Values{"labelSelector": {selector}, "limit": {"500"}}
	for {
		var page podList
		if err := s.call(ctx, request{method: http.MethodGet, path: s.pods(), query: query, into: &page}); err != nil {
			return nil, "", err
		}
		all = append(all, page.Items...)
		if page.Metadata.Continue == "" {
			return all, page.Metadata.ResourceVersion, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

const removeTimeout = 30 * time.Second

// createPod asks the server for a pod that is watched, and returns its UID. Cancelling the request could leave an
// unknown pod behind, so it does not end with ctx.
func (c *cluster) createPod(ctx context.Context, p pod, w *watched) (uid string, err error) {
	var made pod
	err = c.call(ctx, request{method: http.MethodPost, path: c.pods(), body: p, into: &made, whole: true})
	if refused(err) == http.StatusConflict && !overQuota(err) {
		err = nil // a first response was lost
	}
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	w.created = refused(err) == 0 // if the response was lost, there may be a pod
	return made.Metadata.UID, err
}

// removePod deletes a pod. If that fails, it is retried later in the background.
func (c *cluster) removePod(ctx context.Context, p podID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	err := c.deletePod(ctx, p.name, p.uid)
	if err != nil {
		c.orphans.Add(p)
	}
	return err
}

// deletePod deletes a pod without a grace period. It succeeds if the pod no longer exists.
func (c *cluster) deletePod(ctx context.Context, name, uid string) error {
	type preconditions struct {
		UID string `json:"uid"`
	}
	options := struct {
		GracePeriodSeconds int64         `json:"gracePeriodSeconds"`
		Preconditions      preconditions `json:"preconditions,omitzero"`
	}{Preconditions: preconditions{uid}}
	err := c.call(ctx, request{method: http.MethodDelete, path: c.pods() + "/" + name, body: options, brief: true})
	if code := refused(err); code == http.StatusNotFound || code == http.StatusConflict {
		return nil // conflict: the name now belongs to another pod
	}
	return err
}
