package metrics

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Trackio is a Trackio server (https://github.com/gradio-app/trackio), to which runs send their points while they go
// on. It speaks version 1 of the server's HTTP API, of which it uses one call, bulk_log.
type Trackio struct {
	endpoint string
	options  TrackioOptions
	client   *http.Client
	// patience is how long Close waits for the points that are left, retry the first pause after a failure.
	patience, retry time.Duration
}

// TrackioOptions are the settings of the sink.
type TrackioOptions struct {
	// Address is the server's, such as the one that "trackio show" prints. Its parameter write_token, if it has one, is
	// used instead of Token.
	Address, Token string
	// Project is the name under which the server shows the runs.
	Project string
	// Log receives warnings; nil discards them.
	Log *slog.Logger
}

// TrackioRun identifies a run on the server.
type TrackioRun struct {
	Name string
	// ID tells runs of the same name apart, and is the same after a resume.
	ID string
	// Config is shown beside the curves. Its values must have a form in JSON.
	Config map[string]any
}

const (
	trackioTimeout  = 30 * time.Second // of one request
	trackioPatience = 10 * time.Second
	trackioPoints   = 100 // most points in a request
	trackioRetry    = time.Second
	trackioMaxRetry = time.Minute
	// trackioReply is the most that is read of a reply: errors are short.
	trackioReply = 4 << 10
)

// NewTrackio checks the options. It does not connect.
func NewTrackio(o TrackioOptions) (*Trackio, error) {
	u, err := url.Parse(o.Address)
	if err != nil { // the error would contain the token
		return nil, errors.New("invalid address (for example http://127.0.0.1:7860)")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("invalid address %q (for example http://127.0.0.1:7860)", u.Scheme+"://"+u.Host)
	}
	query := u.Query()
	if own := query.Get("write_token"); own != "" {
		o.Token = own
	}
	if o.Token = strings.TrimSpace(o.Token); o.Token == "" {
		return nil, errors.New("a write token is missing; to fix: use the address with write_token that " +
			"\"trackio show\" prints, or set TRACKIO_WRITE_TOKEN")
	}
	if strings.ContainsAny(o.Token, "\r\n") {
		return nil, errors.New("the write token has a line break")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	query.Del("write_token")
	u.RawQuery, u.Fragment = query.Encode(), ""
	// A redirect would carry the token to another server.
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Trackio{
		endpoint: u.JoinPath("api", "bulk_log").String(), options: o,
		client:   &http.Client{Timeout: trackioTimeout, CheckRedirect: refuse},
		patience: trackioPatience, retry: trackioRetry,
	}, nil
}

// Run returns the sink of a run. It sends in the background, so it neither fails nor slows the run: what cannot be sent
// is tried again until Close, and reported as a warning. earlier are the points of a resumed run; the server ignores
// those that it has.
func (t *Trackio) Run(run TrackioRun, earlier []Point) Sink {
	ctx, cancel := context.WithCancel(context.Background())
	s := &trackioSink{server: t, run: run, cancel: cancel, wake: make(chan struct{}, 1)}
	for _, p := range earlier {
		s.queue = append(s.queue, s.entry(p))
	}
	s.work.Go(func() { s.send(ctx) })
	return s
}

// trackioEntry is a point in a call of bulk_log.
type trackioEntry struct {
	Project string             `json:"project"`
	Run     string             `json:"run"`
	RunID   string             `json:"run_id"`
	Step    int                `json:"step"`
	Metrics map[string]float64 `json:"metrics"`
	// LogID is unique for each point: a server ignores a second point with the same one.
	LogID  string         `json:"log_id"`
	Config map[string]any `json:"config,omitempty"`
}

// trackioSink sends the points of one run.
type trackioSink struct {
	server *Trackio
	run    TrackioRun
	cancel context.CancelFunc
	work   sync.WaitGroup
	wake   chan struct{} // has a value if queue or closing changed

	mu      sync.Mutex
	queue   []trackioEntry
	closing bool
}

// entry is the point in the form of the API. Two points of a step differ in their metrics: one is a validation's.
func (s *trackioSink) entry(p Point) trackioEntry {
	values := p.finite()
	first := ""
	if len(values) > 0 {
		first = slices.Min(slices.Collect(maps.Keys(values)))
	}
	return trackioEntry{
		Project: s.server.options.Project, Run: s.run.Name, RunID: s.run.ID, Step: p.Step, Metrics: values,
		LogID: fmt.Sprintf("%s/%d/%s", s.run.ID, p.Step, first),
	}
}

// Write queues a point.
func (s *trackioSink) Write(p Point) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, s.entry(p))
	s.changed()
	return nil
}

// changed wakes the sender.
func (s *trackioSink) changed() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Sync does nothing: the points are on the disk in other sinks.
func (s *trackioSink) Sync() error { return nil }

// Close sends what is left, for a bounded time.
func (s *trackioSink) Close() error {
	s.mu.Lock()
	s.closing = true
	s.changed()
	s.mu.Unlock()
	deadline := time.AfterFunc(s.server.patience, s.cancel)
	defer deadline.Stop()
	s.work.Wait()
	s.cancel()
	if left := len(s.queue); left > 0 {
		s.server.options.Log.Warn("metrics did not reach Trackio; to fix: run deepswe train --resume with --trackio",
			"points", left)
	}
	return nil
}

// send sends batches until the sink is closed and its queue is empty, or the context ends.
func (s *trackioSink) send(ctx context.Context) {
	pause := s.server.retry
	failing := false
	for {
		batch, closing := s.nextBatch()
		if len(batch) == 0 {
			if closing {
				return
			}
			select {
			case <-s.wake:
			case <-ctx.Done():
				return
			}
			continue
		}
		err := s.server.bulkLog(ctx, batch, s.run.Config)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			s.sent(len(batch))
			pause, failing = s.server.retry, false
			continue
		case !failing:
			s.server.options.Log.Warn("metrics do not reach Trackio; trying again", "error", err)
			failing = true
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, trackioMaxRetry)
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}

// nextBatch returns the points that are sent next, and whether the sink is being closed.
func (s *trackioSink) nextBatch() ([]trackioEntry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.queue[:min(len(s.queue), trackioPoints)]), s.closing
}

// sent removes points from the queue.
func (s *trackioSink) sent(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = slices.Delete(s.queue, 0, n)
}

// bulkLog sends points in one request.
func (t *Trackio) bulkLog(ctx context.Context, batch []trackioEntry, config map[string]any) error {
	batch[0].Config = config
	body, err := json.Marshal(map[string]any{
		"args": []any{}, "kwargs": map[string]any{"logs": batch, "hf_token": nil},
	})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Trackio-Write-Token", t.options.Token)
	response, err := t.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, trackioReply))
	if err != nil {
		return err
	}
	var reply struct{ Error any }
	if err := json.Unmarshal(text, &reply); response.StatusCode == http.StatusOK && err != nil {
		return fmt.Errorf("%s is no Trackio server: %w", t.endpoint, err)
	}
	if reply.Error != nil {
		return fmt.Errorf("%s: %s: %v", t.endpoint, response.Status, reply.Error)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", t.endpoint, response.Status)
	}
	return nil
}
