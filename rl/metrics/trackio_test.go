package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// board answers bulk_log like Trackio 0.43: it requires the token, and ignores a log_id that it already has.
type board struct {
	token string

	mu       sync.Mutex
	refusals int // how many requests fail before one succeeds
	order    []string
	entries  map[string]trackioEntry
	requests int
}

func (b *board) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests++
	var call struct {
		Args   []any
		Kwargs struct{ Logs []trackioEntry }
	}
	switch err := json.NewDecoder(r.Body).Decode(&call); {
	case b.refusals > 0:
		b.refusals--
		http.Error(w, "starting", http.StatusBadGateway)
	case r.URL.Path != "/base/api/bulk_log" || err != nil:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"error": "Unknown API %s"}`, r.URL.Path)
	case r.Header.Get("X-Trackio-Write-Token") != b.token:
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error": "A write_token is required to log metrics"}`)
	default:
		for _, e := range call.Kwargs.Logs {
			if _, ok := b.entries[e.LogID]; !ok {
				b.entries[e.LogID] = e
				b.order = append(b.order, e.LogID)
			}
		}
		fmt.Fprint(w, `{"data": null}`)
	}
}

func (b *board) got() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.order)
}

func newBoard(t *testing.T) (b *board, address string) {
	t.Helper()
	b = &board{token: "secret", entries: map[string]trackioEntry{}}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	return b, server.URL + "/base/?write_token=secret"
}

// newTrackio returns a target for a Trackio server.
func newTrackio(t *testing.T, address string) Target {
	t.Helper()
	target, err := Trackio(address, "")
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// quick is a pace that is fast enough for tests.
func quick() pace {
	p := usual
	p.retry, p.end = time.Millisecond, 5*time.Second
	return p
}

// warnings returns a log, and a function that returns its text.
func warnings() (log *slog.Logger, text func() string) {
	var mu sync.Mutex
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(locked{&mu, &b}, nil)), func() string {
		mu.Lock()
		defer mu.Unlock()
		return b.String()
	}
}

type locked struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func lakePoint(step int) Point {
	return Point{Step: step, Values: map[string]float64{"reward/mean": float64(step) / 10, "loss/total": math.NaN()}}
}

// All points arrive, those of a resumed run only once, and a validation does not replace the training point of its
// step.
func TestTrackio(t *testing.T) {
	b, address := newBoard(t)
	log, warned := warnings()
	target := newTrackio(t, address)
	about := Run{Project: "lake", Name: "one", ID: "one-1", Config: map[string]any{"steps": 300}}
	var points []Point
	f := newFeed(target, about, nil, log, quick())
	for step := range 250 {
		points = append(points, lakePoint(step))
		f.Write(lakePoint(step))
	}
	f.Close(nil)
	resumed := newFeed(target, about, points, log, quick())
	resumed.Write(Point{Step: 3, Values: map[string]float64{"val/pass@1": 0.5}})
	resumed.Close(nil)
	order := b.got()
	if len(order) != 251 || order[7] != "one-1/7/reward/mean" || order[250] != "one-1/3/val/pass@1" {
		t.Errorf("%d points: %q", len(order), order[max(0, len(order)-3):])
	}
	e := b.entries[order[7]]
	if e.Project != "lake" || e.Run != "one" || e.RunID != "one-1" || e.Step != 7 || len(e.Metrics) != 1 ||
		e.Metrics["reward/mean"] != 0.7 {
		t.Errorf("a point: %+v", e)
	}
	if config := b.entries[order[0]].Config; config["steps"] != 300. {
		t.Errorf("configuration: %v", config)
	}
	if w := warned(); w != "" {
		t.Errorf("warnings: %s", w)
	}
}

// A server that fails for a while gets every point in the end, and there is one warning.
func TestTrackioRecovers(t *testing.T) {
	b, address := newBoard(t)
	b.refusals = 5
	log, warned := warnings()
	f := newFeed(newTrackio(t, address), Run{Name: "one", ID: "1"}, nil, log, quick())
	for step := range 3 {
		f.Write(lakePoint(step))
	}
	f.Close(nil)
	if got := b.got(); len(got) != 3 {
		t.Errorf("points: %q", got)
	}
	if w := warned(); strings.Count(w, "level=WARN") != 1 || !strings.Contains(w, "502 Bad Gateway") {
		t.Errorf("warnings: %s", w)
	}
}

// If points cannot be sent, the run still ends normally, with one warning that does not contain the token.
func TestTrackioUnreachable(t *testing.T) {
	elsewhere, target := newBoard(t)
	redirecting := httptest.NewServer(http.RedirectHandler(target, http.StatusTemporaryRedirect))
	t.Cleanup(redirecting.Close)
	_, right := newBoard(t)
	for name, c := range map[string]struct{ address, says string }{
		"nobody listens": {"http://127.0.0.1:1/?write_token=secret", "connection refused"},
		"a redirect":     {redirecting.URL + "?write_token=secret", "307 Temporary Redirect"},
		"another token":  {strings.Replace(right, "secret", "5ecret", 1), "A write_token is required"},
		"another path":   {strings.Replace(right, "/base", "", 1), "Unknown API"},
	} {
		t.Run(name, func(t *testing.T) {
			log, warned := warnings()
			p := quick()
			p.end = 20 * time.Millisecond
			f := newFeed(newTrackio(t, c.address), Run{Name: "one", ID: "1"}, nil, log, p)
			f.Write(lakePoint(1))
			for end := time.Now().Add(10 * time.Second); warned() == "" && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			f.Close(nil)
			w := warned()
			if !strings.Contains(w, c.says) || !strings.Contains(w, "points=1") || strings.Contains(w, "secret") {
				t.Errorf("warnings: %s", w)
			}
		})
	}
	if elsewhere.requests != 0 {
		t.Error("a redirect was followed")
	}
}

func TestTrackioAddress(t *testing.T) {
	for _, c := range []struct{ address, token, says string }{
		{"127.0.0.1:7860?write_token=secret", "", "invalid address"},
		{"ftp://host", "secret", `invalid address "ftp://host"`},
		{"http://host", " ", "a write token is missing"},
		{"http://host", "se\ncret", "line break"},
		{"http://[::1?write_token=secret", "", "invalid address"},
	} {
		_, err := Trackio(c.address, c.token)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", c.address, err)
		}
	}
}
