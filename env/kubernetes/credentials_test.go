package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/env"
	"deepswe/env/testkit"
)

// Credentials that are replaced during a run are read again, wherever they come from. Nothing else is read again,
// because the user may have selected another context since.
func TestCredentialsAreReadAgain(t *testing.T) {
	for name, user := range map[string]string{
		"in the KUBECONFIG": `{token: "TOKEN"}`,
		"in a file":         `{tokenFile: "DIR/token"}`,
		"from a plugin": `{exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never, args: [-c,
			'printf "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"%s\"}}"
			"$(cat DIR/token)"']}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := simulate(t)
			server := httptest.NewTLSServer(s) // no credentials are sent without TLS
			t.Cleanup(server.Close)
			dir := t.TempDir()
			issue := func(token, current string) {
				testkit.WriteFile(t, filepath.Join(dir, "token"), token)
				testkit.WriteFile(t, filepath.Join(dir, "config"), strings.NewReplacer("TOKEN", token, "DIR", dir).Replace(
					`{apiVersion: v1, kind: Config, current-context: `+current+`, contexts: [{name: c, context: {cluster: c, user: u}},
					{name: other, context: {cluster: other, user: u}}], users: [{name: u, user: `+user+`}], clusters: [
					{name: c, cluster: {
					insecure-skip-tls-verify: true, server: "`+server.URL+`"}}, {name: other, cluster: {server: "http://127.0.0.1:1"}}]}`))
				s.token.Store(token)
			}
			issue("first", "c")
			t.Setenv("KUBECONFIG", filepath.Join(dir, "config"))
			p, err := New(t.Context(), Options{Executable: testkit.Guest(t), Pods: Pods{GuestImage: "guest"}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}()
			binary, err := p.clusters[0].guests.find()
			if err != nil {
				t.Fatal(err)
			}
			s.build = binary.Hash
			for _, token := range []string{"first", "second"} {
				issue(token, map[string]string{"first": "c", "second": "other"}[token])
				sandbox, err := p.Start(t.Context(), env.Spec{Image: "i", Rollout: token})
				if err != nil {
					t.Fatalf("with the %s token: %v", token, err)
				}
				if err := sandbox.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if context, namespace := Selected(""); context != "other" || namespace != "default" {
				t.Errorf("now selected: %s, %s", context, namespace)
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// said returns a response as the API server would send it.
func said(code int, message string) *http.Response {
	text := fmt.Sprintf(`{"kind":"Status","status":"Failure","message":%q,"code":%d}`, message, code)
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}
}

// When credentials are lost, requests wait for new ones, and the cause is logged once within a minute. Deletions do not
// wait, an interrupt ends the wait at once, and after ten minutes every request fails with advice.
func TestLostCredentials(t *testing.T) {
	for name, refusal := range map[string]struct {
		code          int
		message, says string
	}{
		"the service account was made anew": {http.StatusUnauthorized, "Unauthorized", "log in again"},
		"the role binding is gone": {http.StatusForbidden, `pods is forbidden: User "x" cannot create resource "pods"`,
			"apply the Role"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged lockedText
				var back time.Time
				c := newCluster("c", "n")
				c.base, c.log = &url.URL{Scheme: "http", Host: "x"}, slog.New(slog.NewTextHandler(&logged, nil))
				c.http = &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
					if time.Now().Before(back) {
						return said(refusal.code, refusal.message), nil
					}
					return said(http.StatusOK, ""), nil
				})}
				ask := func(ctx context.Context, r request) (time.Duration, error) {
					began := time.Now()
					r.path = c.pods()
					err := c.call(ctx, r)
					return time.Since(began), err
				}
				create := request{method: http.MethodPost, whole: true}
				remove := request{method: http.MethodDelete, brief: true}
				for _, r := range []request{create, remove} {
					if _, err := ask(t.Context(), r); err != nil {
						t.Fatal(err)
					}
				}
				back = time.Now().Add(4 * time.Minute)
				time.AfterFunc(time.Minute, func() {
					if n := strings.Count(logged.String(), refusal.says); n != 1 {
						t.Errorf("after a minute, the cause was said %d times: %s", n, logged.String())
					}
				})
				if took, err := ask(t.Context(), create); err != nil || took < 4*time.Minute || took > 5*time.Minute {
					t.Errorf("given back after four minutes: %v after %v", err, took)
				}
				back = time.Now().Add(time.Hour)
				if took, err := ask(t.Context(), remove); err == nil || took > 2*time.Second {
					t.Errorf("a deletion: %v after %v", err, took)
				}
				interrupted, interrupt := context.WithTimeout(t.Context(), 3*time.Second)
				defer interrupt()
				if took, err := ask(interrupted, create); err == nil || took > 3*time.Second {
					t.Errorf("interrupted: %v after %v", err, took)
				}
				took, err := ask(t.Context(), create)
				if took > credentialWait+retryLongest || !strings.Contains(c.failed(t.Context(), err).Error(), refusal.says) ||
					!errors.Is(c.failed(t.Context(), err), env.ErrInfrastructure) {
					t.Errorf("not given back: %v after %v", err, took)
				}
				if took, err := ask(t.Context(), create); err == nil || took > 0 {
					t.Errorf("later: %v after %v", err, took)
				}
			})
		})
	}
}

// A deletion that a slow server refuses for a moment is retried: the number of tries is limited, not their time.
func TestRemoveFromASlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []int{http.StatusOK, http.StatusTooManyRequests, http.StatusForbidden, http.StatusForbidden, http.StatusOK}
		c := newCluster("c", "n")
		c.base = &url.URL{Scheme: "http", Host: "x"}
		c.http = &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second)
			code := answers[0]
			answers = answers[1:]
			return said(code, `pods is forbidden: User "x" cannot do that`), nil
		})}
		for range 2 {
			if err := c.deletePod(t.Context(), "p", ""); err != nil {
				t.Error(err)
			}
		}
	})
}

// lockedText is a log that can be read while it is written.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
