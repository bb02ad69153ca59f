package tinker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/agent"
	"deepswe/rl"
)

// answers is a transport whose requests are answered with a status, or not at all if that is 0.
type answers struct{ status int }

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	if a.status == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: a.status, Body: io.NopCloser(strings.NewReader("{}")), Header: http.Header{}}, nil
}

// said returns the lines of a log, without time and level.
func said(log string) (lines []string) {
	for line := range strings.Lines(log) {
		_, text, _ := strings.Cut(line, "msg=")
		lines = append(lines, strings.TrimSpace(text))
	}
	return lines
}

// An outage of the trainer's server is in the log, each minute while it lasts and with its length when it is over.
func TestOutageOfTheTrainer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		lasts  time.Duration
		want   []string
	}{
		"short": {0, 9 * time.Second, nil},
		"long": {0, 99 * time.Second, []string{
			`"the trainer does not answer" for=10s status=0 error="connection refused"`,
			`"the trainer does not answer" for=1m10s status=0 error="connection refused"`,
			`"the trainer is back" after=1m39s`,
		}},
		"behind a proxy": {http.StatusBadGateway, 20 * time.Second, []string{
			`"the trainer does not answer" for=10s status=502 error=<nil>`, `"the trainer is back" after=20s`,
		}},
		"it fails, and answers": {http.StatusInternalServerError, time.Minute, nil},
		"it has no room":        {http.StatusTooManyRequests, time.Minute, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				client, err := NewClient(ClientOptions{URL: "http://trainer", Log: slog.New(slog.NewTextHandler(&log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				server := &answers{status: c.status}
				send := func() {
					_, _, _ = client.send(t.Context(), &http.Client{Transport: server}, http.MethodPost, "x", content{}, time.Minute)
				}
				for begun := time.Now(); time.Since(begun) < c.lasts; time.Sleep(time.Second) {
					send()
				}
				server.status = http.StatusOK
				send()
				send()
				if got := said(log.String()); !slices.Equal(got, c.want) {
					t.Errorf("the log has\n%q, want\n%q", got, c.want)
				}
			})
		})
	}
}

// While no server samples, the log says so each minute, whatever the number of turns that wait, until the patience is
// over.
func TestNoSamplerIsSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		client, err := NewClient(ClientOptions{
			URL: "http://trainer", Patience: 5*time.Minute + time.Second, Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		down := &replica{down: errors.New("it is down")}
		a := &adapters{
			client: client, life: context.Background(), replicas: []*replica{down}, current: &adapter{},
			changed: make(chan struct{}),
		}
		var turns sync.WaitGroup
		for range 8 {
			turns.Go(func() {
				err := a.await(t.Context(), func() bool { return down.down == nil })
				if !errors.Is(err, rl.ErrUnsampled) || !errors.Is(err, agent.ErrModelUnavailable) {
					t.Errorf("%v", err)
				}
			})
		}
		turns.Wait()
		lines := said(log.String())
		for i, line := range lines {
			if want := []string{"for=1m0s", "for=2m0s", "for=3m0s", "for=4m0s", "for=5m0s"}[i]; !strings.Contains(line, want) ||
				!strings.Contains(line, "it is down") || !strings.Contains(line, `"the run stops after"=5m1s`) {
				t.Errorf("line %d is %s, want %s", i, line, want)
			}
		}
		if len(lines) != 5 {
			t.Errorf("%d lines, want one for each minute", len(lines))
		}
	})
}
