package llm_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/agent"
	"deepswe/agent/llm"
)

// stuck answers only requests for its metrics: with counters that move until a time, or not at all.
type stuck struct {
	moves time.Time
	dead  bool
}

func (s stuck) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path != "/metrics" || s.dead {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	at := time.Now()
	if at.After(s.moves) {
		at = s.moves
	}
	rec := httptest.NewRecorder()
	fmt.Fprintf(rec, "vllm:generation_tokens_total{engine=\"0\"} %d\n", at.Unix())
	return rec.Result(), nil
}

// A server that works on nothing is not waited for as long as one that works.
func TestStuckServer(t *testing.T) {
	for name, tt := range map[string]struct {
		works, took time.Duration
		dead        bool
	}{
		"it answers nothing":        {0, 5 * time.Minute, true},
		"its engine has stopped":    {0, 6 * time.Minute, false},
		"it works for a while":      {12 * time.Minute, 17 * time.Minute, false},
		"it works and says no more": {2 * time.Hour, 30 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := llm.New(llm.Options{BaseURL: "http://fake", Model: "m", MaxRetries: -1,
					Transport: stuck{time.Now().Add(tt.works), tt.dead}})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				_, err = c.Complete(t.Context(), ask("x"))
				if !errors.Is(err, agent.ErrModelUnavailable) || !strings.Contains(err.Error(), "no answer in time") {
					t.Errorf("got %v", err)
				}
				if took := time.Since(start); took < tt.took || took > tt.took+3*time.Minute {
					t.Errorf("after %s", took)
				}
			})
		})
	}
}
