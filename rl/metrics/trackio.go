package metrics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// trackio sends the points of a run to a Trackio server (https://github.com/gradio-app/trackio). It speaks version 1 of
// the server's HTTP API, of which it uses one call, bulk_log.
type trackio struct {
	server server
	run    Run
}

// Trackio is the Trackio server at an address such as the one that "trackio show" prints. Its parameter write_token, if
// it has one, is used instead of token.
func Trackio(address, token string) (Target, error) {
	u, err := parseAddress(address)
	if err != nil {
		return Target{}, err
	}
	query := u.Query()
	if own := query.Get("write_token"); own != "" {
		token = own
	}
	if token = strings.TrimSpace(token); token == "" {
		return Target{}, errors.New("a write token is missing; to fix: use the address with write_token that " +
			"\"trackio show\" prints, or set TRACKIO_WRITE_TOKEN")
	}
	if strings.ContainsAny(token, "\r\n") {
		return Target{}, errors.New("the write token has a line break")
	}
	query.Del("write_token")
	u.RawQuery = query.Encode()
	s := server{base: u, header: http.Header{"X-Trackio-Write-Token": {token}}}
	return Target{Name: "Trackio", Replay: true, Open: func(r Run) Sink { return trackio{s, r} }}, nil
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

// entry is the point in the form of the API. Two points of a step differ in their metrics: one is a validation's.
func (t trackio) entry(p Point) trackioEntry {
	values := p.finite()
	first := ""
	if len(values) > 0 {
		first = slices.Min(slices.Collect(maps.Keys(values)))
	}
	return trackioEntry{
		Project: t.run.Project, Run: t.run.Name, RunID: t.run.ID, Step: p.Step, Metrics: values,
		LogID: fmt.Sprintf("%s/%d/%s", t.run.ID, p.Step, first),
	}
}

func (t trackio) Send(ctx context.Context, points []Point) error {
	var logs []trackioEntry
	for _, p := range points {
		logs = append(logs, t.entry(p))
	}
	logs[0].Config = t.run.Config
	var reply struct {
		Error any `json:"error"`
	}
	err := t.server.post(ctx, "api/bulk_log", map[string]any{
		"args": []any{}, "kwargs": map[string]any{"logs": logs, "hf_token": nil},
	}, &reply)
	if err == nil && reply.Error != nil {
		err = fmt.Errorf("%v", reply.Error)
	}
	return err
}

func (t trackio) Close(context.Context, error) error { return nil }
