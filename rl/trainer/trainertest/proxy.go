package trainertest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy is in front of a server, real or not, and makes requests fail as networks and other proxies do.
type Proxy struct {
	URL    string
	target string
	http   *http.Client

	mu     sync.Mutex
	faults map[string][]ProxyFault
	last   map[string]reply // of the server, by path
}

// ProxyFault is a failure of one request. The zero value lets it pass.
type ProxyFault struct {
	// Delay comes before anything else.
	Delay time.Duration
	// Status and Text are the answer, and the server does not see the request.
	Status int
	Text   string
	// Drop forwards the request, and breaks the connection before the answer. Twice forwards it twice.
	Drop, Twice bool
	// Stale answers with the server's answer to the previous request of that path. The server does not see this one.
	Stale bool
}

// reply is an answer of the server.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// NewProxy starts a proxy, which ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{
		target: strings.TrimRight(target, "/"), faults: map[string][]ProxyFault{}, last: map[string]reply{},
		http: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	s := httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		p.http.CloseIdleConnections()
	})
	p.URL = s.URL
	return p
}

// Inject makes the next requests of a path, or for a pass of that name, fail, one after the other.
func (p *Proxy) Inject(path string, faults ...ProxyFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[path] = append(p.faults[path], faults...)
}

// Waiting returns the paths whose faults have not all happened.
func (p *Proxy) Waiting() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var paths []string
	for path, left := range p.faults {
		if len(left) > 0 {
			paths = append(paths, path)
		}
	}
	return paths
}

// takeFault returns the next fault of a path, and the server's last answer to it.
func (p *Proxy) takeFault(path string) (f ProxyFault, before reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := p.faults[path]; len(left) > 0 {
		f, p.faults[path] = left[0], left[1:]
	}
	return f, p.last[path]
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	path := operationOf(r, body)
	f, before := p.takeFault(path)
	select {
	case <-time.After(f.Delay):
	case <-r.Context().Done():
		return
	}
	switch {
	case f.Status != 0:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(f.Status)
		_, _ = io.WriteString(w, f.Text)
		return
	case f.Stale:
		before.write(w)
		return
	}
	answer, err := p.forward(r, body)
	if err == nil && f.Twice {
		_, err = p.forward(r, body)
	}
	if err != nil || f.Drop {
		panic(http.ErrAbortHandler)
	}
	p.mu.Lock()
	p.last[path] = answer
	p.mu.Unlock()
	answer.write(w)
}

// forward sends a request to the server.
func (p *Proxy) forward(r *http.Request, body []byte) (reply, error) {
	to, err := http.NewRequestWithContext(r.Context(), r.Method, p.target+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	to.Header = r.Header.Clone()
	resp, err := p.http.Do(to)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, answer}, err
}

func (a reply) write(w http.ResponseWriter) {
	for name, values := range a.header {
		if name != "Content-Length" && name != "Transfer-Encoding" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}
