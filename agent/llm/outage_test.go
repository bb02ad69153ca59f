package llm_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/agent"
	"deepswe/agent/llm"
	"deepswe/agent/llm/llmtest"
)

// switched is a transport to a server that can be cut off. It uses no network, on which a synctest bubble could not
// wait.
type switched struct {
	server atomic.Pointer[llmtest.Server]
	asked  atomic.Int64
}

func (s *switched) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked.Add(1)
	server := s.server.Load()
	if server == nil {
		return nil, syscall.ECONNREFUSED
	}
	rec := httptest.NewRecorder()
	server.ServeHTTP(rec, r)
	return rec.Result(), nil
}

func served(context int) *llmtest.Server {
	return &llmtest.Server{
		TakesTokens: true, Models: []llmtest.Model{{ID: "m", Context: context}},
		Answer: func(llmtest.Request) llmtest.Reply { return llmtest.Text("ok") },
	}
}

// through returns a client of a server that the caller can switch off.
func through(t *testing.T, s *switched, patience time.Duration) *llm.Client {
	t.Helper()
	c, err := llm.New(llm.Options{
		BaseURL: "http://m", Model: "m", Transport: s, Patience: patience, Continue: llm.Extend,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Twenty rollouts wait for a server that restarts. One of them asks for it at a time, and none is lost.
func TestRolloutsWaitForTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &switched{}
		way.server.Store(served(0))
		c := through(t, way, 30*time.Minute)
		is, err := c.Identify(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.Pin(is)
		way.server.Store(nil)
		time.AfterFunc(10*time.Minute, func() { way.server.Store(served(0)) })
		var waiting, most atomic.Int64
		var all sync.WaitGroup
		start := time.Now()
		for range 20 {
			all.Go(func() {
				r := ask("issue")
				r.Tokens = true
				r.Waiting = func() func() {
					most.Store(max(most.Load(), waiting.Add(1)))
					return func() { waiting.Add(-1) }
				}
				if _, err := c.Complete(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(start); took < 10*time.Minute || took > 11*time.Minute {
			t.Errorf("it took %s", took)
		}
		if waiting.Load() != 0 || most.Load() != 20 {
			t.Errorf("%d waited at once, and %d still do", most.Load(), waiting.Load())
		}
		if n := way.asked.Load(); n > 600 {
			t.Errorf("the server was asked %d times", n)
		}
	})
}

// An outage is in the log, each minute while it lasts and with its whole length, whichever request looks for the server
// and whichever finds it.
func TestOutageIsLogged(t *testing.T) {
	for name, late := range map[string]time.Duration{"found by a look": 0, "found by a new request": 10*time.Minute + time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				way := &switched{}
				c, err := llm.New(llm.Options{
					BaseURL: "http://m", Model: "m", Transport: way, Patience: 30 * time.Minute,
					Log: slog.New(slog.NewTextHandler(&log, nil)),
				})
				if err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(10*time.Minute, func() { way.server.Store(served(0)) })
				var all sync.WaitGroup
				complete := func(patience time.Duration) {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					_, _ = c.Complete(ctx, ask("issue"))
				}
				all.Go(func() { complete(5 * time.Minute) }) // the first one looks for the server, and gives up
				time.Sleep(time.Second)
				all.Go(func() { complete(time.Hour) })
				if late > 0 {
					time.Sleep(late - time.Second)
					complete(time.Hour)
				}
				all.Wait()
				said := log.String()
				if strings.Count(said, "is back after 10m") != 1 || strings.Count(said, "waiting up to 30m0s") != 1 {
					t.Errorf("the log does not tell the length once:\n%s", said)
				}
				if n := strings.Count(said, "is still gone after"); n < 8 || n > 10 || !strings.Contains(said, "gone after 9m") {
					t.Errorf("%d lines while it lasted:\n%s", n, said)
				}
			})
		})
	}
}

func TestPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &switched{}
		c := through(t, way, 5*time.Minute)
		r := ask("issue")
		r.Tokens = true
		for i, want := range []time.Duration{5 * time.Minute, 0} { // the second knows how long the server has been gone
			start := time.Now()
			_, err := c.Complete(t.Context(), r)
			if !errors.Is(err, agent.ErrModelUnavailable) {
				t.Errorf("error = %v", err)
			}
			if took := time.Since(start); took < want || took > want+10*time.Second {
				t.Errorf("request %d failed after %s, want %s", i, took, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Complete(ctx, r); err == nil {
			t.Error("a cancelled request waits")
		}
	})
}

// A server that comes back changed is an error for every request.
func TestServersThatComeBackChanged(t *testing.T) {
	model, template := served(0), served(0)
	model.Models[0].ID = "other"
	template.DropsThoughts = true
	for want, other := range map[string]*llmtest.Server{
		"no longer serves the model m": model, "context now has 4096": served(4096), "another chat template": template,
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				way := &switched{}
				way.server.Store(served(0))
				c := through(t, way, 30*time.Minute)
				is, err := c.Identify(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				c.Pin(is)
				way.server.Store(nil)
				time.AfterFunc(time.Minute, func() { way.server.Store(other) })
				for range 2 {
					_, err := c.Complete(t.Context(), ask("issue"))
					if !errors.Is(err, agent.ErrModelChanged) || !strings.Contains(err.Error(), want) {
						t.Errorf("error = %v", err)
					}
				}
			})
		})
	}
}
