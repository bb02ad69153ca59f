package kubernetes

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// credentialAge is how old credentials may get before their file is read again. Tokens of service accounts live ten
// minutes or more, and their files are rewritten well before that.
const credentialAge = time.Minute

// renewed sends requests with credentials that are read again from where they came from (the KUBECONFIG, a token's
// file, a plugin) when the server refuses them, and when they are older than credentialAge.
type renewed struct {
	load func() (http.RoundTripper, error)

	mu      sync.Mutex
	current http.RoundTripper
	read    time.Time
}

// clientFor returns a client for the configuration that load returns. It never sends credentials to another server
// than the first configuration's. protocols are those to offer in TLS; nil means the default.
func clientFor(load func() (*rest.Config, error), protocols []string) (*http.Client, error) {
	host := ""
	r := &renewed{load: func() (http.RoundTripper, error) {
		config, err := load()
		if err != nil {
			return nil, err
		}
		if host != "" && config.Host != host {
			return nil, fmt.Errorf("the configuration is now for the server %s", config.Host)
		}
		host = config.Host
		config = rest.CopyConfig(config)
		config.UserAgent = "deepswe"
		config.Timeout = 0 // each request has its own timeout
		if protocols != nil {
			config.NextProtos = protocols
		}
		return rest.TransportFor(config)
	}}
	var err error
	if r.current, err = r.load(); err != nil {
		return nil, err
	}
	r.read = time.Now()
	return &http.Client{Transport: r}, nil
}

// RoundTrip implements [http.RoundTripper]. The caller repeats what was refused.
func (r *renewed) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := r.fresh().RoundTrip(req)
	if err == nil && answer.StatusCode == http.StatusUnauthorized {
		r.mu.Lock()
		r.read = time.Time{}
		r.mu.Unlock()
	}
	return answer, err
}

// fresh returns the transport. If the credentials cannot be read, as while a file is rewritten, the old ones stay.
func (r *renewed) fresh() http.RoundTripper {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.read) >= credentialAge {
		if next, err := r.load(); err == nil {
			r.current = next
		}
		r.read = time.Now()
	}
	return r.current
}

// CloseIdleConnections makes [utilnet.CloseIdleConnectionsFor] work.
func (r *renewed) CloseIdleConnections() {
	r.mu.Lock()
	defer r.mu.Unlock()
	utilnet.CloseIdleConnectionsFor(r.current)
}

// credentialWait is how long to wait for new credentials after the server has begun to refuse those that it accepted
// before; credentialNote is when to tell the user. A server that has just started knows no roles for a few seconds.
const (
	credentialWait = 10 * time.Minute
	credentialNote = 15 * time.Second
)

// accepted records that the server has allowed a request.
func (s *server) accepted(r request) {
	s.allowed.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.permitted[r.right()] = true
	if s.noted {
		s.log.Warn("the cluster accepts the credentials again", "cluster", s.where())
	}
	s.refusedSince, s.noted = time.Time{}, false
}

// refuses records that the server does not accept the credentials, and returns since when.
func (s *server) refuses(err error) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusedSince.IsZero() {
		s.refusedSince = time.Now()
	}
	if !s.noted && time.Since(s.refusedSince) >= credentialNote {
		s.noted = true
		s.log.Warn("waiting for new credentials, which are read again by themselves", "cluster", s.where(),
			"until", s.refusedSince.Add(credentialWait).Format(time.TimeOnly), "error", s.unreachable(err))
	}
	return s.refusedSince
}

// was reports whether the server has allowed a request of the same kind before.
func (s *server) was(r request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.permitted[r.right()]
}
